"""What Temporal knows of a task queue: who polls it, and how many tasks wait."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.client import Client

_POLLED_WITHIN = timedelta(seconds=70)
"""A poll takes up to a minute, and the server lists pollers that left for five."""


async def described(
    client: Client, name: str, kind: TaskQueueType.ValueType, **options: Any
) -> DescribeTaskQueueResponse:
    """Ask about the tasks of one kind in a queue. `options` are of the call, such as a timeout.

    Raises:
        RPCError: The server does not answer.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=name),
        task_queue_type=kind,
        report_stats=True,
    )
    return await client.workflow_service.describe_task_queue(request, **options)


def polled_at(poller: PollerInfo) -> datetime:
    """Return when a poller last asked for a task, by the server's clock."""
    return poller.last_access_time.ToDatetime(tzinfo=UTC)


def present(answer: DescribeTaskQueueResponse, now: datetime) -> Iterator[PollerInfo]:
    """Yield the pollers that are still there. `now` is the server's time."""
    for poller in answer.pollers:
        if now - polled_at(poller) < _POLLED_WITHIN:
            yield poller
