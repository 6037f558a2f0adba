"""Tasks with push notifications over A2A."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from a2a.client import Client
from a2a.types import (
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from google.protobuf.json_format import Parse
from temporalio.client import WithStartWorkflowOperation, WorkflowHandle
from temporalio.common import RawValue, WorkflowIDConflictPolicy
from temporalio.service import RPCError

from perdure.clients import AgentClient
from perdure.clients.turns import updates
from perdure.delivery.push import PushCall
from perdure.temporal.names import BEGIN_PUSH, PUSH
from perdure.temporal.payloads import pack

from ..receiver import Hook, Receiver
from .a2a import message


async def begin(
    agent: Client, text: str, message_id: str, context: str = "", **config: Any
) -> Task:
    """The task of a message with a configuration, which is not waited for."""
    settings = SendMessageConfiguration(
        return_immediately=True, task_push_notification_config=TaskPushNotificationConfig(**config)
    )
    request = SendMessageRequest(
        message=message(text, message_id, context_id=context), configuration=settings
    )
    [response] = [one async for one in agent.send_message(request)]
    return response.task


async def told(
    receiver: Receiver, path: str, count: int, within_s: float = 30
) -> list[tuple[str, str]]:
    """The tasks and the states in messages to a path, whose signatures are verified."""
    hooks = await receiver.until(path, count, within_s)
    return [(update.task_id, TaskState.Name(update.status.state)) for update in map(_of, hooks)]


@contextlib.asynccontextmanager
async def cancelled_at_once(
    client: AgentClient, call: PushCall, workflow_id: str, task_queue: str
) -> AsyncIterator[tuple[asyncio.Task[RawValue], WorkflowHandle[Any, Any]]]:
    """A request for push notifications that are cancelled before a worker of the queue has begun
    them, and their workflow.
    """
    start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        PUSH,
        pack(call),
        id=workflow_id,
        task_queue=task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )
    asked = updates.ask_and_start(client.temporal, start, BEGIN_PUSH, pack(call), "the receiver")
    asking = asyncio.create_task(asked)
    handle = client.temporal.get_workflow_handle(workflow_id)
    async with asyncio.timeout(60):
        while True:  # until it is there
            with contextlib.suppress(RPCError):
                await handle.cancel()
                break
            await asyncio.sleep(0.05)
    try:
        yield asking, handle
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


def _of(hook: Hook) -> Any:
    hook.verified()
    return Parse(hook.body, StreamResponse()).status_update
