"""Questions to a person: what is asked, whether an answer fits, and the result. Pure.

A call that asks waits as one that needs approval does. A person's answer is its result; it runs on
no worker. What a server asks during a call waits in the same way, see `inquiries`.
"""

from __future__ import annotations

from pydantic_core import from_json, to_json

from perdure import errors, limits
from perdure.agents import questions
from perdure.agents.definitions import AgentDefinition
from perdure.text import clip
from perdure.turn import inquiries, steps
from perdure.turn.approvals import NOT_ANSWERED
from perdure.turn.keys import ToolKey
from perdure.turn.state import TurnState
from perdure.values.approvals import Decision
from perdure.values.budgets import ONE_TOOL_CALL
from perdure.values.messages import ToolCall, ToolOutcome
from perdure.values.questions import Question

DECLINED = f"{NOT_ANSWERED} it was declined"
UNANSWERED = f"{NOT_ANSWERED} nobody answered it within {{after}}."
DEFAULT = "\n[Nobody has answered within {after}, so this is the default.]"


def question_of(state: TurnState, call_id: str) -> Question | None:
    """Return the question of a call that waits for an answer; None for every other call."""
    position = state.open_step.place_of(call_id)
    open_call = None if position is None else state.open_step.at(position)
    if open_call is None or not open_call.is_asked:
        return None
    if not open_call.gate.asks:
        return inquiries.question_of(open_call)
    return _read(state.agent, open_call.call)


def check_answer(state: TurnState, decision: Decision) -> None:
    """Refuse an answer that does not fit the question of its call.

    Raises:
        InvalidRequestError: It does not; the message says what is wrong.
    """
    question = question_of(state, decision.call_id)
    wrong = _misfit(question, decision) if question is not None else ""
    if wrong:
        raise errors.InvalidRequestError(
            f"this does not answer the question of call {decision.call_id!r}: {wrong}",
            context={"call_id": decision.call_id},
        )


def fits(state: TurnState, decision: Decision) -> bool:
    """Return whether a decision is of the kind that its call waits for, and an answer fits it."""
    question = question_of(state, decision.call_id)
    if question is not None and question.server:
        place = (decision.call_id, decision.digest)
        return place in state.asked.places and _fits(question, decision)
    return decision.answer is None if question is None else _fits(question, decision)


def _fits(question: Question, decision: Decision) -> bool:
    if decision.answer is None:
        return not decision.approve and decision.settlement is None
    return not _misfit(question, decision)


def decided(state: TurnState, key: ToolKey, decision: Decision) -> TurnState:
    """Return the state after a person has answered a question, or declined to."""
    if decision.answer is None:
        said = f": {decision.reason}" if decision.reason else "."
        content = clip(DECLINED + said, limits.TOOL_RESULT_BYTES)
        return steps.give(state, key, content, ToolOutcome.DENIED)
    ledger = state.accounts.ledger.hold(str(key), ONE_TOOL_CALL).charge(str(key))
    content = _written(from_json(decision.answer))
    return steps.give(state.with_ledger(ledger), key, content, ToolOutcome.DONE)


def answered_to_server(state: TurnState, key: ToolKey, decision: Decision) -> TurnState:
    """Return the state after a person has answered what a server asks, or declined to."""
    answer = None if decision.answer is None else from_json(decision.answer)
    return inquiries.decided(state, key, answer)


def expired(state: TurnState, key: ToolKey) -> TurnState:
    """Return the state after nobody has answered a question in time."""
    open_call = state.open_step.at(key.call)
    question, after = _read(state.agent, open_call.call), open_call.gate.expires
    if question is None or question.default is None:
        return steps.give(state, key, UNANSWERED.format(after=after), ToolOutcome.DENIED)
    content = _written(question.default) + DEFAULT.format(after=after)
    return steps.give(state, key, content, ToolOutcome.DONE)


def _read(agent: AgentDefinition | None, call: ToolCall) -> Question | None:
    tool = agent.tool(call.name) if agent else None
    if tool is None or tool.asks is None:
        return None
    return questions.read(tool.asks, call.arguments)[0]


def _misfit(question: Question, decision: Decision) -> str:
    """Return what is wrong with an answer; empty for one that fits, and without one."""
    if decision.answer is None:
        return ""
    try:
        value = from_json(decision.answer, allow_inf_nan=False)
    except ValueError:
        return "it is no JSON"
    return questions.misfit(question, value)


def _written(answer: object) -> str:
    """Return an answer as the model reads it: a text as it is, and everything else as JSON."""
    return answer if isinstance(answer, str) else to_json(answer).decode()
