"""`perdure session`: its commands, with their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from perdure.clients.cli import exits, options
from perdure.clients.cli.common import connected, tell
from perdure.clients.cli.group import Command, Subcommands, examples

if TYPE_CHECKING:
    from perdure.clients.sessions.handle import Session

_ID: options.Decorator[Any] = click.argument("session_id", metavar="ID", help="The session's id.")


@click.group(
    cls=Subcommands,
    short_help="list, show and manage sessions",
    invoke_without_command=True,
    epilog=examples("perdure session list", "perdure session show ticket-4711"),
)
@click.pass_context
def session(context: click.Context) -> None:
    """List sessions, and do what `perdure chat` does without a terminal."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(exits.USAGE)


@session.command(
    "list",
    cls=Command,
    short_help="list sessions",
    epilog=examples("perdure session list", "perdure session list --json | jq -r .id"),
)
@click.option("--agent", metavar="NAME", help="Only sessions that were begun with this agent.")
@options.labels("Only sessions with this label; may be repeated.")
@click.option("--limit", type=int, default=20, metavar="N", help="At most this many (default: 20).")
@options.json_lines("Print a line of JSON for each session.")
@options.ANY_QUEUE
async def list_sessions(
    agent: str | None,
    labels: tuple[tuple[str, str], ...],
    limit: int,
    as_json: bool,
    address: str | None,
) -> int:
    """List sessions: open ones first, then the others, the last closed first."""
    from perdure.clients.cli import sessions

    client = await connected(address)
    most = limit + 1 if limit > 0 else limit
    found = client.sessions(agent, labels=dict(labels), limit=most)
    sessions.show_all([one async for one in found], limit, as_json=as_json)
    return exits.DONE


@session.command(
    cls=Command,
    short_help="show a session, what waits in it and its last turns",
    epilog=examples(
        "perdure session show ticket-4711", "perdure session show ticket-4711 --json | jq .queue"
    ),
)
@_ID
@options.json_lines("Print the session as a line of JSON.")
@options.ANY_QUEUE
async def show(session_id: str, as_json: bool, address: str | None) -> int:
    """Show the state, the spending and the last turns of a session. Needs no worker."""
    from perdure.clients.cli import sessions

    return await sessions.show(await _session(session_id, address), as_json=as_json)


@session.command(
    cls=Command,
    short_help="send a message",
    epilog=examples(
        'perdure session say ticket-4711 "And for a flat?"',
        'perdure session say ticket-4711 "Use the new price list." --if-busy steer',
        'perdure session say ticket-4712 "Hello." --begin support --follow > answer.txt',
    ),
)
@_ID
@click.argument("text", help="The message.")
@click.option(
    "--begin", metavar="AGENT", help="Begin the session with this agent if there is none."
)
@click.option("--agent", metavar="NAME", help="The agent that answers it, and the messages after.")
@click.option(
    "--if-busy",
    type=click.Choice(["queue", "steer", "interrupt", "reject"]),
    default="queue",
    metavar="HOW",
    help="While a turn runs: queue, steer, interrupt or reject (default: queue).",
)
@click.option(
    "--id", "message_id", metavar="ID", help="The message's id; the same id is the same message."
)
@click.option("--follow", is_flag=True, help="Follow the turn that reads it, as `perdure run`.")
@options.BY
@options.json_lines("Print what happens to it as a line of JSON; with --follow, then as `run`.")
@options.CONNECTION
async def say(
    session_id: str,
    text: str,
    begin: str | None,
    agent: str | None,
    if_busy: Literal["queue", "steer", "interrupt", "reject"],
    message_id: str | None,
    follow: bool,
    by: str | None,
    as_json: bool,
    address: str | None,
    task_queue: str,
) -> int:
    """Send a message to a session. Once it is accepted, a turn reads it."""
    from perdure.clients.cli import sessions
    from perdure.clients.cli.decisions import by_of
    from perdure.clients.cli.follow import View

    client = await connected(address, task_queue)
    sent = await client.session(session_id, begin).say(
        text, id=message_id, if_busy=if_busy, by=by_of(by), agent=agent
    )
    view = View(as_json=as_json, address=address)
    return await sessions.tell_sent(client, session_id, sent, view, follows=follow)


@session.command(
    cls=Command,
    short_help="begin another session with the messages of one",
    epilog=examples("perdure session fork ticket-4711 ticket-4711-again --at-turn 2"),
)
@_ID
@click.argument("new_id", metavar="NEW", help="The new session's id.")
@click.option(
    "--at-turn",
    type=options.Count(min=0),
    metavar="N",
    help="The last turn whose messages are taken over (default: all).",
)
@options.json_lines("Print the id of the new session as a line of JSON.")
@options.CONNECTION
async def fork(
    session_id: str,
    new_id: str,
    at_turn: int | None,
    as_json: bool,
    address: str | None,
    task_queue: str,
) -> int:
    """Begin a session with the messages of another one, which is not changed.

    It has the same agent and options, and a budget of its own.
    """
    from perdure.text import word

    client = await connected(address, task_queue)
    made = await client.session(session_id).fork(at_turn, id=new_id)
    told = {"session": made.id, "forked_from": session_id}
    words = f"session {word(made.id)} begins with the messages of {word(session_id)}"
    return tell(as_json, told, words)


@session.command(
    cls=Command,
    short_help="add to the budget of a session",
    epilog=examples("perdure session add-budget ticket-4711 --usd 1"),
)
@_ID
@options.SESSION_BUDGET
@options.json_lines("Print the new budget as a line of JSON.")
@options.ANY_QUEUE
async def add_budget(session_id: str, as_json: bool, address: str | None, **limits: Any) -> int:
    """Add to what all turns of a session may spend. Messages that wait for that are read."""
    from perdure import errors
    from perdure.clients.cli import sessions
    from perdure.clients.cli.drawing import amounts
    from perdure.text import word

    more = amounts.budget_of(limits)
    if more is None:
        raise errors.InvalidRequestError(
            "name what to add: --usd, --tokens, --model-calls or --tool-calls"
        )
    found = await _session(session_id, address)
    await found.add_budget(more)
    status = await found.status()
    told = {"session": session_id, "budget": status.budget, "spent": status.spent}
    words = f"budget of session {word(session_id)}: {sessions.budget_in_words(status)}"
    return tell(as_json, told, words)


@session.command(
    cls=Command,
    short_help="take a message out of the queue",
    epilog=examples("perdure session unqueue ticket-4711 mail-19"),
)
@_ID
@click.argument("message", metavar="MESSAGE", help="The message's id, as `show` prints it.")
@options.json_lines("Print whether it was there, as a line of JSON.")
@options.ANY_QUEUE
async def unqueue(session_id: str, message: str, as_json: bool, address: str | None) -> int:
    """Take a message out of the queue. A turn that was given it keeps it."""
    from perdure.text import word

    was_there = await (await _session(session_id, address)).unqueue(message)
    told = {"session": session_id, "message": message, "unqueued": was_there}
    words = "is taken out of the queue" if was_there else "does not wait"
    return tell(as_json, told, f"message {word(message)} {words}")


@session.command(
    cls=Command,
    short_help="cancel the running turn of a session",
    epilog=examples('perdure session interrupt ticket-4711 --reason "the customer has called"'),
)
@_ID
@click.option("--reason", default="", metavar="TEXT", help="The reason, for people; in one line.")
@options.json_lines("Print whether a turn was running, as a line of JSON.")
@options.ANY_QUEUE
async def interrupt(session_id: str, reason: str, as_json: bool, address: str | None) -> int:
    """Cancel the running turn. Messages that wait are read after the next one, or `resume`."""
    from perdure.text import word

    was_running = await (await _session(session_id, address)).interrupt(reason)
    told = {"session": session_id, "interrupted": was_running}
    words = "is interrupted" if was_running else "runs no turn"
    return tell(as_json, told, f"session {word(session_id)} {words}")


@session.command(
    cls=Command,
    short_help="let messages be read that wait after an interruption",
    epilog=examples("perdure session resume ticket-4711"),
)
@_ID
@options.json_lines("Print whether there were any, as a line of JSON.")
@options.ANY_QUEUE
async def resume(session_id: str, as_json: bool, address: str | None) -> int:
    """Let the next turn read the messages that wait, after a turn was cancelled."""
    from perdure.text import word

    waited = await (await _session(session_id, address)).resume()
    told = {"session": session_id, "resumed": waited}
    words = "reads what waits" if waited else "has no message that waits"
    return tell(as_json, told, f"session {word(session_id)} {words}")


@session.command(
    cls=Command,
    short_help="close a session",
    epilog=examples('perdure session close ticket-4711 --reason "solved"'),
)
@_ID
@click.option("--reason", default="", metavar="TEXT", help="The reason, for people; in one line.")
@options.json_lines("Print the messages that no turn has read, as a line of JSON.")
@options.ANY_QUEUE
async def close(session_id: str, reason: str, as_json: bool, address: str | None) -> int:
    """Close a session: it takes no more messages. A running turn goes on to its end."""
    from perdure.text import word

    unread = await (await _session(session_id, address)).close(reason)
    words = f"session {word(session_id)} takes no more messages"
    left = f"; {len(unread)} were not read" if unread else ""
    return tell(as_json, {"session": session_id, "unread": unread}, words + left)


async def _session(session_id: str, address: str | None) -> Session:
    return (await connected(address)).session(session_id)
