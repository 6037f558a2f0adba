"""Schedules as Temporal stores them: made from a definition, and read again.

The times are calendars, which the server keeps as they are. Their comment has the cron expression.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from temporalio.api.schedule.v1 import ScheduleSpec as StoredSpec
from temporalio.api.schedule.v1 import StructuredCalendarSpec
from temporalio.api.workflowservice.v1 import DescribeScheduleResponse
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleCalendarSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.common import Priority, TypedSearchAttributes

from perdure import errors
from perdure.batch import plan as batch_plan
from perdure.clients.schedules import cron
from perdure.clients.schedules.cron import Cron, Range, Ranges
from perdure.clients.schedules.definition import Definition
from perdure.clients.turns.starting import packed
from perdure.temporal import start_request
from perdure.temporal.names import MEMO_BATCH, SCHEDULED_BATCH, SCHEDULED_MESSAGE, TURN
from perdure.temporal.schedule_updates import input_of
from perdure.text import markdown, word
from perdure.turn.slot import IfRunning
from perdure.turn.wire import TurnRequest

_OVERLAP: dict[IfRunning, ScheduleOverlapPolicy] = {
    "skip": ScheduleOverlapPolicy.SKIP,
    "queue": ScheduleOverlapPolicy.BUFFER_ONE,
    "cancel": ScheduleOverlapPolicy.CANCEL_OTHER,
    "allow": ScheduleOverlapPolicy.ALLOW_ALL,
}
STARTED = (TURN, SCHEDULED_MESSAGE, SCHEDULED_BATCH)
"""The types of the workflows that schedules of Perdure start."""

_IF_RUNNING = {int(policy): name for name, policy in _OVERLAP.items()}


def schedule_of(
    client: Client,
    definition: Definition,
    marks: TypedSearchAttributes | None,
    state: ScheduleState | None = None,
) -> Schedule:
    """Return the schedule for Temporal. `marks` are the search attributes of its turns.

    Raises:
        TooLargeError: The input of the turns is too large.
        InvalidRequestError: It cannot be written as JSON.
    """
    request = definition.input(datetime.now(UTC))
    kind, options = TURN, start_request.introduced(request, {})
    if request.session is not None:
        kind = SCHEDULED_MESSAGE
    elif definition.batch is not None:
        kind, marks = SCHEDULED_BATCH, None
        note = batch_plan.unstored(request)
        options["memo"] = {MEMO_BATCH: note.model_dump(mode="json")}
        options["static_summary"] = f"{markdown(word(request.agent))}: {note.items} tasks"
    action = ScheduleActionStartWorkflow(
        kind,
        packed(client, request),
        id=definition.id,
        task_queue=definition.task_queue,
        task_timeout=options["task_timeout"],
        memo=options["memo"],
        typed_search_attributes=marks or TypedSearchAttributes.empty,
        static_summary=options["static_summary"],
        priority=Priority(priority_key=definition.priority, fairness_key=definition.fairness),
    )
    return Schedule(
        action=action,
        spec=_spec(definition),
        policy=SchedulePolicy(
            overlap=_OVERLAP[definition.if_running],
            catchup_window=definition.catch_up,
            pause_on_failure=definition.on_failure == "pause",
        ),
        state=state or ScheduleState(),
    )


def _spec(definition: Definition) -> ScheduleSpec:
    return ScheduleSpec(
        calendars=_calendars(definition.cron),
        start_at=definition.starts,
        end_at=definition.ends,
        jitter=definition.jitter,
        time_zone_name=definition.timezone,
    )


def _calendars(times: Cron) -> list[ScheduleCalendarSpec]:
    return [
        ScheduleCalendarSpec(
            minute=_ranges(times.minutes),
            hour=_ranges(times.hours),
            day_of_month=_ranges(days.of_month),
            month=_ranges(times.months),
            day_of_week=_ranges(days.of_week),
            comment=times.text,
        )
        for days in times.days
    ]


def _ranges(ranges: Ranges) -> tuple[ScheduleRange, ...]:
    return tuple(ScheduleRange(range_.first, range_.last, range_.step) for range_ in ranges)


async def definition_of(
    client: Client, schedule_id: str, description: DescribeScheduleResponse
) -> Definition:
    """Return the definition of a schedule.

    Raises:
        ScheduleConflictError: Another program has created or changed it.
        PayloadDecodeError: This process lacks the codec or the key of the schedule.
    """
    stored = description.schedule
    request = await request_of(client, schedule_id, description)
    times = cron_of(stored.spec)
    if times is None or stored.policies.overlap_policy not in _IF_RUNNING:
        verb = "created" if request.schedule is None else "changed"
        raise errors.ScheduleConflictError(
            f"schedule {schedule_id!r} was {verb} by another program, with times or rules that"
            " Perdure cannot read; delete it and create it again",
            context={"schedule_id": schedule_id},
        )
    action, policies, spec = stored.action.start_workflow, stored.policies, stored.spec
    return Definition(
        id=schedule_id,
        task_queue=action.task_queue.name,
        request=request.model_copy(update={"schedule": None}),
        cron=times,
        timezone=spec.timezone_name,
        if_running=_IF_RUNNING[policies.overlap_policy],
        catch_up=policies.catchup_window.ToTimedelta(),
        on_failure="pause" if policies.pause_on_failure else "go on",
        remember_last=request.schedule is not None and request.schedule.remember_last,
        jitter=spec.jitter.ToTimedelta() if spec.HasField("jitter") else None,
        starts=_moment(spec, "start_time"),
        ends=_moment(spec, "end_time"),
        priority=action.priority.priority_key or None,
        fairness=action.priority.fairness_key or None,
        total=request.account.total if request.account else None,
        account=request.account,
        batch=request.schedule.batch if request.schedule else None,
        updates=(request.schedule.updates if request.schedule else None) or (),
        log=(request.schedule.log if request.schedule else None) or (),
    )


def cron_of(spec: StoredSpec) -> Cron | None:
    """Return the cron expression of a schedule; None if its times are of another kind."""
    if not spec.structured_calendar or not spec.structured_calendar[0].comment:
        return None
    try:
        times = cron.parse(spec.structured_calendar[0].comment)
    except errors.InvalidRequestError:
        return None
    first = (Range(0, 0),)
    ours = [(first, times.minutes, times.hours, times.months, *days, ()) for days in times.days]
    return times if list(map(_read, spec.structured_calendar)) == ours else None


def _read(calendar: StructuredCalendarSpec) -> tuple[Ranges, ...]:
    fields = (
        calendar.second,
        calendar.minute,
        calendar.hour,
        calendar.month,
        calendar.day_of_month,
        calendar.day_of_week,
        calendar.year,
    )
    return tuple(
        tuple(
            Range(range_.start, max(range_.start, range_.end), range_.step or 1) for range_ in field
        )
        for field in fields
    )


async def request_of(
    client: Client, schedule_id: str, description: DescribeScheduleResponse
) -> TurnRequest:
    """Return the input of the turns of a schedule, or of its messages.

    Raises:
        ScheduleConflictError: The schedule starts no turns of Perdure.
        PayloadDecodeError: This process lacks the codec or the key of the schedule.
    """
    action = description.schedule.action.start_workflow
    payloads = action.input.payloads
    if action.workflow_type.name not in STARTED or len(payloads) != 1:
        raise errors.ScheduleConflictError(
            f"there is a schedule {schedule_id!r} that starts no turns of Perdure, but"
            f" {action.workflow_type.name!r}; choose another id",
            context={"schedule_id": schedule_id},
        )
    return await input_of(client, description)


def _moment(spec: Any, name: str) -> datetime | None:
    return getattr(spec, name).ToDatetime(tzinfo=UTC) if spec.HasField(name) else None
