"""Sessions on the command line: how they and their messages are shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.text import Text

from perdure.clients.cli.drawing import json_lines, table
from perdure.clients.cli.drawing.amounts import in_words
from perdure.clients.cli.drawing.hints import Commands
from perdure.clients.cli.drawing.progress import COLOURS
from perdure.clients.cli.drawing.screen import note, put, wrapped
from perdure.clients.cli.exits import DONE
from perdure.clients.cli.follow import View, follow
from perdure.clients.client import AgentClient
from perdure.clients.sessions.handle import Sent, Session, SessionStatus
from perdure.clients.sessions.listing import SessionEntry
from perdure.session.wire import SessionTurn
from perdure.text import harmless, money, word
from perdure.values.budgets import Remaining

_LABEL = 10
_SHOWN_TURNS = 10
_LEFT_OUT = ("STARTED", "AGENT")


async def show(session: Session, *, as_json: bool) -> int:
    """Print a session, and return the exit code.

    Raises:
        PerdureError: It cannot be read.
    """
    status, turns = await session.status(), await session.turns()
    if as_json:
        json_lines.tell({**status.model_dump(mode="json"), "last": turns})
        return DONE
    for label, words in _lines(status):
        put(wrapped(Text.assemble((f"{label:<{_LABEL}}", "dim"), words), sys.stdout, _LABEL))
    if turns:
        put()
        table.draw([_turn(one) for one in turns[-_SHOWN_TURNS:]], ("SPENT",), sys.stdout)
    return DONE


def _lines(status: SessionStatus) -> Iterator[tuple[str, Text | str]]:
    """Yield what a session is, as labels and lines."""
    yield "session", Text.assemble((word(status.id), "bold"), f"  {status.state}")
    goes_on = f", now {word(status.last_agent)}" * (status.last_agent != status.agent)
    yield "agent", word(status.agent) + goes_on
    if status.turn is not None:
        yield "runs", word(status.turn)
    for one in status.queue:
        sender = f" {harmless(one.by)}:" if one.by else ""
        yield "waits", f"{word(one.id)}{sender} {harmless(one.text)}"
    spent = {name: amount for name, amount in dict(status.spent).items() if amount}
    if spent:
        yield "spent", in_words(Remaining.model_validate(spent))
    if status.budget is not None:
        yield "budget", budget_in_words(status)


def budget_in_words(status: SessionStatus) -> str:
    """Format the budget of a session."""
    budget = dict(status.budget) if status.budget is not None else {}
    return in_words(Remaining.model_validate(budget)) or "no limit"


def _turn(turn: SessionTurn) -> dict[str, Text]:
    colour = COLOURS.get(turn.outcome, "red") if turn.outcome else "cyan"
    return {
        "TURN": Text(word(turn.turn_id)),
        "STATE": Text(turn.outcome.value if turn.outcome else "running", colour),
        "SPENT": Text("–" if turn.cost is None else money(turn.cost)),
        "MESSAGES": Text(" ".join(map(word, turn.messages))),
    }


def show_all(entries: Sequence[SessionEntry], limit: int, *, as_json: bool) -> None:
    """Print a line for each session, at most `limit`."""
    shown, now = entries[:limit], datetime.now(UTC)
    if as_json:
        for entry in shown:
            json_lines.tell(entry)
    elif shown:
        table.draw([_row(one, now) for one in shown], _LEFT_OUT, sys.stdout)
    else:
        note("there is no such session")
    if len(entries) > limit:
        note(f"there are more than these {limit}; --limit shows them")


def _row(entry: SessionEntry, now: datetime) -> dict[str, Text]:
    return {
        "ID": Text(word(entry.id)),
        "AGENT": Text(word(entry.agent) if entry.agent else "–"),
        "STATE": Text("open", "cyan") if entry.is_open else Text("closed"),
        "STARTED": Text(table.ago(now - entry.started_at)),
    }


async def tell_sent(
    client: AgentClient, session_id: str, sent: Sent, view: View, *, follows: bool
) -> int:
    """Print what happens to a message, follow its turn if asked to, and return the exit code.

    Raises:
        PerdureError: The turn has no answer.
    """
    told: dict[str, Any] = {
        "session": session_id,
        "kind": "sent",
        "message": sent.id,
        "disposition": sent.disposition,
        "turn": sent.turn_id,
    }
    turn = await sent.turn() if follows else None
    if view.as_json:
        json_lines.tell({**told, "turn": sent.turn_id if turn is None else turn.id})
    elif turn is None:
        note(f"{sent.disposition.value}; {Commands(view.address).of('show', sent.turn_id)}")
    return DONE if turn is None else await follow(client, turn, view, is_new=True)
