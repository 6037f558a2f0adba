"""Schedules over HTTP: turns that are started by the clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar

from pydantic import Field
from starlette.responses import Response

from perdure import limits
from perdure.base import Value
from perdure.clients.batches.items import BatchOf
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.ids import checked
from perdure.clients.gateway.inputs import Body, Nothing
from perdure.clients.gateway.operations import AnyOperation, Call, answer, done, operation
from perdure.clients.gateway.options import (
    AddBudget,
    Cancelled,
    CommonOptions,
    Limit,
    Paged,
    Reason,
    Reference,
    check_limits,
)
from perdure.clients.gateway.quotas import (
    check_batches,
    check_schedules,
    check_tasks,
    check_turns,
)
from perdure.clients.gateway.rest.batches import AtOnce, BatchTask
from perdure.clients.gateway.rest.turns import TurnList
from perdure.clients.schedules.definition import OnFailure
from perdure.clients.schedules.handle import Schedule
from perdure.clients.schedules.status import ScheduleEntry, ScheduleStatus, listed_entry
from perdure.turn.slot import IfRunning
from perdure.values.batch_items import OnError
from perdure.values.budgets import Budget
from perdure.values.tasks import Task
from perdure.values.webhooks import WebhookUrl

_LIMITS = frozenset(
    {"batch", "budget", "max_iterations", "allowed_tools", "options", "model_retry"}
)


class ScheduledTasks(Body):
    """The batch that is run at each time, instead of one turn.

    Attributes:
        tasks: The tasks: text, or objects. Without an id, a task has its number, from 1.
        at_once: The largest number of turns that run at the same time.
        turn_budget: The limits of each turn.
        on_error: What to do after a turn without an answer: `go on`, or `stop` to start no more.
    """

    most_values: ClassVar[int] = limits.HTTP_BATCH_VALUES

    tasks: Annotated[tuple[str | BatchTask, ...], Field(min_length=1, fail_fast=True)]
    at_once: AtOnce = 10
    turn_budget: Budget | None = None
    on_error: OnError = "go on"

    def given(self) -> BatchOf:
        """Return the same as an argument of the client."""
        tasks = [one if isinstance(one, str) else dict(one) for one in self.tasks]
        return BatchOf(tasks, self.at_once, self.turn_budget, self.on_error)


class _Timing(CommonOptions):
    """When turns are started."""

    most_values: ClassVar[int] = limits.HTTP_BATCH_VALUES

    context: dict[str, str] = {}
    if_running: IfRunning = "skip"
    catch_up: timedelta = limits.CATCH_UP
    on_failure: OnFailure = "go on"
    remember_last: bool = False
    jitter: timedelta | None = None
    starts: datetime | None = None
    ends: datetime | None = None
    on_done: WebhookUrl | None = None
    batch: ScheduledTasks | None = None

    def given(self) -> dict[str, Any]:
        """Return the fields of the request, as arguments of the client."""
        values = {**dict(self), **self.common(), "batch": self.batch and self.batch.given()}
        return {name: values[name] for name in self.model_fields_set}


class CreateSchedule(_Timing):
    """The schedule to create.

    Attributes:
        id: The schedule's id; with the same definition it is the same schedule.
        agent: The name of the agent.
        task: The task of each turn; none with a batch.
        cron: A cron expression of five fields, such as `0 7 * * 1-5`.
        timezone: The IANA name of its time zone.
        context: Named blocks that are placed before the task.
        if_running: What to do at a time at which a turn is running: `skip`, `queue`, `cancel` it,
            or `allow` both.
        catch_up: How late a turn may start whose time was missed.
        on_failure: `go on` after a turn that failed, or `pause`.
        remember_last: Whether a turn gets the output of the last one that completed.
        jitter: The largest random delay of a turn.
        starts: No turn starts before this time.
        ends: No turn starts after this time.
        on_done: The URL of the webhook of each turn.
        batch: The batch that is run at each time, instead of one turn; the budget is then that of
            each batch.
    """

    id: str
    agent: str
    task: str | Task = ""
    cron: str
    timezone: str


class ChangeSchedule(_Timing):
    """What to change; what is not named stays. The fields are those of a new schedule."""

    agent: str = ""
    task: str | Task = ""
    cron: str = ""
    timezone: str = ""


class ScheduleList(Value):
    """Schedules in a list."""

    schedules: tuple[ScheduleEntry, ...]


class Backfill(Body):
    """A range of time, both ends included, and whether its turns run at once."""

    start: datetime
    end: datetime
    at_once: bool = False


class Slots(Value):
    """The times of a schedule for which turns are started."""

    slots: tuple[datetime, ...]


@operation(
    "POST",
    "/v1/schedules",
    may="start",
    body=CreateSchedule,
    query=Nothing,
    answers={200: ScheduleStatus},
)
async def create_schedule(call: Call[CreateSchedule, Nothing]) -> Response:
    """Create a schedule, or find the one with its id and the same definition."""
    body = call.body
    check_limits(
        call.caller, body.budget, body.max_iterations, body.task, body.options, body.model_retry
    )
    _check_batch(call.caller, body.batch)
    schedule_id = checked(call, body.id)
    known = call.gateway.schedule_ids
    await check_schedules(call.client, call.caller, schedule_id, known)
    given = {**body.given(), "id": schedule_id, "fairness": call.caller.tenant}
    schedule = await call.client.create_schedule(**given)
    known.add(schedule_id)
    return answer(await schedule.status())


@operation(
    "GET", "/v1/schedules", may="read", body=Nothing, query=Limit, answers={200: ScheduleList}
)
async def list_schedules(call: Call[Nothing, Limit]) -> Response:
    """List schedules. The list may lag behind: a second, and some if there are many schedules."""
    found: list[ScheduleEntry] = []
    for schedule_id in await call.gateway.schedule_ids.of(call.client, call.caller):
        one = await listed_entry(call.client.temporal, schedule_id)
        found += [] if one is None else [one]
        if len(found) == call.query.limit:
            break
    return answer(ScheduleList(schedules=tuple(found)))


@operation(
    "GET",
    "/v1/schedules/{id:path}/turns",
    may="read",
    body=Nothing,
    query=Paged,
    answers={200: TurnList},
)
async def get_scheduled_turns(call: Call[Nothing, Paged]) -> Response:
    """List the turns of a schedule, page by page."""
    schedule = _schedule(call)
    await schedule.status()
    turns = schedule.turns()
    page = await turns.page(call.query.after, size=call.query.limit)
    return answer(TurnList(turns=page.entries, next=page.next))


@operation(
    "GET",
    "/v1/schedules/{id:path}",
    may="read",
    body=Nothing,
    query=Nothing,
    answers={200: ScheduleStatus},
)
async def get_schedule(call: Call[Nothing, Nothing]) -> Response:
    """Return the definition of a schedule, its next times, and its last turns."""
    return answer(await _schedule(call).status())


@operation(
    "PATCH",
    "/v1/schedules/{id:path}",
    may="start",
    body=ChangeSchedule,
    query=Nothing,
    answers={200: ScheduleStatus},
)
async def change_schedule(call: Call[ChangeSchedule, Nothing]) -> Response:
    """Change a schedule. Turns that run already are not affected.

    To set, change or remove limits, `allowed_tools`, `options` and `model_retry` needs the
    permission `budget`, as does a batch, which has limits of its own.
    """
    body, schedule = call.body, _schedule(call)
    if body.model_fields_set & _LIMITS:
        call.caller.require("budget")
    has_task = "task" in body.model_fields_set
    if has_task and (await schedule.status()).tasks is not None:
        call.caller.require("budget")
    _check_batch(call.caller, body.batch)
    if has_task and _limits_of(body.task) != _limits_of(await schedule.task()):
        call.caller.require("budget")
    await schedule.change(**body.given(), **_order(call))
    return answer(await schedule.status())


@operation(
    "DELETE",
    "/v1/schedules/{id:path}",
    may="control",
    body=Nothing,
    query=Nothing,
    answers={204: None},
)
async def delete_schedule(call: Call[Nothing, Nothing]) -> Response:
    """Delete a schedule. Its turns stay, and one that runs goes on."""
    await _schedule(call).delete()
    return done()


@operation(
    "POST",
    "/v1/schedules/{id:path}/run",
    may="start",
    body=Nothing,
    query=Nothing,
    answers={202: Reference},
)
async def run_schedule(call: Call[Nothing, Nothing]) -> Response:
    """Start a turn now, outside the schedule. A request that is repeated starts another one."""
    schedule = _schedule(call)
    await _check_starts(call, schedule, 1)
    return answer(Reference(id=await schedule.run_now()), 202)


@operation(
    "POST",
    "/v1/schedules/{id:path}/pause",
    may="control",
    body=Reason,
    query=Nothing,
    answers={204: None},
)
async def pause_schedule(call: Call[Reason, Nothing]) -> Response:
    """Start no more turns until the schedule is resumed."""
    await _schedule(call).pause(call.body.reason, by=call.caller.subject)
    return done()


@operation(
    "POST",
    "/v1/schedules/{id:path}/cancel",
    may="control",
    body=Reason,
    query=Nothing,
    answers={202: Cancelled},
)
async def cancel_schedule(call: Call[Reason, Nothing]) -> Response:
    """Cancel the turns that run, and start no more until the schedule is resumed."""
    cancelled = await _schedule(call).cancel(call.body.reason, by=call.caller.subject)
    return answer(Cancelled(cancelled=cancelled), 202)


@operation(
    "POST",
    "/v1/schedules/{id:path}/add-budget",
    may="budget",
    body=AddBudget,
    query=Nothing,
    answers={204: None},
)
async def add_to_schedule(call: Call[AddBudget, Nothing]) -> Response:
    """Add to the total budget of a schedule. A request that is repeated adds again."""
    await _schedule(call).add_budget(call.body.budget, by=call.caller.subject)
    return done()


@operation(
    "POST",
    "/v1/schedules/{id:path}/resume",
    may="control",
    body=Nothing,
    query=Nothing,
    answers={204: None},
)
async def resume_schedule(call: Call[Nothing, Nothing]) -> Response:
    """Start turns again. The times that passed meanwhile are not made up for."""
    await _schedule(call).resume(by=call.caller.subject)
    return done()


@operation(
    "POST",
    "/v1/schedules/{id:path}/backfill",
    may="start",
    body=Backfill,
    query=Nothing,
    answers={202: Slots},
)
async def backfill_schedule(call: Call[Backfill, Nothing]) -> Response:
    """Start a turn for each time of the schedule in a range that has none."""
    body = call.body
    schedule = _schedule(call)
    if call.caller.tenant is not None:
        missing = await schedule.missing(body.start, body.end)
        await _check_starts(call, schedule, len(missing))
    slots = await schedule.backfill(body.start, body.end, at_once=body.at_once)
    return answer(Slots(slots=slots), 202)


def _check_batch(caller: Caller, batch: ScheduledTasks | None) -> None:
    """Refuse limits that the caller may not set, and more tasks than a tenant may have.

    Raises:
        RefusedError: The caller may not.
    """
    if batch is None:
        return
    check_tasks(caller, len(batch.tasks))
    check_limits(caller, batch.turn_budget)
    for one in batch.tasks:
        check_limits(caller, None, None, one if isinstance(one, str) else one.task)


async def _check_starts(call: Call[Any, Any], schedule: Schedule, count: int) -> None:
    """Refuse to start turns or batches of a schedule by hand if the tenant would have too many.

    Raises:
        RefusedError: It would.
    """
    if call.caller.tenant is None:
        return
    tasks = (await schedule.status()).tasks
    if tasks is None:
        await check_turns(call.client, call.caller, None, count)
    else:
        await check_batches(call.client, call.caller, None, tasks, count)


def _order(call: Call[Any, Any]) -> dict[str, Any]:
    """Return the order of a tenant's turns, also for a schedule that was created without it."""
    return {} if call.caller.tenant is None else {"fairness": call.caller.tenant}


def _limits_of(task: str | Task) -> tuple[Any, ...]:
    """Return what a task sets for its turns besides its content."""
    if isinstance(task, str):
        task = Task(content=task)
    return task.budget, task.allowed_tools, task.requires_human_approval


def _schedule(call: Call[Any, Any]) -> Schedule:
    return call.client.schedule(call.id)


OPERATIONS: tuple[AnyOperation, ...] = (
    create_schedule,
    list_schedules,
    get_scheduled_turns,
    get_schedule,
    change_schedule,
    delete_schedule,
    run_schedule,
    pause_schedule,
    cancel_schedule,
    add_to_schedule,
    resume_schedule,
    backfill_schedule,
)
