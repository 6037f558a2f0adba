"""The fold: from facts to the state of a turn. Pure, and the only way into a transcript.

The workflow applies it as facts arrive. The client, the reports, the events and the model activity
apply the same function to the history they read, so they see what the workflow saw. Whatever the
workflow decides without asking anyone (a tool that does not exist, a call whose outcome is unknown)
is decided here, because it stands in no history. Its words are part of the digest: to change one
after a release breaks the turns that run while workers of both releases share a queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Any

from pydantic_core import to_json

from perdure import limits
from perdure.agents.definitions import AgentDefinition, Target
from perdure.errors import InvalidRequestError
from perdure.turn import (
    boundary,
    charges,
    delegation,
    delegation_plan,
    fallback,
    gates,
    reservations,
    steps,
)
from perdure.turn.approvals import OPEN
from perdure.turn.context_window import NO_CUT, Cut, left_out
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
    Fact,
    HookEnded,
    Key,
    ModelAnswered,
    PolicyAnswered,
    Resumed,
    Scheduled,
    ToolLost,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.ledger import Ledger
from perdure.turn.state import PROVIDER, TurnState, Waiting
from perdure.turn.wire import TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import ONE_TOOL_CALL
from perdure.values.messages import ToolMessage, ToolResult, UserMessage, closed, with_unique_ids
from perdure.values.prices import REQUEST_TOKENS
from perdure.values.reports import StopReason
from perdure.values.tasks import opening

_NO_FAILURES: dict[str, Any] = {
    "failures": (),
    "pardoned": 0,
    "rounds": 0,
    "round_at": 0,
    "passed": (),
}


def fold(facts: Iterable[Fact], state: TurnState | None = None) -> TurnState:
    """The state after all of `facts`, from the beginning or from `state` on."""
    return reduce(apply, facts, state or TurnState())


def apply(state: TurnState, fact: Fact) -> TurnState:
    """The state after one more fact."""
    match fact:
        case TurnStarted(request):
            return _begin(state, request)
        case Scheduled():
            return _scheduled(state, fact)
        case AgentResolved(key, agent):
            return _resolved(_landed(state, key), agent)
        case ModelAnswered(key, answer):
            return _answered(_landed(state, key), key, answer, fallback.target_of(state, key))
        case CallFailed():
            return _failed(state, fact)
        case ToolReturned(key) | ToolLost(key) | ApprovalNeeded(key):
            ledger, own = state.ledger, str(key)
            state = replace(
                _landed(state, key),
                ledger=(
                    ledger.release(own) if isinstance(fact, ApprovalNeeded) else ledger.charge(own)
                ),
            )
            return _tool_ended(state, fact) if steps.is_open(state, key) else state
        case HookEnded(key, error):
            passes = key.hook == "after" and error is None
            return replace(_landed(state, key), unpassed=max(state.unpassed - passes, 0))
        case PolicyAnswered(key, ruling):
            return delegation_plan.settle(gates.ruled(_landed(state, key), key, ruling.verdict))
        case ChildScheduled() | ChildEnded() | ChildRead() | ChildTold():
            return delegation.apply(state, fact)
        case _:
            return _from_outside(state, fact)


def _from_outside(
    state: TurnState,
    fact: Decided | BudgetAdded | Resumed | WaitBegan | WaitEnded | CancelRequested | TurnEnded,
) -> TurnState:
    match fact:
        case Decided(decision):
            return delegation_plan.settle(gates.decided(state, decision))
        case BudgetAdded():
            return _added(state, fact)
        case Resumed():
            return _pardoned(state)
        case WaitBegan():
            return replace(
                state,
                waiting=Waiting(
                    fact.kind, fact.reason, fact.pending, fact.since, fact.until, fact.attempt
                ),
            )
        case WaitEnded(ids):
            return delegation_plan.settle(
                gates.expired(replace(_pardoned(state), waiting=None), ids)
            )
        case CancelRequested(reason):
            return replace(state, cancel_reason=reason)
        case TurnEnded():
            return replace(state, ended=fact, waiting=None)


def _pardoned(state: TurnState) -> TurnState:
    """What failed so far does not count: a person lets the turn go on, or the model has answered."""
    return replace(state, pardoned=len(state.failures), rounds=0, round_at=0)


def _waiting_on(state: TurnState, otherwise: Waiting | None) -> Waiting | None:
    """A wait for a provider lasts until a model answers, through the attempts."""
    return (
        state.waiting if state.waiting is not None and state.waiting.kind == PROVIDER else otherwise
    )


def _begin(state: TurnState, request: TurnRequest) -> TurnState:
    state = replace(state, request=request, ledger=Ledger(request.given_budget))
    for message in (*closed(request.history), opening(request.task, request.context)):
        state = steps.append(state, message)
    return replace(state, asked_bound=state.bound, opening=len(state.messages) - 1)


def _resolved(state: TurnState, agent: AgentDefinition) -> TurnState:
    known = reservations.base_tokens(agent, state.output_schema(agent)) + len(
        to_json(state.options(agent).extra)
    )
    given, early = state.ledger.budget, state.added
    both = (
        given.within(agent.budget)
        if given and state.lineage
        else given.over(agent.budget)
        if given
        else agent.budget
    )
    ledger = replace(state.ledger, budget=both)
    state = replace(
        state,
        agent=agent,
        failures=(),
        pardoned=0,
        ledger=ledger,
        added=(),
        base_tokens=known,
        estimate=state.estimate.on(known),
    )
    return reduce(_added, early, state)


def _added(state: TurnState, added: BudgetAdded) -> TurnState:
    """Raise the limits.

    What came before the agent was known is kept until then. What does not fit changes nothing, as
    its sender is told.
    """
    if state.agent is None:
        return replace(state, added=(*state.added, added))
    with suppress(InvalidRequestError):
        return state.with_added(added)
    return state


def _scheduled(state: TurnState, fact: Scheduled) -> TurnState:
    """Reserve what the call may cost.

    Whether it fits was asked before; history says that it was made.
    """
    key = fact.key
    call, state = fact.call, ready_for(state, key)
    ledger = state.ledger
    if key.is_model_call and state.agent is not None:
        asked = state.agent.target(call.model if call else "")
        reserved = (
            reservations.for_call(state, state.agent, asked).amount
            if call is None
            else reservations.of_call(state, state.agent, call)
        )
        ledger, passed = (
            ledger.hold(str(key), reserved),
            (call.passed if call else ()) or state.passed,
        )
        state = _cut(state, asked.model, call.cut if call else NO_CUT)
        state = replace(state, calling=(*state.calling, (key, asked.model)), passed=passed)
        if call is not None and call.round > state.rounds:
            state = replace(state, rounds=call.round, round_at=len(state.failures))
    elif key.is_tool_call:
        ledger = ledger.hold(str(key), ONE_TOOL_CALL)
    model_calls = state.model_calls + key.is_model_call
    return replace(
        state,
        in_flight=state.with_begun(key),
        model_calls=model_calls,
        ledger=ledger,
        waiting=_waiting_on(state, None),
    )


def _cut(state: TurnState, model: str, cut: Cut) -> TurnState:
    """This much is not sent to this model, from now on.

    The same cut leaves out the same: what it is counted from never changes.
    """
    if cut != state.cut(model):
        state = replace(
            state,
            cuts=(*((name, other) for name, other in state.cuts if name != model), (model, cut)),
        )
    if cut != state.last_cut:
        state = replace(state, last_cut=cut, left_out=left_out(state.messages, cut))
    return state


def ready_for(state: TurnState, key: Key) -> TurnState:
    """The state as the call of this key sees it.

    Before a last answer, every call without a result gets one, and the end is announced.
    """
    if not key.is_last or state.finishing:
        return state
    if state.results:
        given = (
            result
            or ToolResult(call_id=call.id, name=call.name, content=steps.NOT_RUN, is_error=True)
            for call, result in zip(state.calls, state.results, strict=True)
        )
        state = steps.settle(replace(state, results=tuple(given)), len(state.steps) + 1)
    return replace(
        steps.append(state, reservations.LAST_WORDS), finishing=True, answer=None, **_NO_FAILURES
    )


def _failed(before: TurnState, fact: CallFailed) -> TurnState:
    target = fallback.target_of(before, fact.key) if fact.key.is_model_call else None
    state = _landed(before, fact.key)
    if target is not None and (fallback.is_skip(fact) or _is_unsent(before, fact)):
        state = replace(
            state, ledger=state.ledger.release(str(fact.key)), model_calls=state.model_calls - 1
        )
    elif target is not None:
        ledger = charges.settle_failure(state.ledger, fact, target.price)
        state = replace(state, ledger=ledger, unpriced=state.unpriced or target.price is None)
    if _is_late(state, fact.key):
        return state
    failure = replace(fact, model=target.model if target else "")
    return replace(
        state,
        failures=(*state.failures, failure),
        waiting=_waiting_on(state, Waiting("retry", fact.error.message)),
    )


def _is_unsent(state: TurnState, fact: CallFailed) -> bool:
    """Whether no server got the request.

    In a turn of an earlier release it is counted as a call all the same.
    """
    return (
        state.agent is not None
        and state.agent.model_retry is not None
        and fact.error.context.get("sent") is False
    )


def _landed(state: TurnState, key: Key) -> TurnState:
    calling = tuple(one for one in state.calling if one[0] != key)
    return replace(state, in_flight=state.without(key), calling=calling)


def _is_late(state: TurnState, key: Key) -> bool:
    """Whether a call of the model or of a policy ends that was given up, because the last answer is asked for by now."""
    return state.finishing and not key.is_last and (key.is_model_call or key.is_policy)


def _answered(state: TurnState, key: Key, answer: ModelAnswer, target: Target | None) -> TurnState:
    bill = charges.of_answer(state.ledger, key, answer, target.price if target else None)
    state = replace(state, unpriced=state.unpriced or target is None or target.price is None)
    if _is_late(state, key):
        return replace(
            state,
            ledger=state.ledger.settle(str(key), bill.amount),
            usage=state.usage + answer.usage,
        )
    message = with_unique_ids(answer.message, state.call_ids, f"call_{key.step}")
    answer = answer.model_copy(
        update={"message": message, "model": answer.model or (target.name if target else "")}
    )
    objections = state.objections + 1 if answer.objection else 0
    if bill.is_told and not state.finishing and target is not None:
        tokens = answer.usage.input_tokens + REQUEST_TOKENS
        cut = state.cut(target.model)
        counted = state.estimate.counted(answer.usage.input_tokens, cut.tokens)
        state = replace(
            state,
            known_tokens=tokens,
            known_at=state.bound,
            known_by=target.model,
            known_cut=cut,
            estimate=counted,
        )
    tried = fallback.tried(state)
    state = replace(
        state,
        answer=answer,
        tried=tried,
        bill=bill,
        objections=objections,
        calls=(),
        results=(),
        usage=state.usage + answer.usage,
    )
    is_final = state.finishing or not runs_tools(answer)
    unpassed = (
        sum(stage.has_after for stage in state.agent.middleware) if state.agent and is_final else 0
    )
    state = replace(state, unpassed=unpassed, **_NO_FAILURES)
    state = steps.append(replace(state, ledger=state.ledger.settle(str(key), bill.amount)), message)
    if is_final:
        return _objected(steps.close(state, key.step), answer)
    if state.agent is not None and boundary.violation(state.agent, message.calls):
        return replace(
            state,
            calls=message.calls,
            results=tuple(None for _ in message.calls),
            gates=tuple(OPEN for _ in message.calls),
        )
    state = replace(
        state,
        calls=message.calls,
        gates=tuple(gates.gate_of(state, call) for call in message.calls),
    )
    state = replace(
        state, results=tuple(steps.known_result(state.agent, call) for call in state.calls)
    )
    return delegation_plan.settle(steps.settle(state, key.step))


def _objected(state: TurnState, answer: ModelAnswer) -> TurnState:
    """Tell the model what is wrong with its answer, if it is asked again.

    Calls in it were not run, and each has a result that says so.
    """
    if not asks_again(state):
        return state
    calls, said = answer.message.calls, answer.objection
    results = tuple(
        ToolResult(call_id=call.id, name=call.name, content=said, is_error=True) for call in calls
    )
    return steps.append(state, ToolMessage(results=results) if results else UserMessage.of(said))


def asks_again(state: TurnState) -> bool:
    """Whether the last answer was objected to and the model gets another chance.

    One that was cut off would be cut off again.
    """
    if state.answer is None or not state.answer.objection or state.finishing:
        return False
    return (
        state.objections <= limits.OUTPUT_REASKS and state.answer.stop is not StopReason.MAX_TOKENS
    )


def runs_tools(answer: ModelAnswer) -> bool:
    """Whether the calls of an answer are run.

    Not after a stop sequence, and not where the answer was cut off or declined.
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
        return steps.give(state, fact.key, fact.output.content, fact.output.is_error)
    broken = fact.error if state.agent is not None and state.agent.rules >= 1 else None
    return steps.lose(
        replace(state, broken=state.broken or broken), fact.key, fact.loss, fact.message
    )
