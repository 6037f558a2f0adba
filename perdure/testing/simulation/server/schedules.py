"""Schedules of the simulated server: they start a workflow at each of their times.

A time at which a workflow of the schedule runs is treated as the schedule's policy says. An update
is refused if the schedule has changed since it was read, and at times although it has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.schedule.v1 import Schedule, ScheduleActionResult
from temporalio.api.workflowservice.v1 import (
    DescribeScheduleResponse,
    UpdateScheduleRequest,
    UpdateScheduleResponse,
)
from temporalio.client import ScheduleOverlapPolicy
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from perdure.temporal.search_attributes import SCHEDULED_FOR
from perdure.testing.simulation.server.history import name_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.sdk import BegunRun
from perdure.testing.simulation.server.server import SimulatedServer

ABOUT_SCHEDULES = "schedules"
"""The sequence of what happens to schedules."""

_FAILED = ("WORKFLOW_EXECUTION_FAILED", "WORKFLOW_EXECUTION_TIMED_OUT")
_CLOSED = (
    *_FAILED,
    *("WORKFLOW_EXECUTION_COMPLETED", "WORKFLOW_EXECUTION_CANCELED"),
    "WORKFLOW_EXECUTION_TERMINATED",
)


@dataclass(eq=False)
class StoredSchedule:
    """A schedule as the server keeps it.

    Attributes:
        stored: What it starts, and its policies.
        token: Changes with each update.
        begun: The times for which it has started something, by the id of the workflow.
        buffered: The time whose start waits for the end of what runs; None without one.
    """

    id: str
    stored: Schedule
    token: int = 1
    begun: dict[str, datetime] = field(default_factory=dict)
    buffered: datetime | None = None
    actions: list[ScheduleActionResult] = field(default_factory=list)

    @property
    def is_paused(self) -> bool:
        """Whether it starts nothing for now."""
        return self.stored.state.paused


class SimulatedSchedules:
    """The schedules of a server."""

    def __init__(self, server: SimulatedServer, task_timeout: timedelta) -> None:
        self._server = server
        self._task_timeout = task_timeout
        self._schedules: dict[str, StoredSchedule] = {}
        self._updates: dict[str, str] = {}
        server.on_event.append(self._watch)

    def create(
        self, schedule_id: str, stored: Schedule, times: Sequence[datetime]
    ) -> StoredSchedule:
        """Store a schedule, which starts something at these times."""
        made = self._schedules[schedule_id] = StoredSchedule(schedule_id, stored)
        now = self._now()
        for at in times:
            self._server.clock.later((at - now).total_seconds(), partial(self._due, made, at))
        return made

    def described(self, schedule_id: str) -> DescribeScheduleResponse:
        """Describe a schedule.

        Raises:
            RPCError: There is none of this id.
        """
        schedule = self._schedules.get(schedule_id)
        if schedule is None:
            raise RPCError("schedule not found", RPCStatusCode.NOT_FOUND, b"")
        response = DescribeScheduleResponse(conflict_token=str(schedule.token).encode())
        response.schedule.CopyFrom(schedule.stored)
        response.info.recent_actions.extend(schedule.actions[-10:])
        return response

    def update(self, request: UpdateScheduleRequest) -> UpdateScheduleResponse:
        """Replace a schedule.

        Raises:
            RPCError: It has changed since it was read.
        """
        schedule = self._schedules[request.schedule_id]
        is_late = request.conflict_token != str(schedule.token).encode()
        if is_late or self._server.choices.happens(4, beside=ABOUT_SCHEDULES):
            raise RPCError("it has changed", RPCStatusCode.FAILED_PRECONDITION, b"")
        self._updates[request.request_id] = f"{len(self._updates) + 1:08x}"
        schedule.stored.CopyFrom(request.schedule)
        schedule.token += 1
        return UpdateScheduleResponse()

    def pause(self, schedule: StoredSchedule, *, is_paused: bool) -> None:
        """Pause a schedule, or let it go on."""
        schedule.stored.state.paused = is_paused
        schedule.token += 1

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._server.clock.now_ns / 1e9, UTC)

    def _due(self, schedule: StoredSchedule, at: datetime) -> None:
        """Start something for a time, unless the policy of the schedule is against it."""
        running = self._running(schedule)
        policy = ScheduleOverlapPolicy(schedule.stored.policies.overlap_policy)
        self._server.counts["slots"] += 1
        if schedule.is_paused:
            self._server.counts["slots of paused schedules"] += 1
        elif not running or policy == ScheduleOverlapPolicy.ALLOW_ALL:
            self._start(schedule, at)
        elif policy == ScheduleOverlapPolicy.SKIP:
            self._server.counts["skipped slots"] += 1
        else:
            schedule.buffered = schedule.buffered or at
            for run in running if policy == ScheduleOverlapPolicy.CANCEL_OTHER else ():
                self._server.cancel(run, "the next time of the schedule has come")

    def _running(self, schedule: StoredSchedule) -> list[SimulatedRun]:
        runs = [self._server.run_of(workflow_id) for workflow_id in schedule.begun]
        return [run for run in runs if run is not None]

    def _start(self, schedule: StoredSchedule, at: datetime) -> None:
        action, run_id = schedule.stored.action.start_workflow, self._server.new_run_id()
        workflow_id = f"{schedule.id}-{at:%Y-%m-%dT%H:%M:%SZ}"
        begun = BegunRun(
            workflow_id,
            run_id,
            run_id,
            action.workflow_type.name,
            0,
            memo=tuple(dict(action.memo.fields).items()),
            task_timeout=self._task_timeout,
            search_attributes=TypedSearchAttributes([SearchAttributePair(SCHEDULED_FOR, at)]),
        )
        schedule.begun[workflow_id] = at
        result = ScheduleActionResult(
            start_workflow_result=WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
        )
        result.actual_time.FromDatetime(self._now())
        schedule.actions.append(result)
        self._server.counts["started by schedules"] += 1
        [payload] = action.input.payloads
        self._server.start(begun, [self._repeatable(payload)])

    def _repeatable(self, payload: Payload) -> Payload:
        """Return an input whose random ids of updates follow from the seed."""
        data = payload.data
        for update_id, known in self._updates.items():
            data = data.replace(update_id.encode(), known.encode())
        return Payload(metadata=payload.metadata, data=data)

    def _watch(self, run: SimulatedRun) -> None:
        """Hear of the end of what a schedule has started."""
        name = name_of(run.history.events[-1])
        for schedule in self._schedules.values() if name in _CLOSED else ():
            if run.id in schedule.begun:
                self._server.clock.later(0, partial(self._ended, schedule, name))

    def _ended(self, schedule: StoredSchedule, name: str) -> None:
        if name in _FAILED and schedule.stored.policies.pause_on_failure:
            self.pause(schedule, is_paused=True)
        at = schedule.buffered
        if at is not None and not self._running(schedule):
            schedule.buffered = None
            if not schedule.is_paused:
                self._start(schedule, at)
