"""What model calls and tool calls do to the state of a turn: they begin, end or fail. Pure.

This is the half of the fold that books what a call costs, and that opens and closes steps.
"""

from __future__ import annotations

from perdure import limits
from perdure.agents.definitions import Target
from perdure.base import replace
from perdure.errors import TurnCancelledError
from perdure.turn import (
    charges,
    delegation_plan,
    effects,
    fallback,
    gates,
    guards,
    handoffs,
    inquiries,
    jobs,
    new_tools,
    reservations,
    sharing,
    steps,
)
from perdure.turn.context_window import NO_CUT
from perdure.turn.facts import (
    ApprovalNeeded,
    CallFailed,
    JobStopped,
    ModelAnswered,
    Polled,
    Scheduled,
    ToolLost,
    ToolReturned,
    Verified,
)
from perdure.turn.keys import HandoffKey, Key, ModelKey, PolicyKey, PollKey, ToolKey
from perdure.turn.ledger import Bill
from perdure.turn.open_step import Attempts, OpenCall, OpenStep
from perdure.turn.state import Accounts, TurnState
from perdure.turn.transcript import TokenCount
from perdure.turn.waiting import PROVIDER, Waiting
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import ONE_TOOL_CALL
from perdure.values.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    ToolResult,
    UserMessage,
    closed,
    with_unique_ids,
)
from perdure.values.reports import StopReason


def scheduled(state: TurnState, fact: Scheduled) -> TurnState:
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
        waiting=state.waiting if _is_beside_people(state, key) else _waiting_on(state, None),
    )


def _is_beside_people(state: TurnState, key: Key) -> bool:
    """Return whether an activity begins while people are asked: a poll for another call."""
    return isinstance(key, PollKey) and state.waits_for_people


def ready_for(state: TurnState, key: Key) -> TurnState:
    """Return the state for the call with this key.

    The model reads the messages of the user. Before a last answer, for which the budget is kept, it
    reads none; every call without a result gets an error result, and a message announces the end.
    """
    if not isinstance(key, ModelKey) or state.finishing:
        return state
    if not key.is_last:
        return _with_read(state)
    state = jobs.with_results(state)
    if state.open_step.calls:
        calls = tuple(
            open_call
            if open_call.result
            else replace(open_call, result=steps.not_awaited(state, position))
            for position, open_call in enumerate(state.open_step.calls, 1)
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


def _waiting_on(state: TurnState, otherwise: Waiting | None) -> Waiting | None:
    """Return the wait that goes on while calls begin and fail, or else `otherwise`.

    A wait for a provider lasts until a model answers, and a wait of calls until they are woken.
    """
    waiting = state.waiting
    lasts = waiting is not None and (waiting.kind == PROVIDER or waiting.is_of_calls)
    return waiting if lasts else otherwise


def answered(before: TurnState, fact: ModelAnswered) -> TurnState:
    """Book the answer of a model, append it, and open or close a step with it.

    An answer that was abandoned for the last answer is only booked.
    """
    key, answer = fact.key, fact.answer
    target = fallback.target_of(before, key)
    price = target.price if target else None
    bill = charges.of_answer(before.accounts.ledger, key, answer, price)
    if before.request is not None and before.request.undo is not None:
        bill = charges.NO_MODEL
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
    return settled(steps.settle(state, key.step))


def _charged(
    state: TurnState, key: ModelKey, answer: ModelAnswer, bill: Bill, *, is_priced: bool
) -> TurnState:
    """Book an answer, which is not in flight any more."""
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


def _opened(state: TurnState, calls: tuple[ToolCall, ...]) -> tuple[OpenCall, ...]:
    """Return the open calls of an answer.

    If this turn does not allow one of them, none has a result or a gate.
    """
    if state.agent is not None and guards.violation(state.agent, calls):
        return tuple(map(OpenCall, calls))
    beside = handoffs.refused_beside(state.agent, calls)
    return tuple(
        OpenCall(call, result=beside[index]) if index in beside else _opened_call(state, call)
        for index, call in enumerate(calls)
    )


def _opened_call(state: TurnState, call: ToolCall) -> OpenCall:
    result = steps.known_result(state.agent, call)
    return (
        OpenCall(call, gates.gate_of(state, call))
        if result is None
        else OpenCall(call, result=result)
    )


def _objected(state: TurnState, answer: ModelAnswer) -> TurnState:
    """Append the objection to an answer, if the model is asked again.

    Calls in the answer were not run; the objection is the result of each.
    """
    if not asks_again(state):
        return state
    calls, objection = answer.message.calls, answer.objection
    results = tuple(
        ToolResult(
            call_id=call.id,
            name=call.name,
            content=objection,
            is_error=True,
            outcome=ToolOutcome.NOT_RUN,
        )
        for call in calls
    )
    return steps.append(
        state, ToolMessage(results=results) if results else UserMessage.of(objection)
    )


def settled(state: TurnState) -> TurnState:
    """Give a result to every open call of the turn's own tools that cannot be carried out."""
    return delegation_plan.settle(handoffs.settle(state))


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


def _looked_after(state: TurnState, fact: Verified | Polled | JobStopped) -> TurnState:
    """Fold the end of an activity that is about a call that was made, and costs nothing."""
    match fact:
        case Verified():
            return effects.verified(state, fact)
        case Polled():
            return jobs.polled(state, fact)
        case JobStopped():
            return jobs.stopped(state, fact)


def tool_ended(
    state: TurnState,
    fact: ToolReturned | ToolLost | ApprovalNeeded | Verified | Polled | JobStopped,
) -> TurnState:
    """Book a tool call, and give it its result if the step still waits for one."""
    if isinstance(fact, Verified | Polled | JobStopped):
        return _looked_after(state, fact)
    key, ledger = fact.key, state.accounts.ledger
    inquiry = fact.output.inquiry if isinstance(fact, ToolReturned) else None
    is_asked = isinstance(fact, ApprovalNeeded) or inquiry is not None
    ledger = ledger.release(str(key)) if is_asked else ledger.charge(str(key))
    accounts = replace(state.accounts, ledger=ledger)
    state = replace(state, in_flight=state.without(key), accounts=accounts)
    if not steps.is_open(state, key):
        return state
    if isinstance(fact, ApprovalNeeded):
        return gates.asked_again(state, fact)
    if inquiry is not None:
        return inquiries.asked(state, key, inquiry)
    if isinstance(fact, ToolReturned):
        state, fact = sharing.changed(state, fact)
        state = new_tools.offered(state, fact)
    if isinstance(fact, ToolReturned) and fact.output.handle is not None:
        return jobs.began(state, key, fact.output)
    job = state.open_step.at(key.call).job
    if job is not None and job.output is not None:  # it came before the tool failed
        return effects.returned(state, ToolReturned(key, jobs.result_of(job, job.output)))
    if isinstance(fact, ToolReturned):
        return effects.returned(state, fact)
    broken = fact.error if state.agent is not None and state.agent.rules >= 1 else None
    step = replace(state.open_step, broken=state.open_step.broken or broken)
    return effects.lost(replace(state, open_step=step), fact)


def failed(before: TurnState, fact: CallFailed) -> TurnState:
    """Keep a failure for the next attempt, and book it if it was a model call."""
    if isinstance(fact.key, HandoffKey):
        return handoffs.failed(before, fact, fact.key)
    target = fallback.target_of(before, fact.key) if isinstance(fact.key, ModelKey) else None
    state = landed(before, fact.key)
    if target is not None:
        is_sent = not fallback.is_skip(fact) and not _is_unsent(before, fact)
        accounts = _after_failure(state.accounts, fact, target, is_sent=is_sent)
        state = replace(state, accounts=accounts)
    if _is_late(state, fact.key):
        return state
    attempts = state.attempts.plus(replace(fact, model=target.model if target else ""))
    is_cancelled = fact.error.code == TurnCancelledError.code  # and so is not made again
    otherwise = None if is_cancelled else Waiting("retry", fact.error.message)
    return replace(state, attempts=attempts, waiting=_waiting_on(state, otherwise))


def _after_failure(
    accounts: Accounts, fact: CallFailed, target: Target, *, is_sent: bool
) -> Accounts:
    """Book a failed model call; a call that was not sent costs nothing and does not count."""
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


def _is_late(state: TurnState, key: Key) -> bool:
    """Return whether this ends a model or policy call that was abandoned for the last answer."""
    return state.finishing and (
        isinstance(key, PolicyKey) or (isinstance(key, ModelKey) and not key.is_last)
    )


def landed(state: TurnState, key: Key) -> TurnState:
    """Return the state without a call in flight that has ended."""
    return replace(state, in_flight=state.without(key))
