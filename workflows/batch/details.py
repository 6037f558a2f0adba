"""The details of a batch in Temporal's web UI, as Markdown."""

from __future__ import annotations

from perdure.batch.wire import BatchNote
from perdure.text import markdown, money, one_line, word

_MOST_CHARACTERS = 120


def card(batch_id: str, note: BatchNote) -> str:
    """Return the card of a batch: its tasks, its money, and where its turns are.

    Its parts are workflows of their own, which no relationship of Temporal shows.
    """
    lines = [
        f"**{_plain(note.agent)}** — {_doing(note)}",
        f"Tasks: {note.items}; {note.done} done, {note.failed} failed, {note.running} running",
    ]
    limit = note.budget.usd if note.budget is not None else None
    if note.is_priced or limit is not None:
        of = "" if limit is None else f" of {money(limit)}"
        lines.append(f"Spent: {money(note.spent.usd)}{of}")
    lines.append(
        f"Parts: the workflows of the type AgentBatchPart whose id begins with {_plain(batch_id)};"
        " their relationships have the turns. A row batch_order is an order of the batch to a part,"
        " and batch_news the report of a part."
    )
    return "\n\n".join(lines)


def _doing(note: BatchNote) -> str:
    if note.over:
        return "over"
    if note.stop is not None:
        return f"stops: {note.stop.value}" + (f", {_plain(note.reason)}" if note.reason else "")
    return f"runs, {note.at_once} at once"


def _plain(text: str) -> str:
    return markdown(word(one_line(text, _MOST_CHARACTERS)))
