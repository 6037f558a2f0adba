"""The effect of verdicts and decisions on the calls of a step. Pure."""

from __future__ import annotations

from datetime import datetime

from perdure import limits
from perdure.agents.policy import Allow, Deny, RequireApproval
from perdure.base import replace
from perdure.errors import PerdureError
from perdure.text import clip
from perdure.turn import approvals, effects, inquiries, questions, steps
from perdure.turn.approvals import Gate
from perdure.turn.facts import ApprovalNeeded, CallFailed
from perdure.turn.keys import PolicyKey, ToolKey
from perdure.turn.open_step import Attempts
from perdure.turn.state import TurnState
from perdure.values.approvals import Decision
from perdure.values.messages import ToolCall, ToolOutcome


def gate_of(state: TurnState, call: ToolCall) -> Gate:
    """Return the gate of a new call."""
    if state.agent is None or state.request is None or state.agent.tool(call.name) is None:
        return approvals.OPEN
    return approvals.gate_of(state.agent, state.request.task, call)


def ruled(state: TurnState, key: PolicyKey, verdict: Allow | Deny | RequireApproval) -> TurnState:
    """Return the state after a verdict of the policy about a call."""
    agent, request = state.agent, state.request
    if not steps.is_open(state, key) or agent is None or request is None:
        return state
    state = replace(state, attempts=Attempts())
    if isinstance(verdict, Deny):
        return steps.give(
            state,
            key,
            clip(approvals.denied(verdict.reason), limits.TOOL_RESULT_BYTES),
            ToolOutcome.DENIED,
        )
    gate = approvals.after_policy(agent, request.task, state.open_step.at(key.call).call, verdict)
    return _with(state, key.call, gate)


def check(state: TurnState, decision: Decision, now: datetime) -> None:
    """Refuse a decision that is late, repeated, about other arguments, or no answer.

    Raises:
        ApprovalConflictError: It is late or repeated, or not about the call that waits.
        InvalidRequestError: The answer does not fit the question, or `by` is not valid.
    """
    open_places = state.asked.places
    pending = tuple(
        approval
        for approval in (state.waiting.pending if state.waiting else ())
        if (approval.call_id, approval.digest) in open_places
    )
    earlier = earlier_decision(state, decision.call_id, decision.digest)
    approvals.check(pending, decision, now, earlier)
    questions.check_answer(state, decision)


def earlier_decision(state: TurnState, call_id: str, digest: str = "") -> Decision | None:
    """Return what people have decided about a call; None if they have not, or are asked again.

    People may be asked several things about a call. It is the decision with this digest, if there
    is one, and else the last.
    """
    decisions = decisions_about(state, call_id)
    same = [decision for decision in decisions if decision.digest == digest]
    return next(reversed(same or decisions), None)


def decisions_about(state: TurnState, call_id: str) -> list[Decision]:
    """Return what people have decided about a call, in order."""
    of_steps = (decision for step in state.steps for decision in step.decisions)
    decisions = (*of_steps, *state.open_step.decisions)
    return [decision for decision in decisions if decision.call_id == call_id]


def decided(state: TurnState, decision: Decision) -> TurnState:
    """Return the state after a person's decision about a call."""
    position = _place(state, decision.call_id)
    if position is None or not questions.fits(state, decision):
        return state
    is_question = state.open_step.at(position).gate.asks
    is_of_server = state.open_step.at(position).is_asked_by_server
    state = replace(
        state, open_step=replace(state.open_step, decisions=(*state.open_step.decisions, decision))
    )
    if state.open_step.at(position).is_settled_by_people:
        return effects.settled(state, _key(state, position), decision)
    if is_of_server:
        return questions.answered_to_server(state, _key(state, position), decision)
    if is_question:
        return questions.decided(state, _key(state, position), decision)
    gate = state.open_step.at(position).gate
    if not decision.approve:
        denied = clip(approvals.denied(decision.reason), limits.TOOL_RESULT_BYTES)
        return steps.give(
            _unedited(state, position), _key(state, position), denied, ToolOutcome.DENIED
        )
    arguments = gate.arguments if decision.arguments is None else decision.arguments
    approved = gate.model_copy(update={"status": "open", "approved": True, "arguments": arguments})
    return _with(state, position, approved)


def asked_again(state: TurnState, fact: ApprovalNeeded) -> TurnState:
    """Return the state after a deploy changed the tool of a call that was allowed to run.

    A person is asked about the call, with the arguments that it would run with.
    """
    key = fact.key
    changes = {
        "status": "asked",
        "approved": False,
        "reason": fact.reason,
        "schema_digest": fact.schema_digest,
    }
    gate = state.open_step.at(key.call).gate.model_copy(update=changes)
    # gives the next attempt another key
    failure = CallFailed(key, PerdureError(fact.reason).info())
    return replace(_with(state, key.call, gate), attempts=state.attempts.plus(failure))


def expired(state: TurnState, ids: tuple[str, ...]) -> TurnState:
    """Return the state after the approvals of these calls expired."""
    for call_id in ids:
        position = _place(state, call_id)
        if position is None:
            continue
        if state.open_step.at(position).is_settled_by_people:
            state = effects.given_up(state, _key(state, position), effects.NOBODY)
        elif state.open_step.at(position).is_asked_by_server:
            state = inquiries.expired(state, _key(state, position))
        elif state.open_step.at(position).gate.asks:
            state = questions.expired(state, _key(state, position))
        else:
            after = state.open_step.at(position).gate.expires or limits.APPROVAL_EXPIRY
            state = steps.give(
                _unedited(state, position),
                _key(state, position),
                approvals.expired(after),
                ToolOutcome.DENIED,
            )
    return state


def _unedited(state: TurnState, position: int) -> TurnState:
    """Remove a person's arguments from a call that does not run."""
    gate = state.open_step.at(position).gate
    return (
        state
        if gate.arguments is None
        else _with(state, position, gate.model_copy(update={"arguments": None}))
    )


def _place(state: TurnState, call_id: str) -> int | None:
    """Return the place of a call that waits for a person; None if no such call waits."""
    position = state.open_step.place_of(call_id)
    return position if position is not None and state.open_step.at(position).is_asked else None


def _key(state: TurnState, position: int) -> ToolKey:
    return ToolKey(state.step_count + 1, position)


def _with(state: TurnState, position: int, gate: Gate) -> TurnState:
    step = state.open_step
    return replace(state, open_step=step.with_call(position, replace(step.at(position), gate=gate)))
