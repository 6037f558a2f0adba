"""Schedules that send messages to a session: what goes with that, and if a session exists."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RawValue
from temporalio.converter import WorkflowSerializationContext
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.clients.sessions.handle import session_request
from perdure.session.facts import MessageSent
from perdure.session.scheduled import MessageDelivery, message_of, session_of
from perdure.session.state import SessionState
from perdure.temporal import access, failures
from perdure.temporal.encryption import data_subjects
from perdure.temporal.histories.runs import describe
from perdure.temporal.histories.session_history import read_session
from perdure.temporal.names import MEMO, SESSION
from perdure.temporal.payloads import decoded, unpack
from perdure.turn.slot import Slot
from perdure.turn.wire import TurnRequest
from perdure.values.content import check_message

_RUNNING = (
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_PAUSED,
)


def check(request: TurnRequest) -> None:
    """Reject the input of messages that a session cannot take. It has a schedule and a session.

    Raises:
        InvalidRequestError: The id of the session, or an option, is not valid, or an option does
            not go with a session.
        TooLargeError: The message is too large.
    """
    for name in _not_for_sessions(request):
        raise errors.InvalidRequestError(
            f"the schedule: {name} cannot be combined with a session, which gets a message and has"
            " one budget and one history for all of its turns"
        )
    access.SESSION.new_id(request.session or "")
    session_request(**dict(session_of(request)))
    message = message_of(request, Slot(at=datetime.now(UTC)))
    parts = message.parts if message.media else ()
    check_message({"id": "-", "text": message.brief, "by": None}, parts)
    SessionState().check_room(MessageSent("", message.brief, parts=parts))


def _not_for_sessions(request: TurnRequest) -> Iterator[str]:
    """Yield the names of options that a session does not have for one message."""
    options = {
        "output or output_schema": request.output_schema is not None,
        "history": bool(request.history),
        "client_tools": bool(request.client_tools),
        "shared_state": bool(request.shared_state),
        "delay": request.delay is not None,
        "deadline": request.deadline is not None,
        "requires_human_approval": request.task.requires_human_approval,
    }
    yield from (name for name, is_given in options.items() if is_given)


async def check_session(client: Client, request: TurnRequest) -> None:
    """Refuse a session that exists and would take no message of the schedule.

    Raises:
        SessionClosedError: It is closed.
        TurnConflictError: It belongs to another agent or subject, or the id is not the id of a
            session.
        PayloadDecodeError: This process lacks the codec or the key of the session.
        ServerUnreachableError: Temporal does not answer.
    """
    session_id = request.session
    if session_id is None:
        return
    describing = describe(client, session_id, retry=True)
    described = await access.SESSION.asked_if_known(session_id, describing)
    if described is None:
        return  # the first message begins it
    info = described.workflow_execution_info
    context = {"session_id": session_id}
    if info.type.name != SESSION:
        raise errors.TurnConflictError(
            f"{session_id!r} is a workflow of type {info.type.name}, and not a session; choose"
            " another id",
            context=context,
        )
    if info.status not in _RUNNING:
        raise errors.SessionClosedError(
            f"session {session_id!r} is closed; choose another one", context=context
        )
    subject = request.subject
    if subject is not None:
        key = data_subjects.key_in_memo(info) or ""
        await data_subjects.refuse_other(client, session_id, key, subject)
    if MEMO not in info.memo.fields:
        return  # another program has started it; the session itself knows its agent
    converter = client.data_converter.with_context(
        WorkflowSerializationContext(namespace=client.namespace, workflow_id=session_id)
    )
    [memo] = await decoded(converter, [info.memo.fields[MEMO]])
    if memo["agent"] != request.agent:
        raise errors.TurnConflictError(
            f"session {session_id!r} belongs to the agent {memo['agent']!r}, and not to"
            f" {request.agent!r}; choose another session",
            context=context,
        )


async def turns_of(client: Client, session_id: str) -> dict[str, str]:
    """Return the ids of the turns that were given messages, by the ids of these."""
    return _turns_in(await _state(client, session_id))


async def is_forgotten(client: Client, session_id: str, message_id: str) -> bool:
    """Whether a message was sent, and no turn of the session is known that reads it, or will.

    The session has forgotten it after 50 turns, or was closed before a turn read it.

    Raises:
        RPCError: The server does not answer.
        ServerUnreachableError: The server does not answer.
    """
    try:
        info = (await describe(client, message_id, retry=True)).workflow_execution_info
        if info.status in _RUNNING:
            return False
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    state = await _state(client, session_id)
    is_queued = state.closed is None and message_id in {message.id for message in state.queue}
    return not is_queued and message_id not in _turns_in(state)


def _turns_in(state: SessionState) -> dict[str, str]:
    turns = {message: turn.turn_id for turn in state.turns for message in turn.messages}
    if state.running is not None:
        turns |= {given_message.id: state.running.turn_id for given_message in state.given}
    return turns


async def running_in(client: Client, session_id: str) -> str:
    """Return the id of the turn of a session that is running; empty if there is none."""
    state = await _state(client, session_id)
    return state.running.turn_id if state.running is not None and state.is_busy else ""


async def _state(client: Client, session_id: str) -> SessionState:
    """Return the state of a session; an empty state if Temporal does not have it.

    Raises:
        ServerUnreachableError: Temporal does not answer.
    """
    try:
        with access.SESSION.asking(session_id):
            info = (await describe(client, session_id, retry=True)).workflow_execution_info
            if info.type.name != SESSION:
                return SessionState()
            return await read_session(client, session_id, info.execution.run_id)
    except errors.SessionNotFoundError:
        return SessionState()


async def fate_of(client: Client, message_id: str, run_id: str) -> dict[str, object]:
    """Return the fields of `ScheduledTurn` about a message that no turn has read."""
    try:
        info = (await describe(client, message_id, run_id, retry=True)).workflow_execution_info
        if info.status in _RUNNING:
            return {}
        handle = client.get_workflow_handle(message_id, run_id=run_id, result_type=RawValue)
        done = unpack(await handle.result(), MessageDelivery)
    except WorkflowFailureError as error:
        return {"error": failures.error_in(error.cause)}
    except RPCError:
        return {}  # its retention is over
    return {"is_skipped": done.disposition is None}
