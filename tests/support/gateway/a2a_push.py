"""Tasks with push notifications over A2A."""

from __future__ import annotations

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


def _of(hook: Hook) -> Any:
    hook.verified()
    return Parse(hook.body, StreamResponse()).status_update
