"""The status of a turn, as a value.

It is made from the history of the turn and the histories of the turns below it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from operator import not_

from pydantic import Field

from perdure.agents.versions import UNVERSIONED
from perdure.base import Value
from perdure.clients.reading.current_activity import doing
from perdure.clients.reading.tree import Node
from perdure.errors import ErrorInfo
from perdure.temporal import search_attributes
from perdure.text import clip
from perdure.turn import ending, questions, unsettled
from perdure.turn.keys import ChildKey, ReadKey
from perdure.turn.state import TurnState
from perdure.values import states
from perdure.values.approvals import PendingApproval
from perdure.values.budgets import Budget, Spending
from perdure.values.reports import ChildReport, ForkedFrom, Outcome
from perdure.values.shared_state import SharedState
from perdure.values.states import State
from perdure.values.tasks import headline

UNTAKEN = ", as soon as a worker takes it"

TEXT_BYTES = 100_000
"""The largest size of the last text; the rest is cut off."""


class Spent(Value):
    """The spending of a turn, delegates included; the names are those of `Budget`.

    Attributes:
        usd: Money, in US dollars; None if the price of a model is unknown.
        time: The time since the start, without the waits that a budget of time leaves out.
        tokens: Input and output of all model calls.
        model_calls: Requests to models.
        tool_calls: Tool calls that were started, attempts of lost workers included, as budgets and
            `AgentReport.spent` count them.
    """

    usd: Decimal | None = None
    time: timedelta = timedelta()
    tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0


class Wait(Value):
    """A wait of a turn, or of a turn below it.

    Attributes:
        kind: The kind of the wait: `approval` of a call, `budget`, `iterations`, `resume`,
            `provider`, `retry`, `delay` before the turn begins, or `timer`, `event`, `job` or
            `client` of a call of the model. The last seven end by themselves, at `until`.
        turn_id: The turn that waits.
        reason: The reason, in words.
        since: The start of the wait; None if it is unknown.
        until: The time at which it ends without an answer; None if it does not, or if the time is
            unknown.
        call: The call that waits for approval, for `Turn.approve` of that turn.
    """

    kind: str
    turn_id: str
    reason: str = ""
    since: datetime | None = None
    until: datetime | None = None
    call: PendingApproval | None = None


class ChildStatus(Value):
    """The status of a delegate's turn.

    Attributes:
        id: The turn's id.
        agent: The name of its agent.
        task: Its task, in one line.
        state: `running`, `waiting`, `paused` or `ended`.
        outcome: The outcome; None before the end.
        steps: The number of completed steps.
        spent: Its spending.
        children: The turns below it.
    """

    id: str
    agent: str
    task: str = ""
    state: states.OfTurn = State.RUNNING
    outcome: Outcome | None = None
    steps: int = 0
    spent: Spent = Spent()
    children: tuple[ChildStatus, ...] = ()


class TurnStatus(Value):
    """The status of a turn.

    Attributes:
        id: The turn's id.
        run_id: Temporal's id of the run.
        agent: The name of the agent that it was started with.
        task: The task, in one line.
        labels: The labels that it was started with.
        state: `running`; `waiting` for a person, a provider, its beginning, a time or an event;
            `paused` until its
            budget or its limit of iterations is added to, until it is resumed, or because an
            operator paused it in Temporal; `ended`.
        outcome: The outcome; None before the end.
        error: The error of a turn that failed; otherwise None.
        step: The number of the current step, from 1; 0 before the first.
        steps: The number of completed steps.
        model_calls: The number of its own requests, as in the report.
        tool_calls: The number of its own calls that have a result, as in the report; `spent` counts
            what budgets limit.
        doing: Its current activity, in words.
        since: The start of its current activity.
        waits: Its waits, and those of the turns below it.
        spent: Its spending so far.
        budget: Its budget; None without a limit, and if the budget is the agent's, before the agent
            is known.
        max_iterations: The number of steps that it may make; None without a limit, and if the limit
            is the agent's, before the agent is known.
        children: The turns that it delegated to.
        last_text: The last text of the model, which is the answer of a turn that completed, cut at
            100 kB; for an agent with checks after the turn, empty until they have let it pass.
        started_at: The time it was started.
        ended_at: The time it ended; None before the end.
        forked_from: The point in another turn from which it goes on; None for other turns.
        deadline: The time at which it ends at the latest; None without one.
        last_agent: The name of the agent that has it: the one that it was last handed over to, or
            else `agent`.
        unsettled: The number of calls whose outcome is unknown, also of the turns below it, without
            those that a person has settled; 0 before the end. Of the turns below it, those without
            `effect=` count on.
        shared_state: The shared state of its tools.
        version: The version of the agent that it was started with; empty for an agent without
            versions, and before the agent is known.
        fell_back: Why it has the default version instead of the one that the rollout chose; empty
            if it was not stopped.
    """

    id: str
    run_id: str
    agent: str
    task: str = ""
    labels: dict[str, str] = {}
    state: states.OfTurn
    outcome: Outcome | None = None
    error: ErrorInfo | None = None
    step: int = 0
    steps: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    doing: str
    since: datetime | None = None
    waits: tuple[Wait, ...] = ()
    spent: Spent = Spent()
    budget: Budget | None = None
    max_iterations: int | None = None
    children: tuple[ChildStatus, ...] = ()
    last_text: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    forked_from: ForkedFrom | None = None
    deadline: datetime | None = None
    last_agent: str = ""
    unsettled: int = 0
    shared_state: SharedState = Field(default={}, exclude_if=not_)
    version: str = ""
    fell_back: str = ""


def status(
    root: Node,
    now: datetime,
    *,
    is_paused: bool = False,
    untaken: frozenset[str] = frozenset(),
) -> TurnStatus:
    """Return the status of the turn at the root of a tree.

    Args:
        root: The turn.
        now: The current time.
        is_paused: Whether an operator paused it in Temporal.
        untaken: The ids of activities that no worker has begun, which history does not contain.
    """
    state = root.state
    at_work = {str(key) for key in state.in_flight if not isinstance(key, ChildKey | ReadKey)}
    is_untaken = bool(at_work) and at_work <= untaken
    error = ending.error_of(state.ended, state.cancel_reason) if state.ended else None
    version = state.agent.version if state.agent else UNVERSIONED
    return TurnStatus(
        id=root.turn_id,
        run_id=root.run_id,
        agent=root.agent,
        task=headline(state.request.task) if state.request else "",
        labels=state.request.labels if state.request else {},
        state=State.PAUSED if is_paused and state.ended is None else where(state),
        outcome=state.ended.outcome if state.ended else None,
        error=error.info() if error else None,
        step=_step(state),
        steps=state.step_count,
        model_calls=state.accounts.model_calls,
        tool_calls=state.tool_calls,
        doing=in_words(state) + (UNTAKEN if is_untaken else ""),
        since=root.ended or root.since,
        waits=tuple(_waits(root, now)),
        spent=_spent(root, now),
        budget=state.accounts.ledger.budget,
        max_iterations=state.max_iterations,
        children=_children(root, now),
        last_text=clip(state.output, TEXT_BYTES),
        started_at=root.began,
        ended_at=root.ended,
        forked_from=state.request.forked_from if state.request else None,
        deadline=root.deadline,
        last_agent=state.last_agent or root.agent,
        unsettled=unsettled.count(state) if state.ended else 0,
        shared_state=state.shared,
        version=version.started,
        fell_back=version.reason,
    )


def where(state: TurnState) -> states.OfTurn:
    """Return the state of a turn."""
    if state.ended is not None:
        return State.ENDED
    if state.waiting is not None and state.waiting.is_told:
        return search_attributes.state_of(state.waiting.kind)
    return State.RUNNING


def in_words(state: TurnState) -> str:
    """Describe the current activity of a turn, in words."""
    if state.ended is not None:
        return f"ended: {state.ended.outcome.value}"
    if state.waiting is not None and state.waiting.is_told:
        return f"{doing(state)}: {state.waiting.reason}"
    waiting = [
        f"{child.turn_id} waits for {child.waits_for}"
        for child in state.children
        if child.waits_for and not child.ended
    ]
    return ", ".join([doing(state, gap=": "), *waiting])


def pending(state: TurnState, run_id: str, now: datetime) -> Iterator[PendingApproval]:
    """Yield the calls of a turn that wait for a person, with their complete arguments.

    Expired calls are left out. `run_id` is that of the first run that Temporal still has.
    """
    run_id = state.carried.first_run or run_id
    waiting = state.waiting.pending if state.waiting and state.ended is None else ()
    calls = {
        call.id: (call.arguments, gate.reason, questions.question_of(state, call.id))
        for call, gate in state.asked.calls
    }
    for approval in waiting:
        is_open = (approval.call_id, approval.digest) in state.asked.places
        if is_open and now < approval.expires_at:
            yield approval.of_run(run_id, *calls[approval.call_id])


def _step(state: TurnState) -> int:
    begun = [key.step for key in state.in_flight] + [
        failure.key.step for failure in state.attempts.failures
    ]
    return max([state.step_count + bool(state.open_step.calls), *begun])


def _waits(node: Node, now: datetime) -> Iterator[Wait]:
    state = node.state
    if state.ended is not None:
        return
    if state.waiting is not None:
        yield from _own_waits(node, now)
    below = {child.turn_id: child for child in node.children}
    for child in state.children:
        known = below.get(child.turn_id)
        if known is not None and known.state.request is not None:
            yield from _waits(known, now)
        elif child.waits_for and not child.ended:
            since = node.told_at.get(child.turn_id)
            yield Wait(
                kind=child.waits_for, turn_id=child.turn_id, reason=child.reason, since=since
            )


def _own_waits(node: Node, now: datetime) -> Iterator[Wait]:
    assert node.state.waiting is not None
    waiting = node.state.waiting
    kind, reason = waiting.kind, waiting.reason
    if not waiting.pending:
        yield Wait(
            kind=kind,
            turn_id=node.turn_id,
            reason=reason,
            since=waiting.since or node.since,
            until=waiting.until,
        )
    for call in pending(node.state, node.run_id, now):
        yield Wait(
            kind=kind,
            turn_id=node.turn_id,
            reason=reason,
            since=node.since,
            until=call.expires_at,
            call=call,
        )


def _spent(node: Node, now: datetime) -> Spent:
    usd = node.spent.usd if node.state.is_priced_so_far else None
    return _in_time(node.spent, usd, max(node.elapsed(now), timedelta()))


def _in_time(spent: Spending, usd: Decimal | None, time: timedelta) -> Spent:
    return Spent(
        usd=usd,
        time=time,
        tokens=spent.tokens,
        model_calls=spent.model_calls,
        tool_calls=spent.tool_calls,
    )


def _children(node: Node, now: datetime) -> tuple[ChildStatus, ...]:
    """Return the children: ended turns from the parent's history, others from their own."""
    below = {child.turn_id: child for child in node.children}
    return tuple(
        _child(below[child_state.turn_id], now)
        if child_state.turn_id in below
        else _reported(child_state.report, is_over=child_state.ended)
        for child_state in node.state.children
    )


def _child(node: Node, now: datetime) -> ChildStatus:
    state = node.state
    return ChildStatus(
        id=node.turn_id,
        agent=node.agent,
        task=headline(state.request.task) if state.request else "",
        state=where(state),
        outcome=state.ended.outcome if state.ended else None,
        steps=state.step_count,
        spent=_spent(node, now),
        children=_children(node, now),
    )


def _reported(report: ChildReport, *, is_over: bool) -> ChildStatus:
    spent = _in_time(report.spent, report.cost, report.duration) if is_over else Spent()
    return ChildStatus(
        id=report.turn_id,
        agent=report.agent,
        task=report.task,
        state=State.ENDED if is_over else State.RUNNING,
        outcome=report.outcome,
        steps=report.steps,
        spent=spent,
        children=tuple(
            _reported(child, is_over=child.outcome is not None) for child in report.children
        ),
    )
