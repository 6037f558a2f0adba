"""A client whose server is the simulated server, as far as activities read from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.operatorservice.v1 import ListSearchAttributesResponse
from temporalio.api.workflowservice.v1 import (
    DescribeScheduleRequest,
    DescribeScheduleResponse,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryResponse,
    GetWorkflowExecutionHistoryReverseResponse,
    UpdateScheduleRequest,
    UpdateScheduleResponse,
)
from temporalio.client import ScheduleDescription
from temporalio.client import WorkflowHistoryEventFilterType as EventFilter
from temporalio.service import RPCError, RPCStatusCode

from perdure.testing.simulation.reading import memo_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.schedules import SimulatedSchedules
from perdure.testing.simulation.server.sdk import CONVERTER, NAMESPACE, TASK_QUEUE, description_of
from perdure.testing.simulation.server.server import SimulatedServer

_PAGE = 40
_STATUS = {
    "": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING,
    "WORKFLOW_EXECUTION_COMPLETED": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED,
    "WORKFLOW_EXECUTION_FAILED": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_FAILED,
    "WORKFLOW_EXECUTION_CANCELED": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CANCELED,
    "WORKFLOW_EXECUTION_TERMINATED": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED,
    "WORKFLOW_EXECUTION_CONTINUED_AS_NEW": (
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
    ),
}


class HistoryClient:
    """Reads the histories of a simulated server, like `temporalio.client.Client`.

    It has the few methods of a client that activities of turns call. It is its own workflow service
    and operator service.

    Attributes:
        schedules: The schedules of the server; None if there are none.
    """

    data_converter = CONVERTER
    namespace = NAMESPACE
    identity = "simulation"

    def __init__(self, server: SimulatedServer) -> None:
        self.schedules: SimulatedSchedules | None = None
        self._server = server
        self.workflow_service = self.operator_service = self

    def get_workflow_handle(
        self, workflow_id: str, *, run_id: str | None = None, **options: Any
    ) -> SimulatedHandle:
        """Return a handle that reads a history."""
        return SimulatedHandle(self._run(workflow_id, run_id or ""))

    async def get_workflow_execution_history(
        self, request: Any, **options: Any
    ) -> GetWorkflowExecutionHistoryResponse:
        """Return the whole history of a run, or its last event if that is asked for."""
        run = self._run(request.execution.workflow_id, request.execution.run_id)
        response = GetWorkflowExecutionHistoryResponse()
        is_end = bool(request.history_event_filter_type > 1)
        response.history.events.extend(run.history.events[-1:] if is_end else run.history.events)
        return response

    async def get_workflow_execution_history_reverse(
        self, request: Any, **options: Any
    ) -> GetWorkflowExecutionHistoryReverseResponse:
        """Return a page of a history, from its end."""
        run = self._run(request.execution.workflow_id, request.execution.run_id)
        token = request.next_page_token
        end = int(token) if token else len(run.history)
        begin = max(end - _PAGE, 0)
        response = GetWorkflowExecutionHistoryReverseResponse()
        response.history.events.extend(reversed(run.history.events[begin:end]))
        response.next_page_token = str(begin).encode() if begin else b""
        return response

    async def describe_workflow_execution(
        self, request: Any, **options: Any
    ) -> DescribeWorkflowExecutionResponse:
        """Describe a run, or the last run of a workflow."""
        run = self._run(request.execution.workflow_id, request.execution.run_id)
        response = DescribeWorkflowExecutionResponse()
        info = response.workflow_execution_info
        info.execution.workflow_id, info.execution.run_id = run.id, run.begun.run_id
        info.type.name, info.first_run_id = run.begun.type, run.begun.first_run_id
        info.status = _STATUS[run.closed]
        info.start_time.CopyFrom(run.history.events[0].event_time)
        info.history_length, info.task_queue = len(run.history), TASK_QUEUE
        for name, value in memo_of(run).items():
            info.memo.fields[name].CopyFrom(value)
        if run.begun.parent is not None:
            info.parent_execution.workflow_id = run.begun.parent[0]
        if run.closed:
            info.close_time.CopyFrom(run.history.events[-1].event_time)
        return response

    async def list_search_attributes(
        self, request: Any, **options: Any
    ) -> ListSearchAttributesResponse:
        """Return that the namespace has no search attributes of Perdure."""
        return ListSearchAttributesResponse()

    def get_schedule_handle(self, schedule_id: str) -> SimulatedScheduleHandle:
        """Return a handle that reads a schedule."""
        return SimulatedScheduleHandle(self, schedule_id)

    async def describe_schedule(self, request: Any, **options: Any) -> DescribeScheduleResponse:
        """Describe a schedule.

        Raises:
            RPCError: There is none of this id.
        """
        if self.schedules is None:
            raise RPCError("schedule not found", RPCStatusCode.NOT_FOUND, b"")
        return self.schedules.described(request.schedule_id)

    async def update_schedule(
        self, request: UpdateScheduleRequest, **options: Any
    ) -> UpdateScheduleResponse:
        """Replace a schedule.

        Raises:
            RPCError: It has changed since it was read.
        """
        assert self.schedules is not None
        return self.schedules.update(request)

    def _run(self, workflow_id: str, run_id: str) -> SimulatedRun:
        for run in reversed(self._server.runs):
            if run.id == workflow_id and run_id in ("", run.begun.run_id):
                return run
        raise RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")


class SimulatedHandle:
    """The handle of a run, like `temporalio.client.WorkflowHandle`."""

    def __init__(self, run: SimulatedRun) -> None:
        self._run = run
        self.first_execution_run_id = run.begun.first_run_id

    async def fetch_history_events(
        self,
        *,
        event_filter_type: EventFilter = EventFilter.ALL_EVENT,
        **options: Any,
    ) -> AsyncIterator[HistoryEvent]:
        """Yield the events so far; with the filter, the event that has closed the run."""
        events = list(self._run.history.events)
        if event_filter_type is EventFilter.CLOSE_EVENT:
            events = events[-1:] if self._run.closed else []
        for event in events:
            yield event

    async def result(self) -> None:
        """Return at the end of the workflow; for a run that is not over, never."""
        if not self._run.closed:
            await asyncio.Event().wait()


class SimulatedScheduleHandle:
    """The handle of a schedule, like `temporalio.client.ScheduleHandle`."""

    def __init__(self, client: HistoryClient, schedule_id: str) -> None:
        self._client = client
        self._id = schedule_id

    async def describe(self) -> ScheduleDescription:
        """Describe the schedule.

        Raises:
            RPCError: There is none of this id.
        """
        request = DescribeScheduleRequest(schedule_id=self._id)
        response = await self._client.describe_schedule(request)
        return description_of(self._id, response)
