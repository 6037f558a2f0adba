"""What runs in the namespace, as the server sees it: pending tasks, calls, sizes of histories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ApplicationErrorCategory, EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeWorkflowExecutionRequest,
    GetWorkflowExecutionHistoryReverseRequest,
)
from temporalio.client import Client
from temporalio.converter import decode_typed_search_attributes
from temporalio.service import RPCError, RPCStatusCode

from perdure.clients.turns.entries import entry_of
from perdure.errors import ErasedError
from perdure.temporal import workflow_list
from perdure.temporal.names import (
    BATCH_PART,
    BATCHES,
    ERASURE,
    KEYED_EVENTS,
    PUSH,
    SCHEDULED_MESSAGE,
    SESSION,
    SETTLEMENT,
    TURN,
    WEBHOOK,
    WEBHOOK_FAILED,
)

_TYPES = (
    TURN,
    SESSION,
    *BATCHES,
    BATCH_PART,
    KEYED_EVENTS,
    SCHEDULED_MESSAGE,
    WEBHOOK,
    PUSH,
    SETTLEMENT,
    ERASURE,
)
_QUERY = f"ExecutionStatus = 'Running' AND WorkflowType IN ({', '.join(map(repr, _TYPES))})"
_NOUNS = {
    TURN: "turn",
    SESSION: "session",
    **dict.fromkeys(BATCHES, "batch"),
    BATCH_PART: "part of a batch",
    WEBHOOK: "webhook",
    PUSH: "push notification",
}
_PAGE = 500
_AT_ONCE = 16
_LAST_EVENTS = 50
_BENIGN = ApplicationErrorCategory.APPLICATION_ERROR_CATEGORY_BENIGN


@dataclass(frozen=True)
class PendingActivity:
    """A pending activity.

    Attributes:
        name: The type of the activity, such as the name of a tool.
        queue: The task queue that it is scheduled on.
        attempt: The number of the attempt, from 1.
        failure: The message of the last failed attempt; empty if none has failed, or if the attempt
            only found that there is nothing yet.
    """

    name: str
    queue: str
    attempt: int
    failure: str


@dataclass(frozen=True)
class OpenWorkflow:
    """A turn, a session or another workflow of Perdure that runs.

    Attributes:
        name: What it is, with its id.
        queue: Its task queue.
        task_attempt: The number of the attempt of its pending workflow task; 0 without one.
        task_failure: What the code raised in the attempt before; empty if it raised nothing.
        calls: Its pending activities.
        events: The length of the history of its current run.
        history_bytes: The size of that history.
        waits_for: What a turn waits for, as in `TurnEntry`; empty for all else.
        quiet_since: The time of its last event, if it waits; None otherwise.
        undecodable: Why this process cannot decode it; empty if it can.
        is_erased: Whether no process can, because its data subject was erased.
    """

    name: str
    queue: str
    task_attempt: int
    task_failure: str
    calls: tuple[PendingActivity, ...]
    events: int
    history_bytes: int
    waits_for: str = ""
    quiet_since: datetime | None = None
    undecodable: str = ""
    is_erased: bool = False


async def count(client: Client) -> int:
    """Return the number of Perdure's workflows that run.

    Raises:
        RPCError: The server does not answer, or does not let this client count.
    """
    request = CountWorkflowExecutionsRequest(namespace=client.namespace, query=_QUERY)
    return (await client.workflow_service.count_workflow_executions(request, retry=True)).count


async def read(client: Client, limit: int) -> AsyncIterator[OpenWorkflow]:
    """Yield what runs, the latest first, at most `limit` of them.

    Raises:
        RPCError: The server does not answer, or does not let this client list.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(execution: WorkflowExecution) -> OpenWorkflow | None:
        async with slots:
            return await _described(client, execution)

    token = b""
    while limit > 0:
        infos, token = await workflow_list.page(client, _QUERY, min(limit, _PAGE), token)
        found = await asyncio.gather(*(one(info.execution) for info in infos))
        for workflow in filter(None, found):
            yield workflow
        limit -= len(infos)
        if not token:
            return


async def _described(client: Client, execution: WorkflowExecution) -> OpenWorkflow | None:
    """Return an open workflow; None if it has ended since it was listed."""
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
    try:
        told = await client.workflow_service.describe_workflow_execution(request, retry=True)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    info = told.workflow_execution_info
    if info.HasField("close_time"):
        return None
    attempt = told.pending_workflow_task.attempt if told.HasField("pending_workflow_task") else 0
    entry = await entry_of(client, info, decode_typed_search_attributes(info.search_attributes))
    waits_for = entry.waits_for if info.type.name == TURN else ""
    events = await _last_events(client, execution) if attempt > 1 or waits_for else ()
    return OpenWorkflow(
        name=f"{_NOUNS.get(info.type.name, info.type.name)} {info.execution.workflow_id}",
        queue=info.task_queue,
        task_attempt=attempt,
        task_failure=_why_failed(events),
        calls=tuple(_pending(activity, info.task_queue) for activity in told.pending_activities),
        events=info.history_length,
        history_bytes=info.history_size_bytes,
        waits_for=waits_for,
        quiet_since=_moment(events[0]) if events and waits_for else None,
        undecodable=entry.error.message if entry.error else "",
        is_erased=entry.error is not None and entry.error.code == ErasedError.code,
    )


async def _last_events(client: Client, execution: WorkflowExecution) -> Sequence[HistoryEvent]:
    """Return the last events of a history, the latest first."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace, execution=execution, maximum_page_size=_LAST_EVENTS
    )
    service = client.workflow_service
    page = await service.get_workflow_execution_history_reverse(request, retry=True)
    return page.history.events


def _why_failed(events: Sequence[HistoryEvent]) -> str:
    """Return why the last workflow task failed; later attempts leave no event of their own."""
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            return event.workflow_task_failed_event_attributes.failure.message
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            break
    return ""


def _pending(activity: PendingActivityInfo, queue: str) -> PendingActivity:
    return PendingActivity(
        name=activity.activity_type.name,
        queue=activity.activity_options.task_queue.name or queue,
        attempt=activity.attempt,
        failure="" if _is_normal(activity.last_failure) else activity.last_failure.message,
    )


def _is_normal(failure: Failure) -> bool:
    """Whether an attempt only found that there is nothing yet, such as a poll of a job."""
    info = failure.application_failure_info
    return info.category == _BENIGN and info.type != WEBHOOK_FAILED


def _moment(event: HistoryEvent) -> datetime:
    return event.event_time.ToDatetime(tzinfo=UTC)
