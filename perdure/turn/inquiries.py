"""Questions of a server to people during a call: when they are asked, and what follows. Pure.

A question waits as one of a model does. Its answer is not the result of the call: the server gets
it, with the next poll of a job, or as the call is made once more.
"""

from __future__ import annotations

from pydantic import JsonValue

from perdure.base import replace
from perdure.errors import PerdureError
from perdure.turn.facts import CallFailed
from perdure.turn.inquiry_values import CallInquiry
from perdure.turn.keys import ToolKey
from perdure.turn.open_step import OpenCall
from perdure.turn.state import TurnState
from perdure.values.inquiries import GivenAnswers, Inquiry
from perdure.values.questions import Question

CONSENT = "accept"
"""The answer to a question without a form; to deny it is the other one."""
_TEXT = (
    "The MCP server {server!r} asks, in a call of {tool}: {text}\n\n[The answer goes to that"
    " server, and is kept in the history of the turn: give no password and no key.]"
)
_LOGIN = (
    "The MCP server {server!r} needs a login of the person for whom the turn works, in a call of"
    ' {tool}: {text}\n\n[The end of the login is the answer. "accept" lets the turn look again.]'
)
_ASKED = "the server asks people before it goes on with the call"


def asked(state: TurnState, key: ToolKey, inquiry: Inquiry) -> TurnState:
    """Return the state after a server has asked something.

    A call without a job is made again with the answers, by a run with a key of its own.
    """
    open_call = state.open_step.at(key.call)
    before = open_call.inquiry or CallInquiry(
        server=inquiry.server, number=2 if open_call.gate.approved else 1
    )
    if open_call.job is None:
        failure = CallFailed(key, PerdureError(_ASKED).info())
        state = replace(state, attempts=state.attempts.plus(failure))
        before = before.over()  # its keys are those of one round
    return with_inquiry(state, key, before.plus(inquiry))


def with_inquiry(state: TurnState, key: ToolKey, inquiry: CallInquiry) -> TurnState:
    """Return the state with these questions and answers of a call."""
    open_call = replace(state.open_step.at(key.call), inquiry=inquiry)
    return replace(state, open_step=state.open_step.with_call(key.call, open_call))


def over(state: TurnState, key: ToolKey) -> TurnState:
    """Return the state without the questions of a call: another request has other keys."""
    inquiry = state.open_step.at(key.call).inquiry
    return state if inquiry is None else with_inquiry(state, key, inquiry.over())


def answers_of(open_call: OpenCall) -> GivenAnswers:
    """Return what the server is told with the next request about a call."""
    return open_call.inquiry.of_run if open_call.inquiry else GivenAnswers()


def question_of(open_call: OpenCall) -> Question | None:
    """Return what people are asked now for the server of a call; None if nothing."""
    inquiry = open_call.inquiry
    if inquiry is None or not open_call.is_asked_by_server:
        return None
    asks = inquiry.questions[0]
    template = _TEXT if asks.login is None else _LOGIN
    text = template.format(server=inquiry.server, tool=open_call.call.name, text=asks.text)
    options = () if asks.form is not None else (CONSENT,)
    return Question(
        text=text, options=options, form=asks.form, server=inquiry.server, login=asks.login
    )


def decided(state: TurnState, key: ToolKey, answer: JsonValue) -> TurnState:
    """Return the state after a person has answered, or declined to: then `answer` is None."""
    inquiry = state.open_step.at(key.call).inquiry
    assert inquiry is not None
    content = answer if isinstance(answer, dict) else {}
    answered = inquiry.answered("decline" if answer is None else "accept", content)
    return with_inquiry(state, key, answered)


def expired(state: TurnState, key: ToolKey) -> TurnState:
    """Return the state after nobody has answered in time.

    For a job, that is its own time: it is given up. Another server learns that it gets no answer.
    """
    open_call = state.open_step.at(key.call)
    assert open_call.inquiry is not None
    if open_call.job is not None:
        return over(state, key)
    return with_inquiry(state, key, open_call.inquiry.dismissed())
