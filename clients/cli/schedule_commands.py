"""`perdure schedule`: its commands, with their options."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from perdure.clients.cli import exits, options
from perdure.clients.cli.common import connected, tell
from perdure.clients.cli.group import Command, Subcommands, examples

if TYPE_CHECKING:
    from perdure.clients.schedules.handle import Schedule

_ID: options.Decorator[Any] = click.argument("schedule_id", metavar="ID", help="The schedule's id.")


@click.group(
    cls=Subcommands,
    short_help="start turns by the clock",
    invoke_without_command=True,
    epilog=examples("perdure schedule list", "perdure schedule create --help"),
)
@click.pass_context
def schedule(context: click.Context) -> None:
    """Start turns at the times of a cron expression.

    A schedule lives in Temporal: only the worker has to run.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(exits.USAGE)


@schedule.command(
    cls=Command,
    short_help="create a schedule",
    epilog=examples(
        "perdure schedule create digest reporter 'Write the digest.' \\",
        "    --cron '0 7 * * 1-5' --timezone Europe/Berlin --usd 0.50",
        "perdure schedule create nightly reporter --batch files.jsonl --at-once 20 \\",
        "    --cron '0 2 * * *' --timezone UTC --usd 5 --total-usd 200",
    ),
)
@_ID
@click.argument("agent", help="The agent's name.")
@click.argument("task", default="", help="The task of each turn; none with --batch.")
@options.timing(is_new=True)
@options.labels("A label of its turns; may be repeated.")
@options.json_lines("Print the schedule as a line of JSON.")
@options.BUDGET
@options.iterations("--max-iterations")
@options.MODEL_RETRY
@options.CONNECTION
async def create(
    schedule_id: str,
    agent: str,
    task: str,
    as_json: bool,
    address: str | None,
    task_queue: str,
    **given: Any,
) -> int:
    """Create a schedule, or find the existing one with the same definition."""
    from perdure.clients.cli import schedules

    client = await connected(address, task_queue)
    made = await client.create_schedule(schedule_id, agent, task, **schedules.arguments(given))
    return await schedules.show(made, as_json=as_json)


@schedule.command(
    "list",
    cls=Command,
    short_help="list schedules",
    epilog=examples("perdure schedule list", "perdure schedule list --json | jq -r .id"),
)
@options.json_lines("Print a line of JSON for each schedule.")
@options.ANY_QUEUE
async def list_schedules(as_json: bool, address: str | None) -> int:
    """List the schedules of the namespace, of all task queues."""
    from perdure.clients.cli import schedules

    client = await connected(address)
    schedules.show_all([one async for one in client.schedules()], as_json=as_json)
    return exits.DONE


@schedule.command(
    cls=Command,
    short_help="show a schedule, its next times and its last turns",
    epilog=examples(
        "perdure schedule show digest", "perdure schedule show digest --json | jq .next"
    ),
)
@_ID
@options.json_lines("Print the schedule as a line of JSON.")
@options.ANY_QUEUE
async def show(schedule_id: str, as_json: bool, address: str | None) -> int:
    """Show what a schedule starts and when, and how its last turns ended."""
    from perdure.clients.cli import schedules

    return await schedules.show(await _schedule(schedule_id, address), as_json=as_json)


@schedule.command(
    cls=Command,
    short_help="start a turn now",
    epilog=examples("perdure schedule run digest"),
)
@_ID
@options.json_lines("Print the id of the turn as a line of JSON.")
@options.ANY_QUEUE
async def run(schedule_id: str, as_json: bool, address: str | None) -> int:
    """Start a turn now, outside the schedule, also while it is paused."""
    from perdure.clients.cli.drawing.hints import Commands

    found = await _schedule(schedule_id, address)
    started = await found.run_now()
    commands, kind = Commands(address), "turn"
    following = commands.of("show", started)
    if (await found.status()).tasks is not None:
        kind, following = "batch", commands.of("batch", "status", shlex.quote(started))
    return tell(as_json, {"schedule": schedule_id, kind: started}, f"started; {following}")


@schedule.command(
    cls=Command,
    short_help="pause a schedule",
    epilog=examples('perdure schedule pause digest --reason "the source is down"'),
)
@_ID
@click.option("--reason", default="", metavar="TEXT", help="The reason, for people; in one line.")
@options.json_lines("Print that it is paused, as a line of JSON.")
@options.ANY_QUEUE
async def pause(schedule_id: str, reason: str, as_json: bool, address: str | None) -> int:
    """Start no more turns until `resume`. A turn that runs goes on."""
    from perdure.text import word

    await (await _schedule(schedule_id, address)).pause(reason)
    told = {"schedule": schedule_id, "paused": True}
    return tell(as_json, told, f"schedule {word(schedule_id)} is paused")


@schedule.command(
    cls=Command,
    short_help="start turns again after a pause",
    epilog=examples("perdure schedule resume digest"),
)
@_ID
@options.json_lines("Print that it is not paused any more, as a line of JSON.")
@options.ANY_QUEUE
async def resume(schedule_id: str, as_json: bool, address: str | None) -> int:
    """Start turns again. The times that passed meanwhile are not made up for: see `backfill`."""
    from perdure.text import word

    await (await _schedule(schedule_id, address)).resume()
    told = {"schedule": schedule_id, "paused": False}
    return tell(as_json, told, f"schedule {word(schedule_id)} starts turns again")


@schedule.command(
    cls=Command,
    short_help="run the times of a range",
    epilog=examples("perdure schedule backfill digest 2026-11-16 2026-11-20T23:59"),
)
@_ID
@click.argument("start", type=options.Moment(), help="The beginning, in the schedule's time zone.")
@click.argument("end", type=options.Moment(), help="The end, included.")
@click.option("--at-once", is_flag=True, help="Start all turns at once, not one after another.")
@options.json_lines("Print the times that are run, as a line of JSON.")
@options.ANY_QUEUE
async def backfill(
    schedule_id: str,
    start: datetime | str,
    end: datetime | str,
    at_once: bool,
    as_json: bool,
    address: str | None,
) -> int:
    """Start a turn for each time of a range, whose turn is told for when it was scheduled."""
    from perdure.clients.cli import schedules
    from perdure.text import word

    found = await _schedule(schedule_id, address)
    first, last = await schedules.in_its_zone(found, start, end)
    slots = await found.backfill(first, last, at_once=at_once)
    words = f"schedule {word(schedule_id)} runs {len(slots)} time{'s' * (len(slots) > 1)}"
    return tell(as_json, {"schedule": schedule_id, "slots": slots}, words)


@schedule.command(
    cls=Command,
    short_help="change a schedule",
    epilog=examples(
        "perdure schedule change digest --cron '30 6 * * 1-5'",
        "perdure schedule change digest --task 'Write a short digest.' --usd 0.20",
    ),
)
@_ID
@click.option("--agent", metavar="NAME", help="The agent's name.")
@click.option("--task", metavar="TEXT", help="The task of each turn.")
@options.timing(is_new=False)
@options.labels("A label in place of those of its turns; may be repeated.")
@options.json_lines("Print the schedule as a line of JSON.")
@options.BUDGET
@options.iterations("--max-iterations")
@options.MODEL_RETRY
@options.ANY_QUEUE
async def change(schedule_id: str, as_json: bool, address: str | None, **given: Any) -> int:
    """Change what is named; the rest stays, and turns that run are not affected.

    The limits replace the whole budget.
    """
    from perdure import errors
    from perdure.clients.cli import schedules

    found = await _schedule(schedule_id, address)
    place = given["timezone"] or (await found.status()).timezone
    changes = schedules.arguments(given, place)
    if not changes:
        raise errors.InvalidRequestError("name what to change, such as --cron or --task")
    await found.change(**changes)
    return await schedules.show(found, as_json=as_json)


@schedule.command(
    cls=Command,
    short_help="delete a schedule",
    epilog=examples("perdure schedule delete digest"),
)
@_ID
@options.json_lines("Print that it is deleted, as a line of JSON.")
@options.ANY_QUEUE
async def delete(schedule_id: str, as_json: bool, address: str | None) -> int:
    """Delete a schedule. Its turns stay, and one that runs goes on."""
    from perdure.text import word

    await (await _schedule(schedule_id, address)).delete()
    told = {"schedule": schedule_id, "deleted": True}
    return tell(as_json, told, f"schedule {word(schedule_id)} is deleted")


async def _schedule(schedule_id: str, address: str | None) -> Schedule:
    return (await connected(address)).schedule(schedule_id)
