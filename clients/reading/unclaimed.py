"""A warning for a turn whose work no worker takes, as the server describes its task queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import (
    EventType,
    PendingActivityState,
    PendingWorkflowTaskState,
    TaskQueueType,
    WorkflowExecutionStatus,
)
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.clients.reading import task_queues

logger = logging.getLogger("perdure")

_UNCLAIMED_S = 5.0
_TIMEOUT = timedelta(seconds=3)


async def warn_when_unclaimed(
    client: Client,
    turn_id: str,
    last: HistoryEvent,
    describe: Callable[[], Awaitable[DescribeWorkflowExecutionResponse]],
) -> None:
    """Wait some seconds, and warn if no worker has taken the work that is pending since `last`.

    Only a queue that no worker polls certainly needs a worker.
    """
    waiting = _waiting_in(last)
    if waiting is None:
        return
    await asyncio.sleep(_UNCLAIMED_S)
    name, kind = waiting
    try:
        is_left = _is_left(await describe(), kind)
        answer = await task_queues.described(client, name, kind, timeout=_TIMEOUT)
    except RPCError:
        return
    if is_left:
        polls = [task_queues.polled_at(poller) for poller in answer.pollers]
        logger.warning(
            "nothing has happened in turn %s for %d s: the task queue %r has work and %s",
            turn_id,
            _UNCLAIMED_S,
            name,
            _workers(polls),
        )


def _waiting_in(last: HistoryEvent) -> tuple[str, TaskQueueType.ValueType] | None:
    """Return the queue, with its kind, into which the last event put work."""
    if last.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED:
        queue = last.workflow_task_scheduled_event_attributes.task_queue
        return queue.normal_name or queue.name, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    if last.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        return (
            last.activity_task_scheduled_event_attributes.task_queue.name,
            TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
    return None


def _is_left(description: DescribeWorkflowExecutionResponse, kind: TaskQueueType.ValueType) -> bool:
    """Whether no worker has taken the pending work.

    History has the start of an activity only after its end. A workflow that an operator paused, or
    that is over, has no pending work.
    """
    if (
        description.workflow_execution_info.status
        != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
    ):
        return False
    if kind == TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW:
        return (
            description.pending_workflow_task.state
            == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
        )
    scheduled = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    return any(pending.state == scheduled for pending in description.pending_activities)


def _workers(polls: Sequence[datetime]) -> str:
    """Describe the workers of a queue by their last polls.

    A busy worker does not poll, so it cannot be distinguished from a worker that has stopped.
    """
    if not polls:
        return "no worker polls it; start a worker with `perdure worker module:name`"
    ago = max((datetime.now(UTC) - max(polls)).total_seconds(), 0)
    return (
        f"no worker has taken it; one asked for work {ago:.0f} s ago, so its workers are busy, or"
        " have stopped since"
    )
