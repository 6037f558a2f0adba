"""The fold from facts to the state of a turn. Pure, and the only way into a transcript.

The workflow applies it as facts arrive. The client, the reports, the events and the model activity
apply the same function to the history they read, so they get the same state as the workflow.
Decisions that the workflow makes on its own (a tool that does not exist, a call with an unknown
outcome) are made here, because history does not record them. The texts are part of the digest: a
change after a release breaks the turns that run while workers of both releases share a queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import reduce

from perdure import limits
from perdure.agents.definitions import AgentDefinition, Target
from perdure.errors import InvalidRequestError, TranscriptMismatchError
from perdure.turn import (
    approvals,
    carry,
    charges,
    delegation,
    delegation_plan,
    fallback,
    gates,
    guards,
    handoffs,
    reservations,
    steps,
)
from perdure.turn.carry import Carried
from perdure.turn.context_window import NO_CUT
from perdure.turn.continuation import Continuation
from perdure.turn.facts import (
    AgentResolved,
    ApprovalNeeded,
    BudgetAdded,
    CallFailed,
    CancelRequested,
    ChildEnded,
    ChildRead,
    ChildScheduled,
    ChildTold,
    Decided,
    HandedOver,
    HookEnded,
    ModelAnswered,
    PartCarried,
    PolicyAnswered,
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
    WaitBegan,
    WaitEnded,
)
from perdure.turn.inbox import Inbox
from perdure.turn.keys import CarryKey, HandoffKey, Key, ModelKey, PolicyKey, ToolKey
from perdure.turn.ledger import Bill, Ledger
from perdure.turn.open_step import Attempts, OpenCall, OpenStep
from perdure.turn.slot import Slot, with_slot
from perdure.turn.snapshot import CarriedPart
from perdure.turn.state import Accounts, CarriedOver, TurnState
from perdure.turn.task_order import TaskSoFar
from perdure.turn.transcript import TokenCount
from perdure.turn.waiting import PROVIDER, Waiting
from perdure.turn.wire import TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision
from perdure.values.budgets import ONE_TOOL_CALL
from perdure.values.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    closed,
    with_unique_ids,
)
from perdure.values.reports import StopReason
from perdure.values.tasks import opening

_Outside = Decided | BudgetAdded | Resumed | Said
"""The updates of callers. A run that still takes over a state applies them afterwards."""

_Message = _Outside | ChildTold
"""What the workflow receives by updates and signals, before everything else of a workflow task."""


def fold(facts: Iterable[Recorded], state: TurnState | None = None) -> TurnState:
    """Return the state after all of `facts`, starting from `state` or from an empty state."""
    return reduce(apply, facts, state or TurnState())


def apply(state: TurnState, fact: Recorded) -> TurnState:
    """Return the state after one more fact.

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


def _applied(state: TurnState, fact: Recorded) -> TurnState:
    if state.carried.origin is not None and isinstance(fact, _Outside):
        return _updated(state, fact)
    match fact:
        case Scheduled(CarryKey()) | CallFailed(CarryKey()) | PartCarried():
            return _of_carry(state, fact)
        case Scheduled():
            return _scheduled(state, fact)
        case AgentResolved() | HandedOver():
            return _agent_known(state, fact)
        case ModelAnswered(key, answer):
            return _answered(state, key, answer, fallback.target_of(state, key))
        case CallFailed():
            return _failed(state, fact)
        case ToolReturned(key) | ToolLost(key) | ApprovalNeeded(key):
            ledger, key_text = state.accounts.ledger, str(key)
            ledger = (
                ledger.release(key_text)
                if isinstance(fact, ApprovalNeeded)
                else ledger.charge(key_text)
            )
            state = replace(
                state, in_flight=state.without(key), accounts=replace(state.accounts, ledger=ledger)
            )
            return _tool_ended(state, fact) if steps.is_open(state, key) else state
        case HookEnded() | PolicyAnswered():
            return _user_code_ended(state, fact)
        case ChildScheduled() | ChildEnded() | ChildRead() | ChildTold():
            return delegation.apply(state, fact)
        case _:
            return _of_the_turn(state, fact)


def _user_code_ended(before: TurnState, fact: HookEnded | PolicyAnswered) -> TurnState:
    state = _landed(before, fact.key)
    match fact:
        case HookEnded(key, error):
            return _passed(state) if key.moment == "after" and error is None else state
        case PolicyAnswered(key, ruling):
            return _settled(gates.ruled(state, key, ruling.verdict))


def _of_the_turn(
    state: TurnState,
    fact: TurnStarted
    | TurnContinued
    | _Outside
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
        case Decided() | BudgetAdded() | Resumed() | Said():
            return _of_a_caller(state, fact)
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
        case WaitEnded(ids):
            return _settled(gates.expired(replace(_pardoned(state), waiting=None), ids))
        case CancelRequested(reason):
            return replace(state, cancel_reason=reason)
        case TurnEnded():
            return replace(state, ended=fact, waiting=None)


def _of_a_caller(state: TurnState, fact: _Outside) -> TurnState:
    match fact:
        case Decided(decision):
            return _settled(gates.decided(state, decision))
        case BudgetAdded():
            return _added(state, fact)
        case Resumed():
            return _pardoned(state)
        case Said():
            return _said(state, fact)


def _said(state: TurnState, message: Said) -> TurnState:
    """Keep a message of the user for the next model call, and deny the calls that wait.

    These are the ones that the turn has recorded as waiting: the workflow may know a message before
    an answer that history has before the message.
    """
    state = replace(state, inbox=state.inbox.plus(message))
    if not message.deny_pending or state.waiting is None:
        return state
    pending = {call.call_id for call in state.waiting.pending}
    for call, gate in state.asked.calls:
        if call.id not in pending:
            continue
        decision = Decision(
            call_id=call.id,
            digest=approvals.digest_of(call, gate.reason),
            approve=False,
            reason=message.text,
            by=message.by,
        )
        state = gates.decided(state, decision)
    return _settled(state)


def _pardoned(state: TurnState) -> TurnState:
    """Reset the failures, because a person resumed the turn or the model has answered."""
    return replace(state, attempts=state.attempts.pardon())


def _passed(state: TurnState) -> TurnState:
    """Return the state after a middleware let the last answer pass."""
    step = state.open_step
    return replace(state, open_step=replace(step, unpassed=max(step.unpassed - 1, 0)))


def _waiting_on(state: TurnState, otherwise: Waiting | None) -> Waiting | None:
    """Return the wait for a provider, which lasts until a model answers, or else `otherwise`."""
    return (
        state.waiting if state.waiting is not None and state.waiting.kind == PROVIDER else otherwise
    )


def _begin(state: TurnState, request: TurnRequest, slot: Slot | None) -> TurnState:
    state = replace(state, request=request, inbox=Inbox(request.said or ()))
    state = state.with_ledger(Ledger(request.given_budget))
    if request.origin is not None:
        return carry.begin_after(state, request.origin)
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
    return _taken_over(replace(begun, carried=replace(carried, is_ahead=True)), whole_state)


def _updated(state: TurnState, fact: _Outside) -> TurnState:
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
    """Return the wait of the turn, unless it is one before another attempt."""
    return None if state.waiting is not None and state.waiting.kind == "retry" else state.waiting


def _carried(state: TurnState, part: CarriedPart) -> TurnState:
    """Take over one more part of another run's state; the last one completes it."""
    parts = (*state.carried.parts, part)
    carried = replace(state.carried, parts=parts)
    if len(parts) < part.count:
        return replace(state, carried=carried)
    carried = replace(carried, parts=(), waiting_facts=())
    facts = state.carried.waiting_facts
    return reduce(_late, facts, _taken_over(replace(state, carried=carried), carry.join(parts)))


def _taken_over(state: TurnState, taken: Carried) -> TurnState:
    """Take over the state of another run.

    Raises:
        TranscriptMismatchError: It is not what the origin says.
    """
    origin = state.origin
    assert origin is not None
    if taken.digest != origin.digest:
        raise TranscriptMismatchError(
            f"the state carried over from {origin.turn_id!r} has the digest {taken.digest[:16]},"
            f" and not {origin.digest[:16]}, as its run {origin.run_id} recorded; nothing was sent"
        )
    if state.transcript.absent:
        return carry.complete(state, taken.messages)
    if taken.snapshot is None:
        return carry.begin(state, taken, origin.say)
    return carry.restore(state, taken)


def _late(state: TurnState, fact: _Outside) -> TurnState:
    """Apply an update that came in while the state was carried over.

    It is refused where the run before would have refused it.
    """
    if _is_refused(state, fact):
        refused = (*state.carried.refused, fact)
        return replace(state, carried=replace(state.carried, refused=refused))
    return _of_the_turn(state, fact)


def _is_refused(state: TurnState, fact: _Outside) -> bool:
    match fact:
        case Decided(decision):
            waiting = state.waiting.pending if state.waiting else ()
            pending_calls = {(pending.call_id, pending.digest) for pending in waiting}
            is_open = any(call.id == decision.call_id for call, _ in state.asked.calls)
            return not is_open or (decision.call_id, decision.digest) not in pending_calls
        case Resumed():
            return not state.can_be_resumed
        case _:
            return False


def _agent_known(state: TurnState, fact: AgentResolved | HandedOver) -> TurnState:
    if isinstance(fact, HandedOver):
        return handoffs.apply(state, fact)
    return _resolved(_landed(state, fact.key), fact.agent)


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


def _scheduled(state: TurnState, fact: Scheduled) -> TurnState:
    """Reserve the most that a call may cost.

    The budget was checked before: history records that the call was made.
    """
    key = fact.key
    call, state = fact.call, ready_for(state, key)
    accounts, ledger, model = state.accounts, state.accounts.ledger, ""
    attempts, transcript, tokens = state.attempts, state.transcript, state.tokens
    if isinstance(key, ModelKey) and state.agent is not None:
        target = state.agent.target(call.model if call else "")
        reserved = (
            reservations.for_call(state, state.agent, target).amount
            if call is None
            else reservations.of_call(state, state.agent, call)
        )
        ledger, model = ledger.hold(str(key), reserved), target.model
        attempts = attempts if call is None else attempts.of_call(call.round, call.passed)
        cut = call.cut if call else NO_CUT
        tokens = tokens.asked_with(cut, transcript.messages)
        transcript = transcript.with_cut(model, cut)
    elif isinstance(key, ToolKey):
        ledger = ledger.hold(str(key), ONE_TOOL_CALL)
    accounts = replace(
        accounts, ledger=ledger, model_calls=accounts.model_calls + isinstance(key, ModelKey)
    )
    return replace(
        state,
        transcript=transcript,
        tokens=tokens,
        attempts=attempts,
        accounts=accounts,
        in_flight=state.with_begun(key, model),
        waiting=_waiting_on(state, None),
    )


def ready_for(state: TurnState, key: Key) -> TurnState:
    """Return the state for the call with this key.

    The model reads the messages of the user. Before a last answer, for which the budget is kept, it
    reads none; every call without a result gets one, and a message announces the end.
    """
    if not isinstance(key, ModelKey) or state.finishing:
        return state
    if not key.is_last:
        return _with_read(state)
    if state.open_step.calls:
        calls = tuple(
            open_call
            if open_call.result
            else replace(open_call, result=steps.not_run(open_call.call))
            for open_call in state.open_step.calls
        )
        state = steps.settle(
            replace(state, open_step=replace(state.open_step, calls=calls)), state.step_count + 1
        )
    state = steps.append(state, reservations.LAST_WORDS)
    return replace(
        state, finishing=True, open_step=replace(state.open_step, answer=None), attempts=Attempts()
    )


def _with_read(state: TurnState) -> TurnState:
    """Append the unread messages of the user. Calls that were not run get a result before them."""
    inbox = state.inbox
    if not inbox.unread:
        return state
    limit = state.max_iterations
    grants = limit is not None and state.step_count >= limit
    last = state.transcript.messages[-1]
    unanswered = closed((last,))[1:] if isinstance(last, AssistantMessage) else ()
    for message in (*unanswered, *inbox.unread):
        state = steps.append(state, message)
    attempts = state.attempts.interrupted() if inbox.interrupts else state.attempts
    return replace(
        state,
        inbox=inbox.emptied(grants=grants),
        open_step=replace(state.open_step, answer=None),
        attempts=attempts,
    )


def _failed(before: TurnState, fact: CallFailed) -> TurnState:
    if isinstance(fact.key, HandoffKey):
        return handoffs.failed(before, fact, fact.key)
    target = fallback.target_of(before, fact.key) if isinstance(fact.key, ModelKey) else None
    state = _landed(before, fact.key)
    if target is not None:
        is_sent = not fallback.is_skip(fact) and not _is_unsent(before, fact)
        accounts = _after_failure(state.accounts, fact, target, is_sent=is_sent)
        state = replace(state, accounts=accounts)
    if _is_late(state, fact.key):
        return state
    attempts = state.attempts.plus(replace(fact, model=target.model if target else ""))
    waiting = _waiting_on(state, Waiting("retry", fact.error.message))
    return replace(state, attempts=attempts, waiting=waiting)


def _after_failure(
    accounts: Accounts, fact: CallFailed, target: Target, *, is_sent: bool
) -> Accounts:
    """Book a failed model call; one that was not sent costs nothing and does not count."""
    if not is_sent:
        ledger = accounts.ledger.release(str(fact.key))
        return replace(accounts, ledger=ledger, model_calls=accounts.model_calls - 1)
    ledger = charges.settle_failure(accounts.ledger, fact, target.price)
    return replace(accounts, ledger=ledger, unpriced=accounts.unpriced or target.price is None)


def _is_unsent(state: TurnState, fact: CallFailed) -> bool:
    """Return whether the request did not reach a server.

    In a turn of an earlier release, it counts as a call nevertheless.
    """
    return (
        state.agent is not None
        and state.agent.model_retry is not None
        and fact.error.context.get("sent") is False
    )


def _landed(state: TurnState, key: Key) -> TurnState:
    return replace(state, in_flight=state.without(key))


def _is_late(state: TurnState, key: Key) -> bool:
    """Return whether this ends a model or policy call that was abandoned for the last answer."""
    return state.finishing and (
        isinstance(key, PolicyKey) or (isinstance(key, ModelKey) and not key.is_last)
    )


def _answered(
    before: TurnState, key: ModelKey, answer: ModelAnswer, target: Target | None
) -> TurnState:
    price = target.price if target else None
    bill = charges.of_answer(before.accounts.ledger, key, answer, price)
    state = _charged(before, key, answer, bill, is_priced=price is not None)
    if _is_late(state, key):
        return state
    message = with_unique_ids(answer.message, state.transcript.call_ids, f"call_{key.step}")
    model = answer.model or (target.name if target else "")
    answer = answer.model_copy(update={"message": message, "model": model})
    is_final = state.finishing or not runs_tools(answer)
    state = replace(
        state,
        tokens=_tokens_after(state, answer, bill, target),
        open_step=_opened_step(state, answer, bill, is_final=is_final),
        attempts=Attempts(),
    )
    state = steps.append(state, message)
    if is_final:
        return _objected(steps.close(state, key.step), answer)
    if state.agent is not None and guards.violation(state.agent, message.calls):
        return state
    return _settled(steps.settle(state, key.step))


def _charged(
    state: TurnState, key: ModelKey, answer: ModelAnswer, bill: Bill, *, is_priced: bool
) -> TurnState:
    """Book an answer, which is no longer in flight."""
    accounts = replace(
        state.accounts,
        ledger=state.accounts.ledger.settle(str(key), bill.amount),
        usage=state.accounts.usage + answer.usage,
        unpriced=state.accounts.unpriced or not is_priced,
    )
    return replace(state, accounts=accounts, in_flight=state.without(key))


def _tokens_after(
    state: TurnState, answer: ModelAnswer, bill: Bill, target: Target | None
) -> TokenCount:
    """Return the estimate of the next call, corrected by what the model has counted."""
    if target is None or state.finishing or not bill.is_told:
        return state.tokens
    cut = state.transcript.cut(target.model)
    return state.tokens.reported(answer.usage.input_tokens, target.model, cut)


def _opened_step(state: TurnState, answer: ModelAnswer, bill: Bill, *, is_final: bool) -> OpenStep:
    """Return the open step after an answer. A final answer has checks in place of calls."""
    checks = state.agent.answer_checks if state.agent else 0
    return OpenStep(
        answer=answer,
        calls=() if is_final else _opened(state, answer.message.calls),
        objections=state.open_step.objections + 1 if answer.objection else 0,
        tried=fallback.tried(state),
        bill=bill,
        unpassed=checks if is_final else 0,
    )


def _settled(state: TurnState) -> TurnState:
    """Give a result to every open call of the turn's own tools that cannot be carried out."""
    return delegation_plan.settle(handoffs.settle(state))


def _opened(state: TurnState, calls: tuple[ToolCall, ...]) -> tuple[OpenCall, ...]:
    """Return the open calls of an answer.

    If this turn does not allow one of them, none has a result or a gate.
    """
    if state.agent is not None and guards.violation(state.agent, calls):
        return tuple(map(OpenCall, calls))
    beside = handoffs.refused_beside(state.agent, calls)
    return tuple(
        (
            OpenCall(call, result=beside[index])
            if index in beside
            else OpenCall(call, gates.gate_of(state, call), steps.known_result(state.agent, call))
        )
        for index, call in enumerate(calls)
    )


def _objected(state: TurnState, answer: ModelAnswer) -> TurnState:
    """Append the objection to an answer, if the model is asked again.

    Calls in the answer were not run; the objection is the result of each.
    """
    if not asks_again(state):
        return state
    calls, objection = answer.message.calls, answer.objection
    results = tuple(
        ToolResult(call_id=call.id, name=call.name, content=objection, is_error=True)
        for call in calls
    )
    return steps.append(
        state, ToolMessage(results=results) if results else UserMessage.of(objection)
    )


def reads_on(state: TurnState) -> bool:
    """Return whether the turn goes on after an answer, because a message of the user is unread."""
    answer = state.open_step.answer
    if answer is None or answer.objection or answer.stop is StopReason.REFUSED:
        return False
    return bool(state.inbox.unread) and not state.finishing


def asks_again(state: TurnState) -> bool:
    """Return whether the last answer was objected to and the model is asked again.

    An answer that was cut off is not requested again, because it would be cut off again.
    """
    step = state.open_step
    if step.answer is None or not step.answer.objection or state.finishing:
        return False
    return step.objections <= limits.OUTPUT_REASKS and step.answer.stop is not StopReason.MAX_TOKENS


def runs_tools(answer: ModelAnswer) -> bool:
    """Return whether the calls of an answer are run.

    They are not run after a stop sequence, or if the answer was cut off, declined or objected to.
    """
    return (
        bool(answer.message.calls)
        and not answer.objection
        and answer.stop in (StopReason.TOOL_CALLS, StopReason.END, StopReason.OTHER)
    )


def _tool_ended(state: TurnState, fact: ToolReturned | ToolLost | ApprovalNeeded) -> TurnState:
    if isinstance(fact, ApprovalNeeded):
        return gates.asked_again(state, fact)
    if isinstance(fact, ToolReturned):
        output = fact.output
        return steps.give(state, fact.key, output.content, output.is_error, output.media)
    broken = fact.error if state.agent is not None and state.agent.rules >= 1 else None
    step = replace(state.open_step, broken=state.open_step.broken or broken)
    return steps.lose(replace(state, open_step=step), fact.key, fact.loss, fact.message)
