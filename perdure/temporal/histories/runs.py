"""The runs of a turn, which continues in a new run when its history has become long.

A run is found from the run before by the event that closes that, and from the run after by the
event that began that.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, HistoryEventFilterType, WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryRequest,
)
from temporalio.client import Client, WorkflowHistoryEventFilterType
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.temporal.histories.fetching import first_event, recorded
from perdure.turn.facts import PartCarried, Recorded, TurnContinued

Read = tuple[HistoryEvent, Recorded | None]
"""An event of a history, with its fact."""

_CONTINUED = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW


async def describe(
    client: Client, turn_id: str, run_id: str = "", **options: Any
) -> DescribeWorkflowExecutionResponse:
    """Describe a workflow; without a run id, the latest run of the id.

    The client's own `describe()` raises `ValueError` for a workflow that an operator paused: that
    status is newer than the client (1.35).
    """
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=turn_id, run_id=run_id)
    )
    return await client.workflow_service.describe_workflow_execution(request, **options)


async def describe_last(
    client: Client, turn_id: str, run_id: str, **options: Any
) -> DescribeWorkflowExecutionResponse:
    """Describe the last run of a turn, from any of its runs."""
    while True:
        description = await describe(client, turn_id, run_id, **options)
        if description.workflow_execution_info.status != _CONTINUED:
            return description
        run_id = await _next(client, turn_id, run_id)


async def last_run(client: Client, turn_id: str, run_id: str) -> str:
    """Return the id of the last run of a turn, from the id of any of its runs."""
    description = await describe_last(client, turn_id, run_id, retry=True)
    return description.workflow_execution_info.execution.run_id


async def awaited_run(client: Client, turn_id: str, run_id: str) -> str:
    """Return the id of the run whose end the parent of a turn is told of, from its first run.

    If the turn was reset, that is the run that goes on instead of the last one.
    """
    current = (await describe(client, turn_id, retry=True)).workflow_execution_info
    if current.first_run_id == run_id:
        return current.execution.run_id
    return await last_run(client, turn_id, run_id)


async def runs_up_to(
    client: Client, description: DescribeWorkflowExecutionResponse
) -> tuple[str, ...]:
    """Return the ids of the runs of a turn up to a run, from the first that is still retained."""
    info = description.workflow_execution_info
    turn_id, run_id = info.execution.workflow_id, info.execution.run_id
    runs = [run_id]
    if info.first_run_id in ("", run_id):
        return tuple(runs)
    while True:
        try:
            before = run_before(await first_event(client, turn_id, runs[0]))
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND or len(runs) == 1:
                raise
            return tuple(runs[1:])
        if not before:
            return tuple(runs)
        runs.insert(0, before)


async def end_of_run(client: Client, turn_id: str, run_id: str) -> datetime:
    """Wait for the end of a run, and return its time.

    Raises:
        RPCError: The server does not have the run, or does not answer.
        ApplicationError: It has not ended yet; an activity is tried again.
    """
    handle = client.get_workflow_handle(turn_id, run_id=run_id)
    async for event in handle.fetch_history_events(
        wait_new_event=True, event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT
    ):
        return event.event_time.ToDatetime(tzinfo=UTC)
    raise ApplicationError("the turn is not over yet", type="UNAVAILABLE")


async def run_instead(client: Client, turn_id: str, run_id: str, child_id: str) -> str:
    """Return the id of the run that goes on instead of a run that has begun a child, since a reset.

    It is empty without such a run, and for a reset to a point before the child.
    """
    current = (await describe(client, turn_id, retry=True)).workflow_execution_info
    instead = current.execution.run_id
    if instead == run_id:
        return ""
    async for event in client.get_workflow_handle(turn_id, run_id=instead).fetch_history_events():
        begun = event.start_child_workflow_execution_initiated_event_attributes
        if begun.workflow_id == child_id:
            return instead
    return ""


async def last_recorded(
    client: Client, turn_id: str, run_id: str, *, is_worker: bool = False
) -> list[Read]:
    """Return the events of the last run of a turn so far, from any of its runs.

    While that run still takes over the state of the run before, the events of that come first, if
    Temporal still has them.

    Raises:
        RPCError: The server does not have the history, or does not answer.
    """
    last = await last_run(client, turn_id, run_id)
    entries = await _recorded(client, turn_id, last, is_worker=is_worker)
    first = next((fact for _, fact in entries if isinstance(fact, TurnContinued)), None)
    parts = [fact.part for _, fact in entries if isinstance(fact, PartCarried)]
    if first is None or (parts and len(parts) >= parts[-1].count):
        return entries
    before: list[Read] = []
    with contextlib.suppress(RPCError):
        run_id = first.continuation.continues.run_id
        before = await _recorded(client, turn_id, run_id, is_worker=is_worker)
    return before + entries


async def _recorded(client: Client, turn_id: str, run_id: str, *, is_worker: bool) -> list[Read]:
    return [entry async for entry in recorded(client, turn_id, run_id, is_worker=is_worker)]


def run_before(first: HistoryEvent) -> str:
    """Return the id of the run that a run continues, from its first event; empty if it is none."""
    return first.workflow_execution_started_event_attributes.continued_execution_run_id


def run_after(event: HistoryEvent) -> str:
    """Return the id of the run that continues this one; empty unless the event closes it so."""
    if event.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
        return ""
    return event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id


async def _next(client: Client, turn_id: str, run_id: str) -> str:
    request = GetWorkflowExecutionHistoryRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=turn_id, run_id=run_id),
        history_event_filter_type=HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
    )
    page = await client.workflow_service.get_workflow_execution_history(request, retry=True)
    return run_after(page.history.events[-1])
