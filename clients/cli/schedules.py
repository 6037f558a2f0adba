"""The commands for schedules."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from perdure.clients.cli import options, schedule_options
from perdure.clients.cli.common import Display, connected, sender
from perdure.clients.cli.group import examples
from perdure.clients.cli.resources import ResourceGroup, cancelled

if TYPE_CHECKING:
    from perdure.clients.cli.drawing.listing import EntryTable
    from perdure.clients.client import AgentClient
    from perdure.clients.schedules.handle import Schedule
    from perdure.clients.schedules.status import ScheduleEntry


def _handle(client: AgentClient, id: str) -> Schedule:
    return client.schedule(id)


@click.group(
    cls=ResourceGroup,
    handle=_handle,
    epilog=examples("perdure schedule list", "perdure schedule create --help"),
)
def schedule() -> None:
    """Start turns at the times of a cron expression.

    A schedule lives in Temporal: only the worker has to run.
    """


@schedule.command(
    epilog=examples(
        "perdure schedule create digest reporter 'Write the digest.' \\",
        "    --cron '0 7 * * 1-5' --timezone Europe/Berlin --usd 0.50",
        "perdure schedule create nightly reporter --batch files.jsonl --at-once 20 \\",
        "    --cron '0 2 * * *' --timezone UTC --usd 5 --total-usd 200",
    ),
)
@click.argument("schedule", help="The schedule's id.")
@options.AGENT
@click.argument("task", default="", help="The task of each turn; none with --batch.")
@schedule_options.definition(is_new=True)
@options.turn("A label of its turns; may be repeated.")
@options.BY
@options.json_lines("Print the schedule as a line of JSON.")
@options.CONNECTION
async def create(
    schedule: str,
    agent: str,
    task: str,
    by: str | None,
    as_json: bool,
    address: str | None,
    task_queue: str,
    **values: Any,
) -> int:
    """Create a schedule.

    If a schedule of this id exists with the same definition, nothing changes.
    """
    from perdure.clients.cli.drawing import schedules
    from perdure.clients.cli.running.schedule_arguments import arguments

    client = await connected(address, task_queue)
    created = await client.create_schedule(
        schedule, agent, task, by=sender(by), **arguments(values)
    )
    return await schedules.show(created, as_json=as_json)


@schedule.listing("perdure schedule list", "perdure schedule list --json | jq -r .id", limit=None)
def list_schedules(client: AgentClient, **filters: Any) -> EntryTable[ScheduleEntry]:
    """List the schedules of all task queues."""
    from perdure.clients.cli.drawing.schedules import entry_table

    return entry_table(client.schedules(**filters))


@schedule.for_id(
    "perdure schedule show digest",
    "perdure schedule show digest --json | jq .next",
    json="Print the schedule as a line of JSON.",
)
async def show(schedule: Schedule, display: Display) -> int:
    """Show a schedule, its next times and its last turns."""
    from perdure.clients.cli.drawing import schedules

    return await schedules.show(schedule, as_json=display.as_json)


@schedule.for_id(
    "perdure schedule results digest",
    "perdure schedule results digest --limit 1 --json | jq .outcome",
    json="Print a line of JSON for each result.",
)
@click.option("--after", metavar="CURSOR", help="Only results after this one (see --json).")
@click.option(
    "--limit",
    type=options.Count(min=1),
    metavar="N",
    help="End after this many (default: follow the schedule until Ctrl-C).",
)
async def results(
    schedule: Schedule, display: Display, after: str | None, limit: int | None
) -> int:
    """Print what a schedule has started, and follow it.

    It begins with the last turns that were started; each is printed when it is over. Needs no
    worker.
    """
    from perdure.clients.cli.drawing import schedules

    return await schedules.follow(schedule, after, limit, as_json=display.as_json)


@schedule.for_id("perdure schedule run digest", json="Print the id of the turn as a line of JSON.")
@options.BY
async def run(schedule: Schedule, display: Display, by: str | None) -> int:
    """Start a turn now, also while the schedule is paused."""
    from perdure.clients.cli.drawing.hints import CommandHints

    started = await schedule.run_now(by=sender(by))
    hints, kind = CommandHints(display.address), "turn"
    following = hints.of("show", started)
    if (await schedule.status()).tasks is not None:
        kind, following = "batch", hints.of("batch", "show", shlex.quote(started))
    return display.report({"schedule": schedule.id, kind: started}, f"started; {following}")


@schedule.action(
    'perdure schedule pause digest --reason "the source is down"',
    json="Print that it is paused, as a line of JSON.",
)
@options.REASON
@options.BY
async def pause(schedule: Schedule, reason: str, by: str | None) -> tuple[dict[str, Any], str]:
    """Start no more turns until `resume`.

    A turn that runs continues.
    """
    from perdure.text import word

    await schedule.pause(reason, by=sender(by))
    return {"paused": True}, f"schedule {word(schedule.id)} is paused"


@schedule.action(
    'perdure schedule cancel digest --reason "the source is wrong"',
    json="Print whether there was something to stop, as a line of JSON.",
)
@options.REASON
@options.BY
async def cancel(schedule: Schedule, reason: str, by: str | None) -> tuple[dict[str, Any], str]:
    """Cancel the running turns, and start no more until `resume`."""
    was_running = await schedule.cancel(reason, by=sender(by))
    return cancelled("schedule", schedule.id, was_running, "is paused already, and runs no turn")


@schedule.action(
    "perdure schedule add-budget digest --usd 5", json="Print the total, as a line of JSON."
)
@options.SESSION_BUDGET
@options.BY
async def add_budget(
    schedule: Schedule, by: str | None, **limits: Any
) -> tuple[dict[str, Any], str]:
    """Add to the total budget of a schedule.

    A schedule that has paused because its budget was spent starts again with `resume`.
    """
    from perdure.clients.cli.drawing import amounts
    from perdure.text import word

    await schedule.add_budget(amounts.named_budget(limits), by=sender(by))
    status = await schedule.status()
    assert status.total is not None
    text = f"total budget of schedule {word(schedule.id)}: {amounts.budget_in_words(status.total)}"
    return {"total": status.total, "spent": status.spent}, text


@schedule.action(
    "perdure schedule resume digest",
    json="Print that it is not paused any more, as a line of JSON.",
)
@options.BY
async def resume(schedule: Schedule, by: str | None) -> tuple[dict[str, Any], str]:
    """Start turns again after a pause.

    The times that passed meanwhile are not made up for: see `backfill`.
    """
    from perdure.text import word

    await schedule.resume(by=sender(by))
    return {"paused": False}, f"schedule {word(schedule.id)} starts turns again"


@schedule.action(
    "perdure schedule backfill digest 2026-11-16 2026-11-20T23:59",
    json="Print the times that are run, as a line of JSON.",
)
@click.argument(
    "start",
    type=schedule_options.ScheduleTime(),
    help="The beginning, in the schedule's time zone.",
)
@click.argument("end", type=schedule_options.ScheduleTime(), help="The end, included.")
@click.option("--at-once", is_flag=True, help="Start all turns at once, not one after another.")
@options.BY
async def backfill(
    schedule: Schedule, start: datetime | str, end: datetime | str, at_once: bool, by: str | None
) -> tuple[dict[str, Any], str]:
    """Start a turn for each time of a range.

    Each turn is told for when it was scheduled.
    """
    from perdure.clients.cli.running.schedule_arguments import in_its_zone
    from perdure.text import counted, word

    first, last = await in_its_zone(schedule, start, end)
    slots = await schedule.backfill(first, last, at_once=at_once, by=sender(by))
    return {"slots": slots}, f"schedule {word(schedule.id)} runs {counted(len(slots), 'time')}"


@schedule.for_id(
    "perdure schedule change digest --cron '30 6 * * 1-5'",
    "perdure schedule change digest --task 'Write a short digest.' --usd 0.20",
    json="Print the schedule as a line of JSON.",
)
@click.option("--agent", metavar="NAME", help="The agent's name.")
@click.option("--task", metavar="TEXT", help="The task of each turn.")
@schedule_options.definition(is_new=False)
@options.turn("A label in place of those of its turns; may be repeated.")
@options.BY
async def change(schedule: Schedule, display: Display, by: str | None, **values: Any) -> int:
    """Change a schedule; what is not named stays.

    Turns that run are not affected. The limits replace the whole budget.
    """
    from perdure import errors
    from perdure.clients.cli.drawing import schedules
    from perdure.clients.cli.running.schedule_arguments import arguments

    zone = values["timezone"] or (await schedule.status()).timezone
    changes = arguments(values, zone)
    if not changes:
        raise errors.InvalidRequestError("name what to change, such as --cron or --task")
    await schedule.change(**changes, by=sender(by))
    return await schedules.show(schedule, as_json=display.as_json)


@schedule.action(
    "perdure schedule delete digest", json="Print that it is deleted, as a line of JSON."
)
@options.BY
async def delete(schedule: Schedule, by: str | None) -> tuple[dict[str, Any], str]:
    """Delete a schedule.

    Its turns stay, and a turn that runs continues.
    """
    from perdure.text import word

    await schedule.delete(by=sender(by))
    return {"deleted": True}, f"schedule {word(schedule.id)} is deleted"
