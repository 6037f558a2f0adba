"""The methods of A2A, over sessions and turns. Nothing is kept between requests."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.task import apply_history_length, validate_history_length
from google.protobuf.message import Message as Params
from starlette.exceptions import HTTPException

from perdure import errors, limits
from perdure.clients.gateway import subjects
from perdure.clients.gateway.a2a import pushes
from perdure.clients.gateway.a2a.cards import DELEGATES
from perdure.clients.gateway.a2a.found import FoundTask, TaskScope, Update
from perdure.clients.gateway.a2a.listing import list_tasks
from perdure.clients.gateway.a2a.messages import DecisionPart, answer_of, content_of, subject_of
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.ids import checked
from perdure.clients.gateway.operations import Call
from perdure.clients.gateway.problems import RefusedError, response_to
from perdure.clients.gateway.quotas import check_sessions
from perdure.clients.turns.handle import Turn
from perdure.delivery.push import PushCall
from perdure.session.wire import Disposition

CALL: Final = "call"
"""The name of the `Call` in the state of a context."""
HELD: Final = "held"
"""The name of the `ExitStack` there that is closed when the response ends."""

_ERRORS: Mapping[type[errors.PerdureError], type[A2AError]] = {
    errors.TurnNotFoundError: TaskNotFoundError,
    errors.TurnOverError: UnsupportedOperationError,
    errors.InvalidRequestError: InvalidParamsError,
    errors.TooLargeError: InvalidParamsError,
    errors.UnknownAgentError: InvalidParamsError,
    errors.SessionClosedError: InvalidParamsError,
    errors.SessionBusyError: InvalidParamsError,
    errors.TurnConflictError: InvalidParamsError,
    errors.TurnBudgetExceededError: InvalidParamsError,
    errors.ApprovalConflictError: InvalidParamsError,
}
"""The protocol's error for each error that its caller can do something about."""
_DIGITS = 24


class NotOfProtocolError(HTTPException):
    """An error for which the protocol has none. The SDK lets exceptions of this class pass.

    Attributes:
        response: The problem with which the request is answered.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(500)
        self.response = response_to(error)


@contextlib.contextmanager
def as_protocol_errors() -> Iterator[None]:
    """Raise errors of the block as those of the protocol, with their code as data.

    Raises:
        A2AError: The protocol has an error for it.
        NotOfProtocolError: It has none.
    """
    try:
        yield
    except A2AError:
        raise
    except Exception as error:
        raise _of_protocol(error) from error


def _of_protocol(error: Exception) -> Exception:
    match error:
        case errors.PerdureError() if (cls := _class_of(error)) is not None:
            return cls(error.message, data={"code": error.code})
        case RefusedError(status=422):
            return InvalidParamsError(error.detail, data={"code": error.code})
        case _:
            return NotOfProtocolError(error)


def _class_of(error: errors.PerdureError) -> type[A2AError] | None:
    return next((_ERRORS[cls] for cls in type(error).__mro__ if cls in _ERRORS), None)


class A2ATasks(RequestHandler):
    """The tasks of one agent."""

    def __init__(self, agent: str) -> None:
        self._agent = agent

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        """Begin a task, or go on with one, and wait for what comes of it for up to a minute."""
        settings = params.configuration
        with as_protocol_errors():
            call = _admitted(params, context)
            validate_history_length(settings)
            if not settings.return_immediately:
                _stay_open(context)
            found_task = await self._take(call, params, is_streamed=False)
            if not settings.return_immediately:
                found_task = await _settled(found_task)
            return await _shown(found_task, settings)

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update, None]:
        """Begin a task, or go on with one, and yield it with its changes."""
        with as_protocol_errors():
            call = _admitted(params, context)
            _stay_open(context)
            found_task = await self._take(call, params, is_streamed=True)
            following = found_task.updates(until_asked=True, delegates=_wants_delegates(context))
            async with contextlib.aclosing(following) as updates:
                async for update in updates:
                    yield update

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update, None]:
        """Yield a task with its changes."""
        with as_protocol_errors():
            call = _admitted(params, context)
            _stay_open(context)
            found_task = await self._scope(call).find(params.id)
            if found_task.turn is not None and (await found_task.turn.status()).outcome is not None:
                raise UnsupportedOperationError("the task is over")
            following = found_task.updates(until_asked=False, delegates=_wants_delegates(context))
            async with contextlib.aclosing(following) as updates:
                async for update in updates:
                    yield update

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        """Return a task."""
        with as_protocol_errors():
            call = _admitted(params, context)
            validate_history_length(params)
            return await _shown(await self._scope(call).find(params.id), params)

    async def on_list_tasks(
        self, params: ListTasksRequest, context: ServerCallContext
    ) -> ListTasksResponse:
        """Return tasks, those that changed last first."""
        with as_protocol_errors():
            return await list_tasks(self._scope(_admitted(params, context)), params)

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        """Cancel the turn of a task, and wait for its end."""
        with as_protocol_errors():
            call = _admitted(params, context)
            call.caller.require("control")
            found_task = await self._scope(call).find(params.id)
            if found_task.turn is None:
                raise TaskNotCancelableError("the task has not begun; cancel the one before it")
            by = call.caller.subject
            if not await found_task.turn.cancel(f"over A2A, by {by}", by=by):
                raise TaskNotCancelableError("the task is over")
            await found_task.let_others_begin()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limits.A2A_CANCEL.total_seconds()):
                    async for _ in found_task.turn.events():
                        pass
            return await found_task.task()

    def _scope(self, call: Call) -> TaskScope:
        return TaskScope(call.client, call.caller, self._agent)

    async def _take(
        self, call: Call, params: SendMessageRequest, *, is_streamed: bool
    ) -> FoundTask:
        """Take a message in, and return its task. The same message again changes nothing.

        A receiver of push notifications that is not valid is refused before.
        """
        push = _push_of(params.configuration)
        if push is not None:
            call.caller.require("control" if params.message.task_id else "start")
            await pushes.check(self._scope(call), push)
        found_task = await self._read(call, params.message, is_streamed=is_streamed)
        if push is not None:
            await pushes.begin(found_task, push)
        return found_task

    async def _read(self, call: Call, message: Message, *, is_streamed: bool) -> FoundTask:
        if message.role != Role.ROLE_USER:
            raise InvalidParamsError("the role of a message to an agent is ROLE_USER")
        if not message.task_id:
            return await self._begin(call, message, live=is_streamed)
        found_task = await self._scope(call).find(message.task_id)
        subject = subjects.own(call.caller, subject_of(message))
        await subjects.check(call.client, found_task.session.id, subject)
        if message.context_id and message.context_id != found_task.ids.context:
            raise InvalidParamsError(f"the task is of the context {found_task.ids.context!r}")
        if found_task.turn is None:
            raise UnsupportedOperationError(
                "the task has not begun; a message to its context, without a task, is read by it"
            )
        answer = answer_of(message)
        if answer is not None:
            await _decide(call, found_task, found_task.turn, answer)
        else:
            await _steer(call, found_task, found_task.turn, message)
        return found_task

    async def _begin(self, call: Call, message: Message, *, live: bool) -> FoundTask:
        call.caller.require("start")
        content, scope = content_of(message), self._scope(call)
        context = message.context_id or self._new_context(call.caller, message.message_id)
        if "/" in context:
            raise InvalidParamsError("the id of a context has no slash")
        session_id = checked(call, f"{scope.prefix}{context}")
        await check_sessions(call.client, call.caller, session_id)
        session = call.client.session(
            session_id,
            self._agent,
            idle=limits.A2A_IDLE,
            fairness=call.caller.tenant,
            live=live,
            subject=subjects.own(call.caller, subject_of(message)),
        )
        sent = await session.say(content, id=message.message_id, by=call.caller.subject)
        ids = scope.ids(sent.turn_id)
        assert ids is not None
        turn = call.client.turn(sent.turn_id)
        try:
            await turn.check()
        except errors.TurnNotFoundError:
            has_begun = sent.disposition is Disposition.STARTED
            return FoundTask(scope, ids, await sent.turn() if has_begun else None)
        return FoundTask(scope, ids, turn)

    def _new_context(self, caller: Caller, message_id: str) -> str:
        """Return a context for a message without one: the same for the same message."""
        named = "\n".join((self._agent, caller.subject, message_id))
        return hashlib.sha256(named.encode()).hexdigest()[:_DIGITS]

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Begin to notify a receiver about a task."""
        with as_protocol_errors():
            call = _admitted(params, context)
            call.caller.require("control")
            push = pushes.call_of(params)
            return await pushes.begin(await self._scope(call).find(params.task_id), push)

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Return a configuration, without its token."""
        with as_protocol_errors():
            call = _admitted(params, context)
            return await pushes.get(await self._scope(call).find(params.task_id), params.id)

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """Return the configurations of a task, without their tokens."""
        with as_protocol_errors():
            call = _admitted(params, context)
            return await pushes.list_of(await self._scope(call).find(params.task_id), params)

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Notify a receiver no more."""
        with as_protocol_errors():
            call = _admitted(params, context)
            call.caller.require("control")
            await pushes.delete(await self._scope(call).find(params.task_id), params.id)

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """Refuse: the public card is the only one."""
        raise UnsupportedOperationError("there is no extended card")


def _admitted(params: Params, context: ServerCallContext) -> Call:
    """Return the call of a request that may read, after validation of its parameters."""
    validate_proto_required_fields(params)
    call: Call = context.state[CALL]
    call.caller.require("read")
    return call


def _push_of(settings: SendMessageConfiguration) -> PushCall | None:
    if not settings.HasField("task_push_notification_config"):
        return None
    return pushes.call_of(settings.task_push_notification_config)


def _wants_delegates(context: ServerCallContext) -> bool:
    return DELEGATES in context.requested_extensions


def _stay_open(context: ServerCallContext) -> None:
    """Count the request as a stream or a long poll until its response ends."""
    call: Call = context.state[CALL]
    held: contextlib.ExitStack = context.state[HELD]
    held.enter_context(call.stay_open())


async def _shown(found_task: FoundTask, request: GetTaskRequest | SendMessageConfiguration) -> Task:
    """Return a task with the wanted part of its history."""
    has_history = not request.HasField("history_length") or request.history_length > 0
    return apply_history_length(await found_task.task(has_history=has_history), request)


async def _settled(found_task: FoundTask) -> FoundTask:
    """Wait until a task is over or needs a person, for the longest time of a long poll."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limits.HTTP_WAIT.total_seconds()):
            found_task = replace(found_task, turn=await found_task.begun())
            assert found_task.turn is not None
            await found_task.turn.wait()
    return found_task


async def _decide(call: Call, found_task: FoundTask, turn: Turn[Any], answer: DecisionPart) -> None:
    """Approve, deny or settle the call that was reviewed, or answer its question.

    Raises:
        InvalidParamsError: It does not wait, unless this caller has decided so before.
    """
    call.caller.require("decide")
    by, waits = call.caller.subject, (await turn.status()).waits
    waiting = {(wait.call.call_id, wait.call.token): wait.turn_id for wait in waits if wait.call}
    turn_id = waiting.get((answer.call_id, answer.token))
    if turn_id is None:
        if await found_task.was_decided(answer, by):
            return
        raise InvalidParamsError("no call with this id and token waits for approval")
    if answer.settlement is not None:
        await call.client.turn(turn_id).settle(
            answer.call_id, answer.settlement, answer.result, token=answer.token, by=by
        )
    elif answer.is_answer:
        await call.client.turn(turn_id).answer(
            answer.call_id, answer.answer, token=answer.token, by=by
        )
    elif answer.approve:
        await call.client.turn(turn_id).approve(
            answer.call_id,
            token=answer.token,
            reason=answer.reason,
            arguments=answer.arguments,
            by=by,
        )
    else:
        await call.client.turn(turn_id).deny(
            answer.call_id, answer.reason, token=answer.token, by=by
        )


async def _steer(call: Call, found_task: FoundTask, turn: Turn[Any], message: Message) -> None:
    """Send a message to a turn that runs. One that waits for an approval is not changed.

    Raises:
        UnsupportedOperationError: The turn is over, and has not read the message before.
    """
    call.caller.require("control")
    content, status = content_of(message), await turn.status()
    if any(wait.call is not None for wait in status.waits):
        return
    if status.outcome is None:
        await turn.steer(content, id=message.message_id, by=call.caller.subject)
    elif not await found_task.was_said(message.message_id):
        raise UnsupportedOperationError(
            "the task is over; a message to its context, without a task, begins another one"
        )
