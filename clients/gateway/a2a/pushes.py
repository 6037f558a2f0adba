"""Push notifications: each configuration is a workflow, with an id below the id of its task."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

from a2a.types import (
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from pydantic import TypeAdapter, ValidationError
from temporalio.client import WithStartWorkflowOperation, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors, limits
from perdure.clients.client import AgentClient
from perdure.clients.gateway.a2a.found import FoundTask, TaskScope
from perdure.clients.turns import updates
from perdure.delivery.push import PushCall
from perdure.temporal import access
from perdure.temporal.encryption import data_subjects
from perdure.temporal.names import BEGIN_PUSH, MEMO_PUSH, PUSH
from perdure.temporal.payloads import explain, pack
from perdure.temporal.search_attributes import keyword
from perdure.text import one_line
from perdure.values.webhooks import WebhookUrl

_URL: TypeAdapter[str] = TypeAdapter(WebhookUrl)
_TOKEN = re.compile(r"[!-~]([ -~]*[!-~])?")
_DIGITS = 24


def call_of(config: TaskPushNotificationConfig) -> PushCall:
    """Return what a client asks for, without its task.

    Raises:
        InvalidParamsError: It is not valid.
    """
    try:
        url = _URL.validate_python(config.url)
    except ValidationError as error:
        raise InvalidParamsError(f"the url of the configuration: {explain(error)}") from None
    if config.HasField("authentication"):
        raise InvalidParamsError(
            "a configuration takes no authentication, because credentials would be stored; verify"
            " the signature of the message, or give a token"
        )
    limit = limits.A2A_PUSH_CHARACTERS
    token = config.token or None
    if token is not None and (len(token) > limit or not _TOKEN.fullmatch(token)):
        raise InvalidParamsError(
            f"the token of the configuration is at most {limit} printable ASCII characters, without"
            " spaces around them"
        )
    if len(config.id) > limit or not config.id.isprintable():
        raise InvalidParamsError(
            f"the id of the configuration is at most {limit} printable characters"
        )
    return PushCall(id=config.id or _digest(url), url=url, token=token)


async def check(scope: TaskScope, call: PushCall) -> None:
    """Refuse an address that the workers do not send to, before a message is taken in.

    Raises:
        WebhookRefusedError: They do not send to it.
        ServerUnreachableError: No worker answers.
    """
    await _start(scope.client, call, f"{scope.prefix}push-{uuid4().hex}")


async def begin(found_task: FoundTask, call: PushCall) -> TaskPushNotificationConfig:
    """Begin to notify a receiver. The same configuration again changes nothing.

    Raises:
        WebhookRefusedError: The workers do not send to it.
        TurnConflictError: The task has another configuration with the id.
        InvalidRequestError: The task has too many.
        ServerUnreachableError: No worker answers.
    """
    workflow_id = _workflow_id(found_task, call.id)
    running = [workflow.id async for workflow in _running(found_task)]
    if len(running) >= limits.A2A_PUSHES and workflow_id not in running:
        raise errors.InvalidRequestError(
            f"a task has at most {limits.A2A_PUSHES} push notification configurations; delete one"
        )
    ids = {
        "task": found_task.ids.task,
        "context": found_task.ids.context,
        "turn_id": found_task.turn_id,
    }
    await _start(found_task.scope.client, call.model_copy(update=ids), workflow_id)
    return _config(found_task, call.id, call.url)


async def get(found_task: FoundTask, config_id: str) -> TaskPushNotificationConfig:
    """Return a configuration, without its token.

    Raises:
        TaskNotFoundError: There is none with this id, or the task is over.
    """
    handle = found_task.scope.client.temporal.get_workflow_handle(
        _workflow_id(found_task, config_id)
    )
    try:
        described = await handle.describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise access.TURN.translated(found_task.turn_id, error) from error
        raise TaskNotFoundError(f"the task has no configuration {config_id!r}") from None
    if described.status is not WorkflowExecutionStatus.RUNNING:
        raise TaskNotFoundError(f"the configuration {config_id!r} has ended")
    return await _of(found_task, described)


async def list_of(
    found_task: FoundTask, request: ListTaskPushNotificationConfigsRequest
) -> ListTaskPushNotificationConfigsResponse:
    """Return all configurations of a task, without their tokens. It may lag a second behind.

    Raises:
        InvalidParamsError: A page was asked for that does not exist.
    """
    if request.page_token:
        raise InvalidParamsError("the page token is not one of this list, which has one page")
    configs = [await _of(found_task, workflow) async for workflow in _running(found_task)]
    return ListTaskPushNotificationConfigsResponse(configs=configs)


async def delete(found_task: FoundTask, config_id: str) -> None:
    """Stop notifying a receiver. A configuration that does not exist is not an error."""
    handle = found_task.scope.client.temporal.get_workflow_handle(
        _workflow_id(found_task, config_id)
    )
    try:
        await handle.terminate("its client deleted it")  # at once: it may be created anew
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise access.TURN.translated(found_task.turn_id, error) from error


async def _start(client: AgentClient, call: PushCall, workflow_id: str) -> None:
    """Start the workflow of a configuration, and wait until a worker has accepted the receiver."""
    payload = pack(call, "the configuration")
    about = call.task or "a task that is to begin"
    operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        PUSH,
        payload,
        id=workflow_id,
        task_queue=client.task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        execution_timeout=limits.A2A_PUSH_LIFE,
        task_timeout=limits.TASK_TIMEOUT,
        memo={MEMO_PUSH: {"id": call.id, "url": call.url}},
        static_summary=one_line(f"push notifications about {about}", 200),
    )
    try:
        async with data_subjects.starting_like(client.temporal, call.turn_id):
            await updates.ask_and_start(
                client.temporal, operation, BEGIN_PUSH, payload, "the push notifications"
            )
    except RPCError as error:
        raise access.TURN.translated(call.turn_id, error) from error


async def _running(found_task: FoundTask) -> AsyncIterator[WorkflowExecution]:
    """Yield the workflows of the configurations of a task."""
    prefix = _workflow_prefix(found_task)
    query = f"WorkflowType = '{PUSH}' AND ExecutionStatus = 'Running'"
    if keyword(prefix) == prefix:  # a query finds no others, however they are quoted
        query += f" AND WorkflowId STARTS_WITH '{prefix}'"
    try:
        async for workflow in found_task.scope.client.temporal.list_workflows(query):
            if workflow.id.startswith(prefix):
                yield workflow
    except RPCError as error:
        raise access.TURN.translated(found_task.turn_id, error) from error


async def _of(found_task: FoundTask, described: WorkflowExecution) -> TaskPushNotificationConfig:
    memo = await described.memo_value(MEMO_PUSH)
    return _config(found_task, memo["id"], memo["url"])


def _config(found_task: FoundTask, config_id: str, url: str) -> TaskPushNotificationConfig:
    return TaskPushNotificationConfig(id=config_id, task_id=found_task.ids.task, url=url)


def _workflow_prefix(found_task: FoundTask) -> str:
    return f"{found_task.turn_id}/push-"


def _workflow_id(found_task: FoundTask, config_id: str) -> str:
    return f"{_workflow_prefix(found_task)}{_digest(config_id)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
