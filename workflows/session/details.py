"""The details of a session in Temporal's web UI, as Markdown."""

from __future__ import annotations

from perdure.session.state import SessionState
from perdure.text import markdown, money, one_line, word

_MOST_TURNS = 5
_MOST_CHARACTERS = 120


def card(state: SessionState) -> str:
    """Return the card of a session: what runs, what waits, and the last turns."""
    if state.request is None:
        return ""
    lines = [f"**{_plain(state.request.agent)}** — {_doing(state)}", "", f"Turns: {state.count}"]
    if state.ledger.budget is not None and state.ledger.budget.usd is not None:
        limit = money(state.ledger.budget.usd)
        lines += ["", f"Spent: {money(state.ledger.spent.usd)} of {limit}"]
    for message in state.queue:
        lines += ["", f"Waits: {_plain(message.text)}"]
    for turn in state.turns[-_MOST_TURNS:]:
        lines += ["", f"Turn {turn.number}: {turn.outcome.value if turn.outcome else 'unknown'}"]
    return "\n".join(lines)


def _doing(state: SessionState) -> str:
    if state.closed is not None:
        return "closed"
    if state.running is not None:
        return f"turn {state.running.number} runs"
    return "waits for a message"


def _plain(text: str) -> str:
    return markdown(word(one_line(text, _MOST_CHARACTERS)))
