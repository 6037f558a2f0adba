"""The commands for sessions, and `perdure chat`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perdure.clients.cli import options
from perdure.clients.cli.common import Display, connected, sender
from perdure.clients.cli.exits import DONE
from perdure.clients.cli.group import Command, examples
from perdure.clients.cli.resources import ResourceGroup, cancelled

if TYPE_CHECKING:
    from perdure.clients.cli.drawing.listing import EntryTable
    from perdure.clients.client import AgentClient
    from perdure.clients.sessions.handle import Session
    from perdure.clients.sessions.listing import SessionEntry

_ID: options.Decorator[Any] = click.argument("session", help="The session's id.")


def _handle(client: AgentClient, id: str) -> Session:
    return client.session(id)


@click.command(
    cls=Command,
    epilog=examples(
        "perdure chat support",
        "perdure chat support --session ticket-4711 --usd 2",
        "perdure chat support --session ticket-4711 < questions.txt > answers.txt",
    ),
)
@options.AGENT
@click.option(
    "--session",
    "session_id",
    metavar="ID",
    help="The session's id; an open one continues (default: AGENT-… with random characters).",
)
@options.IDLE
@options.BY
@options.json_lines("Print lines of JSON: the session, and for each message its turn and report.")
@options.turn("A label of a new session and its turns; may be repeated.", options.SESSION_BUDGET)
@options.CONNECTION
async def chat(
    agent: str,
    session_id: str | None,
    by: str | None,
    as_json: bool,
    address: str | None,
    task_queue: str,
    **values: Any,
) -> int:
    """Talk to an agent in a session, with one line for each message.

    The session stays open afterwards. On a terminal, `/help` lists what else may be typed, and
    Ctrl-C interrupts the running turn. From a pipe, each line waits for the answer to the line
    before it. Its idle time and the options of its turns apply to a session that this
    command begins.
    """
    from perdure.clients.cli.chatting.chat import ChatOptions, chat
    from perdure.clients.cli.drawing.amounts import with_budget

    chosen = ChatOptions(agent, session_id, with_budget(values), by, as_json, address)
    return await chat(await connected(address, task_queue), chosen)


@click.group(
    cls=ResourceGroup,
    handle=_handle,
    epilog=examples("perdure session list", "perdure session show ticket-4711"),
)
def session() -> None:
    """List and manage sessions.

    These commands do what `perdure chat` does, without a terminal.
    """


@session.listing("perdure session list", "perdure session list --json | jq -r .id")
@click.option("--agent", metavar="NAME", help="Only sessions that were begun with this agent.")
@options.labels("Only sessions with this label; may be repeated.")
def list_sessions(client: AgentClient, **filters: Any) -> EntryTable[SessionEntry]:
    """List sessions.

    Open sessions come first, then those that are closed, the last closed first.
    """
    from perdure.clients.cli.drawing.sessions import entry_table

    return entry_table(client.sessions(**filters))


@session.for_id(
    "perdure session show ticket-4711",
    "perdure session show ticket-4711 --json | jq .queue",
    json="Print the session as a line of JSON.",
)
async def show(session: Session, display: Display) -> int:
    """Show a session, its queue and its last turns.

    Needs no worker.
    """
    from perdure.clients.cli.drawing import sessions

    return await sessions.show(session, as_json=display.as_json)


@session.command(
    epilog=examples(
        'perdure session say ticket-4711 "And for a flat?"',
        'perdure session say ticket-4711 "Use the new price list." --if-busy steer',
        'perdure session say ticket-4712 "Hello." --begin support --usd 2 --follow > answer.txt',
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
@click.option("--id", metavar="ID", help="The message's id; the same id is the same message.")
@click.option("--follow", is_flag=True, help="Follow the turn that reads it, as `perdure run`.")
@options.IDLE
@options.BY
@options.json_lines("Print what happens to it as a line of JSON; with --follow, then as `run`.")
@options.turn("A label of a new session and its turns; may be repeated.", options.SESSION_BUDGET)
@options.CONNECTION
async def say(
    session: str,
    text: str,
    begin: str | None,
    agent: str | None,
    if_busy: Any,
    id: str | None,
    follow: bool,
    by: str | None,
    as_json: bool,
    address: str | None,
    task_queue: str,
    **values: Any,
) -> int:
    """Send a message to a session.

    Once the message is accepted, a turn reads it. `--idle` and the options of turns are those of a
    session that `--begin` begins.
    """
    from perdure import errors
    from perdure.clients.cli.drawing.amounts import with_budget
    from perdure.clients.cli.drawing.hints import CommandHints
    from perdure.clients.cli.running import following

    start = with_budget(values)
    if begin is None and any(start.values()):
        raise errors.InvalidRequestError(
            "--idle and the options of turns, such as labels, limits and --on-done, are those of a"
            " new session; name its agent with --begin"
        )
    client = await connected(address, task_queue)
    sent = await client.session(session, begin, **start).say(
        text, id=id, if_busy=if_busy, by=sender(by), agent=agent
    )
    turn = await sent.turn() if follow else None
    display = Display(as_json=as_json, address=address)
    if turn is None or as_json:
        value = {
            "session": session,
            "kind": "sent",
            "message": sent.id,
            "disposition": sent.disposition,
            "turn": sent.turn_id if turn is None else turn.id,
        }
        hint = CommandHints(address).of("show", sent.turn_id)
        display.report(value, f"{sent.disposition.value}; {hint}")
    if turn is None:
        return DONE
    return await following.follow(client, turn, display, is_new=True)


@session.command(
    epilog=examples("perdure session fork ticket-4711 --id ticket-4711-again --at-turn 2"),
)
@_ID
@click.option("--id", required=True, metavar="ID", help="The new session's id.")
@click.option(
    "--at-turn",
    type=options.Count(min=0),
    metavar="N",
    help="The last turn whose messages are taken over (default: all).",
)
@options.BY
@options.json_lines("Print the id of the new session as a line of JSON.")
@options.CONNECTION
async def fork(
    session: str,
    id: str,
    at_turn: int | None,
    by: str | None,
    as_json: bool,
    address: str | None,
    task_queue: str,
) -> int:
    """Begin a session with the messages of another session.

    The other session is not changed. The new session has the same agent and options, and a budget
    of its own.
    """
    from perdure.text import word

    client = await connected(address, task_queue)
    new = await client.session(session).fork(at_turn, id=id, by=sender(by))
    text = f"session {word(new.id)} begins with the messages of {word(session)}"
    return Display(as_json).report({"session": new.id, "forked_from": session}, text)


@session.command(epilog=examples("perdure session add-budget ticket-4711 --usd 1"))
@_ID
@options.SESSION_BUDGET
@options.BY
@options.json_lines("Print the new budget as a line of JSON.")
@options.ANY_QUEUE
async def add_budget(
    session: str, by: str | None, as_json: bool, address: str | None, **limits: Any
) -> int:
    """Add to the budget of a session.

    All of its turns together may spend the budget. Messages that wait for the addition are read.
    """
    from perdure.clients.cli.drawing import amounts, sessions
    from perdure.text import word

    more = amounts.named_budget(limits)
    handle = _handle(await connected(address), session)
    await handle.add_budget(more, by=sender(by))
    status = await handle.status()
    value = {"session": session, "budget": status.budget, "spent": status.spent}
    text = f"budget of session {word(session)}: {sessions.budget_in_words(status)}"
    return Display(as_json).report(value, text)


@session.action(
    "perdure session unqueue ticket-4711 mail-19",
    json="Print whether it was there, as a line of JSON.",
)
@click.argument("message", help="The message's id, as `show` prints it.")
@options.BY
async def unqueue(session: Session, message: str, by: str | None) -> tuple[dict[str, Any], str]:
    """Take a message out of the queue of a session.

    A turn that has the message already keeps it.
    """
    from perdure.text import word

    was_queued = await session.unqueue(message, by=sender(by))
    text = "is taken out of the queue" if was_queued else "does not wait"
    return {"message": message, "unqueued": was_queued}, f"message {word(message)} {text}"


@session.action(
    "perdure session forget ticket-4711 0f3a9c21",
    json="Print whether it was there, as a line of JSON.",
)
@click.argument("reminder", help="The reminder's id, as `show` prints it.")
@options.BY
async def forget(session: Session, reminder: str, by: str | None) -> tuple[dict[str, Any], str]:
    """Give a reminder of a session up.

    Only one that is not due yet can be given up.
    """
    from perdure.text import word

    was_there = await session.forget_reminder(reminder, by=sender(by))
    text = "is given up" if was_there else "is not there"
    return {"reminder": reminder, "forgotten": was_there}, f"reminder {word(reminder)} {text}"


@session.action(
    'perdure session interrupt ticket-4711 --reason "the customer has called"',
    json="Print whether a turn was running, as a line of JSON.",
)
@options.REASON
@options.BY
async def interrupt(session: Session, reason: str, by: str | None) -> tuple[dict[str, Any], str]:
    """Cancel the running turn of a session.

    Messages that wait are read after the next message, or after `resume`.
    """
    from perdure.text import word

    was_running = await session.interrupt(reason, by=sender(by))
    text = "is interrupted" if was_running else "runs no turn"
    return {"interrupted": was_running}, f"session {word(session.id)} {text}"


@session.action(
    "perdure session resume ticket-4711", json="Print whether there were any, as a line of JSON."
)
@options.BY
async def resume(session: Session, by: str | None) -> tuple[dict[str, Any], str]:
    """Have the messages read that wait after an interruption."""
    from perdure.text import word

    is_resumed = await session.resume(by=sender(by))
    text = "reads what waits" if is_resumed else "has no message that waits"
    return {"resumed": is_resumed}, f"session {word(session.id)} {text}"


@session.action(
    'perdure session cancel ticket-4711 --reason "the wrong customer"',
    json="Print whether there was something to stop, as a line of JSON.",
)
@options.REASON
@options.BY
async def cancel(session: Session, reason: str, by: str | None) -> tuple[dict[str, Any], str]:
    """Cancel the running turn of a session, and close the session.

    It then takes no more messages.
    """
    return cancelled("session", session.id, await session.cancel(reason, by=sender(by)))


@session.action(
    'perdure session close ticket-4711 --reason "solved"',
    json="Print the messages that no turn has read, as a line of JSON.",
)
@options.REASON
@options.BY
async def close(session: Session, reason: str, by: str | None) -> tuple[dict[str, Any], str]:
    """Close a session, which then takes no more messages.

    A running turn continues to its end.
    """
    from perdure.text import word

    unread = await session.close(reason, by=sender(by))
    text = f"session {word(session.id)} takes no more messages"
    return {"unread": unread}, text + (f"; {len(unread)} were not read" if unread else "")
