"""The thread of a run: the session that it belongs to, and the turn that it follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from perdure import errors
from perdure.clients.client import AgentClient
from perdure.clients.gateway import subjects
from perdure.clients.gateway.agui.run_input import CallDecision, InterfaceResult, Message, Wanted
from perdure.clients.gateway.ids import checked
from perdure.clients.gateway.operations import Call
from perdure.clients.gateway.past_events import past_events
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.quotas import check_sessions
from perdure.clients.sessions.handle import Session
from perdure.clients.sessions.readable import Conversation
from perdure.clients.turns.handle import Turn
from perdure.session.wire import SessionTurn
from perdure.turn.facts import Decided
from perdure.values.approvals import Decision
from perdure.values.client_tools import ClientTool


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread and the turn that a run follows.

    Attributes:
        session_id: The complete id of the session.
        turn: The turn.
        session_turn: The turn in the list of the session.
        conversation: The turns and messages of the session.
        is_new: Whether the run has said something that a turn now answers.
    """

    session_id: str
    turn: Turn[Any]
    session_turn: SessionTurn
    conversation: Conversation
    is_new: bool


async def open_thread(call: Call, thread_id: str, request: Wanted) -> Thread:
    """Return the thread of a run. A message that its session does not have is sent to it.

    Without such a message, the run follows the turn that has the message, or the last turn.

    Raises:
        RefusedError: The caller may not send a message, or sends a message with answers.
        TurnConflictError: The thread belongs to another agent.
        SessionNotFoundError: There is no such thread, and no message to begin it with.
        PerdureError: As `Session.say`.
    """
    subject = subjects.own(call.caller, request.subject)
    agent, session = _agent_of(call), _session(call, thread_id, request.message, subject)
    known = await _known(session, agent)
    if known is not None:
        await subjects.check(call.client, session.id, subject)
    session_turn = _place_of(known, request.message) if known else None
    is_new = session_turn is None
    if session_turn is None:
        if request.message is None or request.answers:
            raise _nothing_to_follow(call.caller.own(thread_id), request)
        turn_id = await _say(call, session, request.message, request.tools)
        known = await session.conversation()
        session_turn = next(turn for turn in known.turns if turn.turn_id == turn_id)
    assert known is not None
    turn = call.client.turn(session_turn.turn_id)
    return Thread(session.id, turn, session_turn, known, is_new)


def _agent_of(call: Call) -> str:
    return str(call.request.path_params["agent"])


def _session(call: Call, thread_id: str, message: Message | None, subject: str | None) -> Session:
    if message is None:
        return call.client.session(call.caller.own(thread_id))
    own_id, tenant = checked(call, thread_id), call.caller.tenant
    return call.client.session(own_id, _agent_of(call), live=True, fairness=tenant, subject=subject)


async def _known(session: Session, agent: str) -> Conversation | None:
    """Return the session as it is; None before its first message.

    Raises:
        TurnConflictError: It belongs to another agent.
    """
    try:
        known = await session.conversation()
    except errors.SessionNotFoundError:
        return None
    if known.agent != agent:
        raise errors.TurnConflictError(
            f"the thread belongs to the agent {known.agent!r}, and not to {agent!r}"
        )
    return known


def _place_of(known: Conversation, message: Message | None) -> SessionTurn | None:
    """Return the turn that was given a message, or the last turn if there is no message."""
    having = (turn for turn in known.turns if message is None or message.id in turn.messages)
    return max(having, key=lambda turn: turn.number, default=None)


def _nothing_to_follow(
    session_id: str, request: Wanted
) -> RefusedError | errors.SessionNotFoundError:
    if request.message is not None:
        return RefusedError(
            422,
            "INVALID_REQUEST",
            "a run that answers interrupts says nothing new: send the message when it is over",
        )
    return errors.SessionNotFoundError(
        f"there is no thread {session_id!r}, or no run of it has begun",
        context={"session_id": session_id},
    )


async def _say(call: Call, session: Session, message: Message, tools: Sequence[ClientTool]) -> str:
    """Send a message to a session, and return the id of the turn that it began."""
    call.caller.require("start")
    await check_sessions(call.client, call.caller, session.id)
    sent = await session.say(
        f"{message.block}{message.text}",
        id=message.id,
        if_busy="reject",
        by=call.caller.subject,
        client_tools=tools,
        shared_state=message.state,
    )
    return (await sent.turn()).id


async def give(call: Call, turn: Turn[Any], results: Sequence[InterfaceResult]) -> set[str]:
    """Give calls that wait for the user interface their results.

    Results of other calls are left out: a run may be repeated, and has those from before, too.

    Returns:
        The ids of the calls that have results now.

    Raises:
        PerdureError: As `AgentClient.finish_call`, or the caller may not send a message.
    """
    waiting = {each.call_id: each for each in await turn.client_calls()} if results else {}
    given: set[str] = set()
    for result in results:
        known = waiting.get(result.call_id)
        if known is None:
            continue
        call.caller.require("start")
        await call.client.finish_call(
            known.token, result.text, is_error=result.is_error, by=call.caller.subject
        )
        given.add(result.call_id)
    return given


async def decide(
    client: AgentClient, thread: Thread, answers: Sequence[CallDecision], by: str
) -> list[str]:
    """Decide about calls of a turn and of those below it. A repeated decision is the same one.

    Returns:
        The answers that are not used, in words: those about calls of other turns.

    Raises:
        ApprovalConflictError: A call does not wait: it was decided otherwise, or has expired.
        PerdureError: As `Turn.approve` does.
    """
    ignored: list[str] = []
    for answer in answers:
        if not f"{answer.call.turn_id}/".startswith(f"{thread.turn.id}/"):
            ignored.append(f"resume: {str(answer.call)!r} is not an interrupt of the last run")
            continue
        try:
            await _decide(client, answer, by)
        except errors.ApprovalConflictError:
            if not await _was_decided(client, answer):
                raise
    return ignored


async def _decide(client: AgentClient, answer: CallDecision, by: str) -> None:
    call = answer.call
    if answer.settlement is not None:
        await client.turn(call.turn_id).settle(
            call.call_id, answer.settlement, answer.reason, token=call.token, by=by
        )
    elif answer.answer is not None:
        await client.turn(call.turn_id).answer(
            call.call_id, from_json(answer.answer), token=call.token, by=by
        )
    elif answer.approve:
        await client.turn(call.turn_id).approve(
            call.call_id,
            token=call.token,
            reason=answer.reason,
            arguments=answer.arguments,
            by=by,
        )
    else:
        await client.turn(call.turn_id).deny(call.call_id, answer.reason, token=call.token, by=by)


async def _was_decided(client: AgentClient, answer: CallDecision) -> bool:
    """Whether history has the same decision about a call."""
    facts = [event.fact async for event in past_events(client.turn(answer.call.turn_id))]
    return any(isinstance(fact, Decided) and _is_same(fact.decision, answer) for fact in facts)


def _is_same(decision: Decision, answer: CallDecision) -> bool:
    arguments = None if decision.arguments is None else from_json(decision.arguments)
    decided = decision.call_id, decision.approve, arguments, decision.settlement, decision.answer
    return decided == (
        answer.call.call_id,
        answer.approve,
        answer.arguments,
        answer.settlement,
        answer.answer,
    )
