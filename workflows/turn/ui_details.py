"""The details of a turn in Temporal's web UI: its current action, its spending, its waits.

They are Markdown, available while a worker has the turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from perdure import errors
from perdure.text import (
    CUT,
    arguments_in_brief,
    markdown,
    markdown_of_arguments,
    money,
    one_line,
    word,
)
from perdure.turn.state import TurnState
from perdure.turn.waiting import DELAY, PROVIDER, Waiting
from perdure.values.approvals import Decision, PendingApproval
from perdure.values.budgets import DIMENSIONS
from perdure.values.moments import in_words as _moment
from perdure.values.tasks import headline

_GAP = "\u00a0\u00a0\u00a0"
"""Separates columns, as the web UI renders tables without space between them."""

_MOST_CHILDREN = 20
_MOST_CALLS = 20

_NAMES = {
    "usd": "money (USD)",
    "tokens": "tokens",
    "model_calls": "model calls",
    "tool_calls": "tool calls",
}


_TITLES = {
    ("approval",): "Waits for approval of:",
    ("outcome",): "Outcome unknown; `perdure settle` says what became of:",
    ("question", "form"): "Asks a person; `perdure answer` answers:",
}


def card(
    state: TurnState,
    now: str,
    at: datetime,
    time_up: datetime | None,
    deadline: datetime | None = None,
) -> str:
    """Return the card of a turn that does `now`, as of `at`.

    `time_up` is the end of its time budget.
    """
    agent = state.request.agent if state.request else ""
    names = " → ".join(markdown(word(name)) for name in (agent, state.other_agent) if name)
    limit = state.max_iterations
    lines = [
        f"**{names}** — {_plain(now, 200)}",
        "",
        f"Task: {_plain(headline(state.request.task), 120) if state.request else ''}",
        "",
        f"Steps done: {state.step_count}" + (f" of at most {limit}" if limit else ""),
        "",
        *_spending(state),
    ]
    if state.children:
        lines += ["", *_children(state)]
    if time_up is not None:
        lines += ["", f"Time is up at {_moment(time_up)} (limit {_short(state.time_limit)})"]
    if deadline is not None:
        lines += ["", f"Ends at {_moment(deadline)} at the latest"]
    lines += _doubts(state)
    if state.waiting is not None and state.waiting.is_told:
        lines += ["", *_wait(state, state.waiting, at)]
    for decision in state.open_step.decisions[-_MOST_CALLS:]:
        lines += ["", f"Decided: {_decided(decision, state)}"]
    if state.attempts.failures:
        last = errors.from_info(state.attempts.failures[-1].error)
        lines += ["", f"Last error: {last.code}: {_plain(last.message, 300)}"]
    return "\n".join(lines)


def _spending(state: TurnState) -> list[str]:
    """Return a row for each dimension of the budget: spent, reserved, limit."""
    rows = ["| | spent | reserved | limit |", "|---|---|---|---|"]
    ledger = state.accounts.ledger
    reserved = ledger.reserved
    for name in DIMENSIONS:
        limit = getattr(ledger.budget, name, None)
        if name == "usd" and limit is None and not state.is_priced_so_far:
            continue
        figures = (getattr(ledger.spent, name), getattr(reserved, name), limit)
        cells = (_cell(figure) + _GAP for figure in figures)
        rows.append(f"| {_NAMES[name]}{_GAP} | {' | '.join(cells)} |")
    return rows


def _cell(figure: Decimal | int | None) -> str:
    if figure is None:
        return "none"
    return money(figure)[1:] if isinstance(figure, Decimal) else str(figure)


def _children(state: TurnState) -> list[str]:
    """Return a row for each turn of a delegate, limited to the last turns."""
    rows = [f"| delegated to{_GAP} | state{_GAP} | spent{_GAP} | task |", "|---|---|---|---|"]
    for child in state.children[-_MOST_CHILDREN:]:
        report = child.report
        doing = f"waits for {child.waits_for}" if child.waits_for else "running"
        cost = "" if report.cost is None or report.outcome is None else money(report.cost)[1:]
        name = child.turn_id.rpartition("/")[2]
        rows.append(
            f"| {_plain(name, 80)}{_GAP} | {_plain(report.outcome or doing, 80)}{_GAP} |"
            f" {cost}{_GAP} | {_plain(report.task, 80)} |"
        )
    return rows


def _doubts(state: TurnState) -> list[str]:
    """Return the calls that were made, and whose outcome is looked up."""
    lines: list[str] = []
    for _, open_call in state.open_step.unfinished if state.open_step.has_doubts else ():
        if open_call.doubt is not None and not open_call.doubt.waits:
            name = markdown(word(open_call.call.name))
            lines += ["", f"**Outcome unknown:** {name}: {_plain(open_call.doubt.reason, 300)}"]
    return lines


def _wait(state: TurnState, waiting: Waiting, at: datetime) -> list[str]:
    """Return the reason for a wait; for approvals, each call that can still be decided."""
    if waiting.kind == PROVIDER and waiting.since is not None and waiting.until is not None:
        again = (
            f"Asked again at {_moment(waiting.until)}, attempt {waiting.attempt}; failing since"
            f" {_moment(waiting.since)}"
        )
        return [f"**Waits for provider:** {_plain(waiting.reason, 300)}", "", again]
    if waiting.is_of_calls and waiting.until is not None:
        what = waiting.of_calls_in_words.capitalize()
        return [f"**{what} until {_moment(waiting.until)}:** {_plain(waiting.reason, 300)}"]
    if waiting.kind == DELAY and waiting.until is not None:
        return [f"**Begins at {_moment(waiting.until)}**"]
    if not waiting.pending:
        return [f"**Waits for {_plain(waiting.kind, 80)}:** {_plain(waiting.reason, 300)}"]
    return _approvals(state, waiting.pending, at)


def _approvals(state: TurnState, pending: Sequence[PendingApproval], at: datetime) -> list[str]:
    """Return a row for each call that can still be decided; nothing without any."""
    calls = {call.id: call.arguments for call, _ in state.asked.calls}
    open_ = [
        approval for approval in pending if approval.call_id in calls and at < approval.expires_at
    ]
    return [
        row
        for kinds, title in _TITLES.items()
        for row in _rows(title, [one for one in open_ if one.kind in kinds], calls)
    ]


def _rows(title: str, pending: Sequence[PendingApproval], calls: Mapping[str, str]) -> list[str]:
    rows = [_asked(approval, calls[approval.call_id]) for approval in pending]
    if not rows:
        return []
    shown = [f"**{title}**", "", *rows[:_MOST_CALLS]]
    if len(rows) > _MOST_CALLS:
        shown.append(f"- and {len(rows) - _MOST_CALLS} more")
    if len(rows) > _MOST_CALLS or any(CUT in row for row in rows):
        shown += ["", "`perdure approvals` with the id of this turn shows what is cut."]
    return shown


def _asked(pending: PendingApproval, arguments: str) -> str:
    """Return a call with its arguments for approval.

    Fields are unambiguous, and omissions are noted.
    """
    tool, call = markdown(word(pending.tool)), markdown(word(pending.call_id))
    why = f": {_plain(pending.reason, 300)}" if pending.is_unknown else ""
    return (
        f"- **{tool}** ({call}) {markdown_of_arguments(arguments_in_brief(arguments))}, until"
        f" {_moment(pending.expires_at)}{why}"
    )


def _decided(decision: Decision, state: TurnState) -> str:
    position = state.open_step.place_of(decision.call_id)
    tool = "a call" if position is None else state.open_step.at(position).call.name
    edited = ", with other arguments" if decision.arguments is not None else ""
    said = decision.answer or decision.reason
    reason = f": {one_line(said, 300)}" if said else ""
    return markdown(f"{word(tool)} ({word(decision.call_id)}) {decision.in_words}{edited}{reason}")


def _short(limit: timedelta | None) -> str:
    return str(limit).removesuffix(".000000") if limit else "none"


def _plain(text: str, limit: int) -> str:
    """Escape text for Markdown."""
    return markdown(one_line(text, limit))
