"""Schedules over HTTP: turns that are started by the clock."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar

from pydantic import Field

from perdure import limits
from perdure.base import Value
from perdure.clients.batches.items import BatchOf
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.ids import checked
from perdure.clients.gateway.inputs import Body
from perdure.clients.gateway.operations import Accepted, Call, operation
from perdure.clients.gateway.options import (
    AddBudget,
    Cancelled,
    CommonOptions,
    Paged,
    Reason,
    Reference,
    budget_of,
    check_limits,
)
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.quotas import (
    check_batches,
    check_schedules,
    check_tasks,
    check_turns,
)
from perdure.clients.gateway.rest.batches import (
    AtOnce,
    BatchTask,
    WatchResults,
    budgets_of,
    messages_of,
)
from perdure.clients.gateway.rest.turns import TurnList
from perdure.clients.gateway.streams import EventStream, begun
from perdure.clients.schedules.definition import OnFailure
from perdure.clients.schedules.handle import Schedule
from perdure.clients.schedules.status import (
    ScheduleEntry,
    ScheduleStatus,
    listed_entry,
)
from perdure.temporal.access import SCHEDULE
from perdure.turn.slot import IfRunning
from perdure.values.batch_items import OnError
from perdure.values.budgets import Budget
from perdure.values.tasks import Task
from perdure.values.turn_options import StoredOptions

_FREE = frozenset(
    {"labels", "instructions", "on_done", "on_wait", "output_schema", "subject", "version"}
)
"""The options of turns that a caller may change without the permission `budget`."""
_LIMITS = {"batch", "total", *StoredOptions.model_fields} - _FREE


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
        tasks = [task if isinstance(task, str) else dict(task) for task in self.tasks]
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
    total: Budget | None = None
    batch: ScheduledTasks | None = None

    def given(self, caller: Caller) -> dict[str, Any]:
        """Return the fields of the request, as arguments of the client."""
        values = {**dict(self), **self.common(caller), "batch": self.batch and self.batch.given()}
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
        total: The limits of what all turns together may spend, without a time. It needs the
            permission `budget`.
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
    """A page of schedules; `next` is None after the last one."""

    schedules: tuple[ScheduleEntry, ...]
    next: str | None = None


class Backfill(Body):
    """A range of time, both ends included, and whether its turns run at once."""

    start: datetime
    end: datetime
    at_once: bool = False


class Slots(Value):
    """The times of a schedule for which turns are started."""

    slots: tuple[datetime, ...]


@operation("POST", "/v1/schedules", may="start")
async def create_schedule(call: Call, body: CreateSchedule) -> ScheduleStatus:
    """Create a schedule, or find the one with its id and the same definition."""
    check_limits(call.caller, body, budget_of(body.task), body.total)
    _check_batch(call.caller, body.batch)
    schedule_id = checked(call, body.id)
    known = call.gateway.schedule_ids
    await check_schedules(call.client, call.caller, schedule_id, known)
    definition = {**body.given(call.caller), "id": schedule_id, "fairness": call.caller.tenant}
    schedule = await call.client.create_schedule(**definition, by=call.caller.subject)
    known.note(schedule_id, exists=True)
    return await schedule.status()


@operation("GET", "/v1/schedules", may="read")
async def list_schedules(call: Call, query: Paged) -> ScheduleList:
    """List schedules, page by page, in the order of their ids.

    The list may lag behind: a second, and some if there are many schedules.
    """
    entries: list[ScheduleEntry] = []
    known = sorted(await call.gateway.schedule_ids.of(call.client, call.caller))
    ids = known if query.after is None else [id for id in known if id > query.after]
    for schedule_id in ids:
        if len(entries) == query.limit:
            return ScheduleList(schedules=tuple(entries), next=entries[-1].id)
        entry = await listed_entry(call.client.temporal, schedule_id)
        entries += [] if entry is None else [entry]
    return ScheduleList(schedules=tuple(entries))


@operation("GET", "/v1/schedules/{id:path}/turns", may="read")
async def get_scheduled_turns(call: Call, query: Paged) -> TurnList:
    """List the turns of a schedule, page by page."""
    await _entry(call)
    turns = _schedule(call).turns()
    page = await turns.page(query.after, size=query.limit)
    return TurnList(turns=page.entries, next=page.next)


@operation("GET", "/v1/schedules/{id:path}/results", may="read")
async def watch_runs(call: Call, query: WatchResults) -> EventStream | None:
    """Stream what a schedule has started, each turn or batch as soon as it is over.

    It begins with the last ten turns that were started. The id of each message is the cursor of its
    result. A client that sends the last one as `Last-Event-ID` gets the results after it.
    """
    after = call.request.headers.get("last-event-id") or query.after
    with contextlib.ExitStack() as held:
        held.enter_context(call.stay_open())
        await _schedule(call).check()
        items = await begun(_schedule(call).results(after), held)
        return None if items is None else EventStream(messages_of(items), held.pop_all())


@operation("GET", "/v1/schedules/{id:path}", may="read")
async def get_schedule(call: Call) -> ScheduleStatus:
    """Return the definition of a schedule, its next times, and its last turns."""
    return await _schedule(call).status()


@operation("PATCH", "/v1/schedules/{id:path}", may="start")
async def change_schedule(call: Call, body: ChangeSchedule) -> ScheduleStatus:
    """Change a schedule. Turns that run already are not affected.

    To set, change or remove limits, `allowed_tools`, `options` and `model_retry` needs the
    permission `budget`, as does a batch, which has limits of its own.
    """
    schedule = _schedule(call)
    if body.model_fields_set & _LIMITS:
        call.caller.require("budget")
    if {"priority", "version"} & body.model_fields_set:
        call.caller.require("override")
    has_task = "task" in body.model_fields_set
    if has_task and (await schedule.status()).tasks is not None:
        call.caller.require("budget")
    _check_batch(call.caller, body.batch)
    if has_task and _limits_of(body.task) != _limits_of(await schedule.task()):
        call.caller.require("budget")
    await schedule.change(**body.given(call.caller), **_order(call), by=call.caller.subject)
    return await schedule.status()


@operation("DELETE", "/v1/schedules/{id:path}", may="control")
async def delete_schedule(call: Call) -> None:
    """Delete a schedule. Its turns stay, and a turn that runs continues."""
    await _schedule(call).delete(by=call.caller.subject)
    call.gateway.schedule_ids.note(call.id, exists=False)


@operation("POST", "/v1/schedules/{id:path}/run", may="start")
async def run_schedule(call: Call) -> Accepted[Reference]:
    """Start a turn now, outside the schedule. A request that is repeated starts another one."""
    await _check_starts(call, 1)
    return Reference(id=await _schedule(call).run_now(by=call.caller.subject))


@operation("POST", "/v1/schedules/{id:path}/pause", may="control")
async def pause_schedule(call: Call, body: Reason) -> None:
    """Start no more turns until the schedule is resumed."""
    await _schedule(call).pause(body.reason, by=call.caller.subject)


@operation("POST", "/v1/schedules/{id:path}/cancel", may="control")
async def cancel_schedule(call: Call, body: Reason) -> Accepted[Cancelled]:
    """Cancel the turns that run, and start no more until the schedule is resumed."""
    cancelled = await _schedule(call).cancel(body.reason, by=call.caller.subject)
    return Cancelled(cancelled=cancelled)


@operation("POST", "/v1/schedules/{id:path}/add-budget", may="budget")
async def add_to_schedule(call: Call, body: AddBudget) -> None:
    """Add to the total budget of a schedule. A request that is repeated adds again."""
    await _schedule(call).add_budget(body.budget, by=call.caller.subject)


@operation("POST", "/v1/schedules/{id:path}/resume", may="control")
async def resume_schedule(call: Call) -> None:
    """Start turns again. The times that passed meanwhile are not made up for."""
    await _schedule(call).resume(by=call.caller.subject)


@operation("POST", "/v1/schedules/{id:path}/backfill", may="start")
async def backfill_schedule(call: Call, body: Backfill) -> Accepted[Slots]:
    """Start a turn for each time of the schedule in a range that has none."""
    schedule = _schedule(call)
    await _check_backfill(call, body, schedule)
    slots = await schedule.backfill(
        body.start, body.end, at_once=body.at_once, by=call.caller.subject
    )
    return Slots(slots=slots)


def _check_batch(caller: Caller, batch: ScheduledTasks | None) -> None:
    """Refuse limits that the caller may not set, and more tasks than a tenant may have.

    Raises:
        RefusedError: The caller may not.
    """
    if batch is None:
        return
    check_tasks(caller, len(batch.tasks))
    check_limits(caller, batch, batch.turn_budget, *budgets_of(batch.tasks))


async def _check_backfill(call: Call, body: Backfill, schedule: Schedule) -> None:
    """Refuse a backfill if the tenant would have too much at the same time.

    Unless they run at once, turns begin one after the other and count as one. The times that have
    no turn are asked for only where their number matters, because Temporal is asked about each.

    Raises:
        RefusedError: It would.
    """
    if call.caller.tenant is None:
        return
    if not body.at_once:
        try:
            await _check_starts(call, 1)
        except RefusedError:
            if await schedule.missing(body.start, body.end):
                raise
        return
    await _check_starts(call, len(await schedule.missing(body.start, body.end)))


async def _check_starts(call: Call, count: int) -> None:
    """Refuse to start turns or batches of a schedule by hand if the tenant would have too many.

    Raises:
        RefusedError: It would.
    """
    if call.caller.tenant is None:
        return
    tasks = (await _entry(call)).tasks
    if tasks is None:
        await check_turns(call.client, call.caller, None, count)
    else:
        await check_batches(call.client, call.caller, None, tasks, count)


def _order(call: Call) -> dict[str, Any]:
    """Return the order of a tenant's turns, also for a schedule that was created without it."""
    return {} if call.caller.tenant is None else {"fairness": call.caller.tenant}


def _limits_of(task: str | Task) -> tuple[Any, ...]:
    """Return what a task sets for its turns besides its content."""
    if isinstance(task, str):
        task = Task(content=task)
    return task.budget, task.allowed_tools, task.requires_human_approval


def _schedule(call: Call) -> Schedule:
    return call.client.schedule(call.id)


async def _entry(call: Call) -> ScheduleEntry:
    """Return a schedule as lists have it, also one that another program has changed.

    Raises:
        ScheduleNotFoundError: There is none.
    """
    entry = await listed_entry(call.client.temporal, call.id)
    if entry is None:
        raise SCHEDULE.missing(call.id)
    return entry
