"""The turns started by a call: their ends, and the result for the model. Pure."""

from __future__ import annotations

from contextlib import suppress

from pydantic_core import to_json

from perdure import limits
from perdure.agents.delegates import SPAWN
from perdure.base import replace
from perdure.errors import InvalidRequestError
from perdure.text import clip
from perdure.turn import steps
from perdure.turn.child import Child
from perdure.turn.delegation_plan import asked
from perdure.turn.facts import ChildEnded, ChildRead, ChildScheduled, ChildTold
from perdure.turn.keys import ChildKey, ToolKey
from perdure.turn.leases import COUNTS
from perdure.turn.ledger import Ledger
from perdure.turn.state import TurnState
from perdure.turn.wire import Summary
from perdure.values.budgets import DIMENSIONS, NOTHING, Budget, Spending
from perdure.values.messages import ToolCall, ToolOutcome, plain_outcome
from perdure.values.reports import Outcome

STARTS = 2
"""The most attempts to start a child.

The second attempt uses another id, because a turn with the first id may exist already.
"""

_WELL = (Outcome.COMPLETED, Outcome.TRUNCATED, Outcome.BUDGET_EXHAUSTED)


def apply(state: TurnState, fact: ChildScheduled | ChildEnded | ChildRead | ChildTold) -> TurnState:
    """Return the state after another fact about the turns of delegates."""
    match fact:
        case ChildScheduled():
            return _scheduled(state, fact)
        case ChildEnded():
            return _ended(state, fact)
        case ChildRead():
            return _read(state, fact)
        case ChildTold():
            return _told(state, fact)


def _scheduled(state: TurnState, fact: ChildScheduled) -> TurnState:
    """Reserve the lease of a started turn, and charge the call that started it once."""
    ledger, budget = state.accounts.ledger, fact.request.budget
    if fact.key.attempt == 1 and not state.children_of(fact.key.step, fact.key.call):
        ledger = replace(ledger, spent=ledger.spent + Spending(tool_calls=1))
    lease = NOTHING
    if budget is not None and ledger.budget is not None:
        limited = {
            name: getattr(budget, name)
            for name in ("usd", *COUNTS)
            if getattr(ledger.budget, name) is not None
        }
        lease = Spending(**{name: value for name, value in limited.items() if value is not None})
    waiting = state.waiting if state.waiting and state.waiting.is_of_calls else None
    child = Child(fact.key, fact.turn_id, fact.request, lease)
    ledger = ledger.hold(str(fact.key), lease)
    state = replace(
        state,
        children=(*state.children, child),
        in_flight=state.with_begun(fact.key),
        waiting=waiting,
    )
    return state.with_ledger(ledger)


def _told(state: TurnState, fact: ChildTold) -> TurnState:
    """Fold news of a child: it waits, continues, or was given budget.

    Such a budget is new to the whole tree, so the limit grows by as much as the lease. An amount
    that would make the limit too large is ignored.
    """
    child, news = state.child(fact.key), fact.news
    if child is None or child.ended or child.read:
        return state
    if news.added is None:
        return _with(state, replace(child, waits_for=news.waits_for, reason=news.reason))
    more = _limited(state.accounts.ledger, news.added)
    if more is None:
        return state
    lease = child.lease + Spending(
        **{name: value for name, value in more if value is not None and name != "time"}
    )
    with suppress(InvalidRequestError):
        ledger = state.accounts.ledger.add(more).hold(str(fact.key), lease)
        return _with(state.with_ledger(ledger), replace(child, lease=lease))
    return state


def _limited(ledger: Ledger, more: Budget) -> Budget | None:
    """Return the dimensions of `more` in which this turn has a limit; None if there are none."""
    named = {
        name: value
        for name, value in more
        if value is not None and getattr(ledger.budget, name, None) is not None
    }
    return Budget(**named) if named else None


def _ended(state: TurnState, fact: ChildEnded) -> TurnState:
    """Fold the end of a child.

    It is charged with its spending, or with its whole lease if the spending is unknown. The end of
    a call's last child gives the call its result.
    """
    child = state.child(fact.key)
    if child is None or child.ended:
        return state
    state = replace(state, in_flight=state.without(fact.key)).with_ledger(
        _settled(state.accounts.ledger, fact)
    )
    if not fact.began and fact.key.attempt < STARTS:
        return replace(
            state, children=tuple(other for other in state.children if other.key != fact.key)
        )
    lease = child.lease if fact.began else NOTHING
    child = replace(
        child,
        ended=True,
        summary=fact.summary,
        waits_for="",
        reason=fact.reason,
        lease=lease,
        began=fact.began,
    )
    return _answered(_with(state, child), fact.key)


def _settled(ledger: Ledger, fact: ChildEnded) -> Ledger:
    key = str(fact.key)
    if not fact.began:
        return ledger.release(key)
    return ledger.settle(key, fact.summary.spent) if fact.summary else ledger.charge(key)


def _read(state: TurnState, fact: ChildRead) -> TurnState:
    """Charge a child without a summary with the spending in its history.

    A child that still ran may have spent more since: it is charged with no less than its lease. The
    result for the model does not change, because an earlier release does not know this fact and has
    to make the same transcript.
    """
    state = replace(state, in_flight=state.without(fact.key))
    child = state.child(fact.key.of)
    if child is None or child.summary is not None or child.read is not None or fact.summary is None:
        return state
    read = fact.summary if fact.is_over else _at_least(fact.summary, child.lease)
    ledger, key = state.accounts.ledger, str(child.key)
    ledger = (
        ledger.correct(child.lease, read.spent) if child.ended else ledger.hold(key, read.spent)
    )
    return _with(state.with_ledger(ledger), replace(child, read=read))


def _at_least(summary: Summary, lease: Spending) -> Summary:
    """Return a summary that reports no less than the lease; a lease of money bounds the cost."""
    amounts = {name: max(getattr(summary.spent, name), getattr(lease, name)) for name in DIMENSIONS}
    is_priced = summary.is_priced or bool(lease.usd)
    return summary.model_copy(update={"spent": Spending(**amounts), "is_priced": is_priced})


def failed(child: Child) -> bool:
    """Return whether a child ended without fulfilling its task."""
    return (
        child.summary is None
        or child.summary.outcome not in _WELL
        or child.summary.error is not None
    )


def _answered(state: TurnState, key: ChildKey) -> TurnState:
    """Give the call its result once all of its children have ended."""
    tool_key = ToolKey(key.step, key.call)
    if not steps.is_open(state, tool_key):
        return state
    call = state.open_step.at(key.call).edited
    children = sorted(state.children_of(key.step, key.call), key=lambda child: child.key.child)
    if len(children) != _wanted(call) or not all(child.ended for child in children):
        return state
    if call.name == SPAWN:
        room = limits.TOOL_RESULT_BYTES // 2 // len(children)
        content = to_json([_entry(child, room) for child in children]).decode()
        return steps.give(
            state, tool_key, clip(content, limits.TOOL_RESULT_BYTES), ToolOutcome.DONE
        )
    [child] = children
    return steps.give(
        state,
        tool_key,
        clip(_words(child), limits.TOOL_RESULT_BYTES),
        plain_outcome(is_error=failed(child)),
    )


def _wanted(call: ToolCall) -> int:
    """Return the number of children that a call starts.

    It is 0 for a call that starts none, which can occur in a reader that began at a wrong answer.
    """
    try:
        return len(asked(call))
    except ValueError:
        return 0


def _words(child: Child) -> str:
    """Return the result for the model of a call with one child."""
    output = child.summary.output if child.summary else ""
    if not failed(child):
        note = (
            "\n[Its budget is spent: this is its last answer.]"
            if child.summary and child.summary.outcome is Outcome.BUDGET_EXHAUSTED
            else ""
        )
        return output + note
    text = f"{child.request.agent}: {_reason(child)}"
    return f"{text}\nWhat it said last: {output}" if output else text


def _entry(child: Child, room: int) -> dict[str, str]:
    """Return the entry of one child in the result of a call with several."""
    output = child.summary.output if child.summary else ""
    outcome = child.report.outcome or Outcome.TERMINATED
    entry = {"agent": child.request.agent, "outcome": outcome.value, "output": clip(output, room)}
    return {**entry, "error": clip(_reason(child), room // 4)} if failed(child) else entry


def _reason(child: Child) -> str:
    summary = child.summary
    if summary is None:
        return child.reason or "it ended, and nobody knows how"
    if summary.error is not None:
        return f"{summary.error.code}: {summary.error.message}"
    return f"{summary.outcome.value}{': ' + child.reason if child.reason else ''}"


def _with(state: TurnState, child: Child) -> TurnState:
    return replace(
        state,
        children=tuple(child if other.key == child.key else other for other in state.children),
    )
