"""The fold from facts to the state of a turn. Pure, and the only way into a transcript.

The workflow applies it as facts arrive. The client, the reports, the events and the model activity
apply the same function to the history they read, so they get the same state as the workflow.
Decisions that the workflow makes on its own (a tool that does not exist, a call with an unknown
outcome) are made here, because history does not record them. The texts are part of the digest: a
change after a release breaks the turns that run while workers of both releases share a queue.

What model calls and tool calls do is in `calls`; here is what begins, ends and directs the turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import reduce

from perdure.agents.definitions import AgentDefinition
from perdure.base import replace
from perdure.errors import InvalidRequestError
from perdure.turn import (
    call_waits,
    calls,
    carry,
    delegation,
    gates,
    handoffs,
    jobs,
    questions,
    reservations,
    steps,
    take_over,
)
from perdure.turn.continuation import Continuation
from perdure.turn.facts import (
    AgentResolved,
    ApprovalNeeded,
    BudgetAdded,
    CallFailed,
    CallFinished,
    CancelRequested,
    ChildEnded,
    ChildRead,
    ChildScheduled,
    ChildTold,
    Decided,
    Emitted,
    Folded,
    FromOutside,
    HandedOver,
    HookEnded,
    JobStopped,
    ModelAnswered,
    PartCarried,
    PolicyAnswered,
    Polled,
    Recorded,
    Resumed,
    Said,
    Scheduled,
    TaskBegan,
    ToolLost,
    ToolReturned,
    TurnContinued,
    TurnEnded,
    TurnStarted,
    Verified,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.inbox import Inbox
from perdure.turn.keys import CarryKey
from perdure.turn.ledger import Ledger
from perdure.turn.open_step import Attempts
from perdure.turn.slot import Slot, with_slot
from perdure.turn.snapshot import CarriedPart
from perdure.turn.state import CarriedOver, TurnState
from perdure.turn.task_order import TaskSoFar
from perdure.turn.waiting import Waiting
from perdure.turn.wire import TurnRequest
from perdure.values.approvals import Decision
from perdure.values.messages import UserMessage, closed
from perdure.values.tasks import opening

_Message = FromOutside | ChildTold
"""What the workflow receives by updates and signals, before everything else of a workflow task."""


def fold(facts: Iterable[Recorded], state: TurnState | None = None) -> TurnState:
    """Return the state after all of `facts`, starting from `state` or from an empty state."""
    return reduce(apply, facts, state or TurnState())


def apply(state: TurnState, fact: Recorded) -> TurnState:
    """Return the state after another fact.

    A reader's facts are folded in the order in which the workflow learned of them.

    Raises:
        TranscriptMismatchError: What was carried over from another run is not what its origin says.
    """
    if isinstance(fact, TaskBegan):
        return replace(state, task=TaskSoFar(replace(state, task=None)))
    if state.task is None or isinstance(fact, TurnContinued):
        return _applied(state, fact)
    state, task = state.task.plus(state, fact, _applied, is_message=isinstance(fact, _Message))
    return replace(state, task=task)


def _applied(state: TurnState, fact: Folded) -> TurnState:
    if state.carried.origin is not None and isinstance(fact, FromOutside):
        return _updated(state, fact)
    match fact:
        case Scheduled(CarryKey()) | CallFailed(CarryKey()) | PartCarried():
            return _of_carry(state, fact)
        case Scheduled():
            return calls.scheduled(state, fact)
        case AgentResolved() | HandedOver():
            return _agent_known(state, fact)
        case ModelAnswered():
            return calls.answered(state, fact)
        case CallFailed():
            return calls.failed(state, fact)
        case ToolReturned() | ToolLost() | ApprovalNeeded() | Verified() | Polled() | JobStopped():
            return calls.tool_ended(state, fact)
        case HookEnded() | PolicyAnswered():
            return _user_code_ended(state, fact)
        case ChildScheduled() | ChildEnded() | ChildRead() | ChildTold():
            return delegation.apply(state, fact)
        case _:
            return _of_the_turn(state, fact)


def _user_code_ended(before: TurnState, fact: HookEnded | PolicyAnswered) -> TurnState:
    state = calls.landed(before, fact.key)
    match fact:
        case HookEnded(key, error):
            return _passed(state) if key.moment == "after" and error is None else state
        case PolicyAnswered(key, ruling):
            return calls.settled(gates.ruled(state, key, ruling.verdict))


def _of_the_turn(
    state: TurnState,
    fact: TurnStarted
    | TurnContinued
    | FromOutside
    | WaitBegan
    | WaitEnded
    | CancelRequested
    | TurnEnded,
) -> TurnState:
    match fact:
        case TurnStarted(request, slot):
            return _begin(state, request, slot)
        case TurnContinued(continuation):
            return _continued(state, continuation)
        case Decided() | BudgetAdded() | Resumed() | Said() | Emitted() | CallFinished():
            return _of_a_caller(state, fact)
        case WaitBegan(calls=(_, *_)):
            return call_waits.began(state, fact)
        case WaitBegan():
            return replace(
                state,
                waiting=Waiting(
                    fact.kind,
                    fact.reason,
                    fact.pending,
                    fact.since,
                    fact.until,
                    fact.attempt,
                    fact.limit,
                ),
            )
        case WaitEnded(woken=(_, *_) as ends):
            return call_waits.woken(state, ends)
        case WaitEnded(ids):
            return calls.settled(gates.expired(replace(_pardoned(state), waiting=None), ids))
        case CancelRequested(reason):
            return replace(state, cancel_reason=reason)
        case TurnEnded():
            return replace(state, ended=fact, waiting=None)


def _of_a_caller(state: TurnState, fact: FromOutside) -> TurnState:
    match fact:
        case Decided(decision):
            return calls.settled(gates.decided(state, decision))
        case BudgetAdded():
            return _added(state, fact)
        case Resumed():
            return _pardoned(state)
        case Said():
            return _said(state, fact)
        case Emitted(event):
            return call_waits.emitted(state, event)
        case CallFinished():
            return jobs.finished(state, fact)


def _said(state: TurnState, message: Said) -> TurnState:
    """Keep a message of the user for the next model call, and deny the calls that wait.

    These are the calls that the turn has recorded as waiting: the workflow may know a message
    before an answer that history has before the message. A session that was reset may send a
    message again that the turn has read; before rules 9, it was read again.
    """
    if message.id in state.inbox.taken and state.agent is not None and state.agent.rules >= 9:
        return state
    state = replace(state, inbox=state.inbox.plus(message))
    if not message.deny_pending or state.waiting is None:
        return state
    pending = {call.call_id for call in state.waiting.pending}
    reason = UserMessage.of(message.text, parts=message.parts).text
    while asked := [place for place in state.asked.places if place[0] in pending]:
        for call_id, digest in asked:  # a server may have asked several things during a call
            decision = Decision(
                call_id=call_id, digest=digest, approve=False, reason=reason, by=message.by
            )
            state = gates.decided(state, decision)
    return calls.settled(state)


def _pardoned(state: TurnState) -> TurnState:
    """Reset the failures, because a person resumed the turn or the model has answered."""
    return replace(state, attempts=state.attempts.pardon())


def _passed(state: TurnState) -> TurnState:
    """Return the state after a middleware let the last answer pass."""
    step = state.open_step
    return replace(state, open_step=replace(step, unpassed=max(step.unpassed - 1, 0)))


def _begin(state: TurnState, request: TurnRequest, slot: Slot | None) -> TurnState:
    inbox, shared = Inbox.begun_with(request.said or ()), request.shared_state
    state = replace(state, request=request, inbox=inbox, shared=shared)
    state = state.with_ledger(Ledger(request.given_budget))
    if request.origin is not None:
        return take_over.begin_after(state, request.origin)
    context = with_slot(request.context, request.schedule, slot)
    for message in (*closed(request.history), opening(request.task, context)):
        state = steps.append(state, message)
    transcript, tokens = state.transcript, state.tokens
    return replace(
        state,
        transcript=replace(transcript, opening=len(transcript.messages) - 1),
        tokens=replace(tokens, asked_bound=tokens.bound),
    )


def _continued(state: TurnState, continuation: Continuation) -> TurnState:
    """Begin a later run of the turn.

    A reader that has read the run before has its state, and keeps its messages and steps.
    """
    origin, past = continuation.continues, state.as_past
    carried = CarriedOver(
        origin=origin,
        first_run=continuation.first_run,
        steps=origin.steps,
        recorded=origin.steps,
        past=past,
    )
    begun = TurnState(request=continuation.request, carried=carried).with_ledger(
        continuation.ledger
    )
    if past is None:
        return begun
    whole_state = carry.state_of(state)
    return take_over.apply(replace(begun, carried=replace(carried, is_ahead=True)), whole_state)


def _updated(state: TurnState, fact: FromOutside) -> TurnState:
    """Fold an update in a later run of the turn."""
    if state.awaits_parts:
        waiting = (*state.carried.waiting_facts, fact)
        return replace(state, carried=replace(state.carried, waiting_facts=waiting))
    return _late(state, fact) if state.carried.is_ahead else _of_the_turn(state, fact)


def _of_carry(state: TurnState, fact: Scheduled | CallFailed | PartCarried) -> TurnState:
    """Fold an activity that carries over a part of another run's state.

    A reader that has read that run knows the state already.
    """
    if isinstance(fact, Scheduled):
        in_flight = state.with_begun(fact.key)
    else:
        in_flight = state.without(fact.key)
    state = replace(state, in_flight=in_flight)
    if state.carried.is_ahead:
        goes_on = not isinstance(fact, PartCarried) or fact.part.number < fact.part.count
        return replace(state, carried=replace(state.carried, is_ahead=goes_on))
    if not state.awaits_parts and not state.transcript.absent:
        return state
    match fact:
        case CallFailed():
            waiting = _after_retry(state) or Waiting("retry", fact.error.message)
            return replace(state, attempts=state.attempts.plus(fact), waiting=waiting)
        case PartCarried(_, part):
            attempts = state.attempts.without_carries()
            return _carried(replace(state, attempts=attempts, waiting=_after_retry(state)), part)
        case _:
            return replace(state, waiting=_after_retry(state))


def _after_retry(state: TurnState) -> Waiting | None:
    """Return the wait of the turn, unless it is the pause before another attempt."""
    return None if state.waiting is not None and state.waiting.kind == "retry" else state.waiting


def _carried(state: TurnState, part: CarriedPart) -> TurnState:
    """Take over another part of an earlier run's state; the last part completes it."""
    parts = (*state.carried.parts, part)
    carried = replace(state.carried, parts=parts)
    if len(parts) < part.count:
        return replace(state, carried=carried)
    carried = replace(carried, parts=(), waiting_facts=())
    facts = state.carried.waiting_facts
    return reduce(_late, facts, take_over.apply(replace(state, carried=carried), carry.join(parts)))


def _late(state: TurnState, fact: FromOutside) -> TurnState:
    """Apply an update that came in while the state was carried over.

    It is refused where the run before would have refused it.
    """
    if _is_refused(state, fact):
        refused = (*state.carried.refused, fact)
        return replace(state, carried=replace(state.carried, refused=refused))
    return _of_the_turn(state, fact)


def _is_refused(state: TurnState, fact: FromOutside) -> bool:
    match fact:
        case Decided(decision):
            waiting = state.waiting.pending if state.waiting else ()
            pending_calls = {(pending.call_id, pending.digest) for pending in waiting}
            place = (decision.call_id, decision.digest)
            is_open = place in state.asked.places and place in pending_calls
            return not is_open or not questions.fits(state, decision)
        case Resumed():
            return not state.can_be_resumed
        case CallFinished():
            return not jobs.fits(state, fact)
        case _:
            return False


def _agent_known(state: TurnState, fact: AgentResolved | HandedOver) -> TurnState:
    if isinstance(fact, HandedOver):
        return handoffs.apply(state, fact)
    return _resolved(calls.landed(state, fact.key), fact.agent)


def _resolved(state: TurnState, agent: AgentDefinition) -> TurnState:
    accounts = state.accounts
    turn_budget = accounts.ledger.budget
    both = (
        turn_budget.within(agent.budget)
        if turn_budget and (state.lineage or (state.request and state.request.session))
        else turn_budget.over(agent.budget)
        if turn_budget
        else agent.budget
    )
    account = state.request.account if state.request else None
    if account is not None:
        both = account.within(both)
    ledger = replace(accounts.ledger, budget=both)
    state = replace(
        state,
        agent=agent,
        handoffs=handoffs.at_start(state, agent),
        attempts=Attempts(),
        accounts=replace(accounts, ledger=ledger, added=()),
    )
    state = replace(state, tokens=state.tokens.on(reservations.known_tokens(state)))
    return reduce(_added, accounts.added, state)


def _added(state: TurnState, added: BudgetAdded) -> TurnState:
    """Raise the limits.

    Additions that arrive before the agent is known are kept until then. An invalid addition is
    ignored; its sender gets an error.
    """
    if state.agent is None:
        accounts = replace(state.accounts, added=(*state.accounts.added, added))
        return replace(state, accounts=accounts)
    with suppress(InvalidRequestError):
        return state.with_added(added)
    return state
