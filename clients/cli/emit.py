"""`perdure emit`: an event for one turn, or for all turns that wait for its key."""

from __future__ import annotations

from typing import Any

import click

from perdure.clients.cli import options
from perdure.clients.cli.common import Display, connected, json_of, sender
from perdure.clients.cli.group import Command, examples


@click.command(
    cls=Command,
    epilog=examples(
        "perdure emit ticket-4711 build-done '{\"ok\": true}'",
        "perdure emit --key 4711 build_finished '{\"ok\": true}'",
    ),
)
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="[TURN] NAME [BODY]",
    help="The turn's id, unless there is a key; the name by which models wait for the event; and"
    " what it holds, as JSON.",
)
@click.option(
    "--key",
    metavar="KEY",
    help="The event's key: it goes to all turns that wait for its name and key.",
)
@click.option(
    "--id",
    metavar="ID",
    help="The event's id; the same id is the same event (default: a random one).",
)
@options.BY
@options.json_lines("Print the id of the event as a line of JSON.")
@options.CONNECTION
async def emit(
    words: tuple[str, ...],
    key: str | None,
    by: str | None,
    as_json: bool,
    address: str | None,
    task_queue: str,
    **values: Any,
) -> int:
    """Send an event to a turn, or by a key to turns that wait for it.

    Without a call that waits for it, the turn keeps it for a later one. An event with a key is kept
    for an hour, for turns that begin to wait.
    """
    from perdure.text import word

    turn_id, name, body = _parts(words, has_key=key is not None)
    client = await connected(address, task_queue)
    values |= {"body": json_of(body), "by": sender(by)}
    display = Display(as_json, address=address)
    if key is not None:
        event_id = await client.emit(name, key=key, **values)
        text = f"the event {word(name)} of {word(key)} is there for an hour"
        return display.report({"key": key, "event": event_id}, text)
    turn = client.turn(turn_id)
    event_id = await turn.emit(name, **values)
    text = f"turn {word(turn.id)} has the event {word(name)}"
    return display.report({"turn": turn.id, "event": event_id}, text)


def _parts(words: tuple[str, ...], *, has_key: bool) -> tuple[str, str, str | None]:
    """Return the id of the turn, empty with a key, the name and the body.

    Raises:
        UsageError: There are too few, or too many.
    """
    turn_id, rest = ("", words) if has_key else (words[0], words[1:])
    match rest:
        case (name,):
            return turn_id, name, None
        case (name, body):
            return turn_id, name, body
    form = "--key KEY NAME [BODY]" if has_key else "TURN NAME [BODY], or --key KEY NAME [BODY]"
    raise click.UsageError(f"the form is perdure emit {form}")
