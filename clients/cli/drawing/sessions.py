"""Sessions as `perdure session list` and `show` print them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime

from rich.text import Text

from perdure.clients.cli.drawing import amounts, details, json_lines
from perdure.clients.cli.drawing.amounts import in_words
from perdure.clients.cli.drawing.listing import EntryTable
from perdure.clients.cli.drawing.progress import COLOURS
from perdure.clients.cli.drawing.table import ago
from perdure.clients.cli.exits import DONE
from perdure.clients.sessions.handle import Session
from perdure.clients.sessions.listing import SessionEntry
from perdure.clients.sessions.readable import SessionStatus
from perdure.session.wire import SessionTurn
from perdure.text import harmless, money, word
from perdure.values.budgets import Remaining
from perdure.values.moments import in_words as moment_in_words

_SHOWN_TURNS = 10


def entry_table(entries: AsyncIterator[SessionEntry]) -> EntryTable[SessionEntry]:
    """Return a table of sessions."""
    return EntryTable(entries, _row, left_out=("STARTED", "AGENT"))


def _row(entry: SessionEntry, now: datetime) -> Mapping[str, Text]:
    return {
        "ID": Text(word(entry.id)),
        "AGENT": Text(word(entry.agent) if entry.agent else "–"),
        "STATE": Text("open", "cyan") if entry.is_open else Text("closed"),
        "STARTED": Text(ago(now - entry.started_at)),
    }


async def show(session: Session, *, as_json: bool) -> int:
    """Print a session, and return the exit code.

    Raises:
        PerdureError: It cannot be read.
    """
    status, turns = await session.status(), await session.turns()
    if as_json:
        json_lines.tell({**status.model_dump(mode="json"), "last": turns})
    else:
        details.draw(_properties(status), list(map(_turn, turns[-_SHOWN_TURNS:])), ("SPENT",))
    return DONE


def _properties(status: SessionStatus) -> Iterator[tuple[str, Text | str]]:
    yield "session", Text.assemble((word(status.id), "bold"), f"  {status.state}")
    current = f", now {word(status.last_agent)}" * (status.last_agent != status.agent)
    yield "agent", word(status.agent) + current
    if status.forked_from is not None:
        by = f", by {harmless(status.forked_from.by)}" if status.forked_from.by else ""
        yield "fork of", f"{word(status.forked_from.session_id)}{by}"
    if status.turn is not None:
        yield "runs", word(status.turn)
    for message in status.queue:
        by = f" {harmless(message.by)}:" if message.by else ""
        yield "waits", f"{word(message.id)}{by} {harmless(message.text)}"
    for reminder in status.reminders:
        yield (
            "reminds",
            f"{word(reminder.id)} at {moment_in_words(reminder.at)} {harmless(reminder.text)}",
        )
    spent = {name: amount for name, amount in dict(status.spent).items() if amount}
    if spent:
        yield "spent", in_words(Remaining.model_validate(spent))
    if status.budget is not None:
        yield "budget", budget_in_words(status)


def budget_in_words(status: SessionStatus) -> str:
    """Format the budget of a session."""
    return amounts.budget_in_words(status.budget) if status.budget is not None else "no limit"


def _turn(turn: SessionTurn) -> Mapping[str, Text]:
    colour = COLOURS.get(turn.outcome, "red") if turn.outcome else "cyan"
    return {
        "TURN": Text(word(turn.turn_id)),
        "STATE": Text(turn.outcome.value if turn.outcome else "running", colour),
        "SPENT": Text("–" if turn.cost is None else money(turn.cost)),
        "MESSAGES": Text(" ".join(map(word, turn.messages))),
    }
