"""What a schedule is and does, as values, from the server's description of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import NamedTuple

from temporalio.api.schedule.v1 import ScheduleActionResult, ScheduleInfo
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeScheduleResponse
from temporalio.client import Client
from temporalio.converter import decode_typed_search_attributes
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.base import Value
from perdure.clients.batches.handle import note_in, status_of
from perdure.clients.batches.listing import error_of
from perdure.clients.batches.status import BatchStatus
from perdure.clients.schedules import messages, server, zones
from perdure.clients.schedules.definition import Definition, OnFailure
from perdure.clients.schedules.stored import definition_of, request_of
from perdure.clients.turns.entries import TurnEntry, entry_of
from perdure.errors import ErrorInfo
from perdure.temporal.encryption import codec as encryption
from perdure.temporal.encryption import data_subjects
from perdure.temporal.histories.runs import describe_last
from perdure.temporal.names import BATCHES, SCHEDULED_MESSAGE
from perdure.turn.slot import IfRunning, ScheduleLogEntry, Slot
from perdure.values import states
from perdure.values.batch_items import OnError
from perdure.values.budgets import NOTHING, Budget, Spending
from perdure.values.reports import Outcome
from perdure.values.states import State
from perdure.values.tasks import headline

_BY = "\nby "
"""What separates the name in a note from its text, which is one line."""


class ScheduledTurn(Value):
    """A turn or a batch that a schedule started, or the turn that read a message of it.

    Attributes:
        id: The turn's id; `client.turn(turn.id)` follows it. Empty if no turn has read the message,
            or if the session no longer knows which. The id of a batch is for `client.batch`.
        at: The time for which it was scheduled, in the time zone of the schedule.
        is_by_hand: Whether it was started by hand, outside the schedule.
        started_at: The time it was started.
        state: The state of the turn or batch; None if its retention is over, and for a message that
            no turn has read.
        outcome: The outcome; None before the end, if its retention is over, and for a batch.
        spent: The cost in USD; None before the end, and if it is unknown.
        ended_at: The time it ended; None before the end, and if its retention is over.
        message: The id of the message to the session; empty without a session.
        is_skipped: Whether the message was not sent because a turn of the session ran.
        error: The reason why the session did not get the message, or why the schedule paused
            instead; or why the turn or batch has no answer, as lists say it. None otherwise.
        batch: The status of the batch; None for a turn, and if its retention is over.
        agent: The name of the agent; empty if it is not known.
        by: The person or program that has started it by hand; None otherwise, without a name, and
            if that was more than ten requests ago.
    """

    id: str
    at: datetime
    is_by_hand: bool = False
    started_at: datetime
    state: State | None = None
    outcome: Outcome | None = None
    spent: Decimal | None = None
    ended_at: datetime | None = None
    message: str = ""
    is_skipped: bool = False
    error: ErrorInfo | None = None
    batch: BatchStatus | None = None
    agent: str = ""
    by: str | None = None


class ScheduleResult(ScheduledTurn):
    """A turn or a batch of a schedule that is over, or a message that was refused or skipped.

    Attributes:
        cursor: The place of this result, to read on after it.
    """

    cursor: str = ""


class Start(NamedTuple):
    """A start of a schedule, as Temporal keeps it.

    Attributes:
        id: The id of the workflow.
        run_id: Temporal's id of its first run; empty for the latest.
        started_at: The time at which it was started.
        scheduled: The time for which it was started, if its id does not have it.
    """

    id: str
    run_id: str
    started_at: datetime
    scheduled: datetime | None = None

    @classmethod
    def of(cls, action: ScheduleActionResult) -> Start:
        """Return the start that an action of the schedule has made."""
        run = action.start_workflow_result
        return cls(
            run.workflow_id,
            run.run_id,
            action.actual_time.ToDatetime(tzinfo=UTC),
            action.schedule_time.ToDatetime(tzinfo=UTC),
        )


class ScheduleEntry(Value):
    """A schedule in a list. Its times are in its time zone.

    Attributes:
        id: The schedule's id; `client.schedule(entry.id)` is its handle.
        agent: The name of the agent of its turns.
        task: The task, in one line.
        cron: The cron expression.
        timezone: The IANA name of the time zone.
        state: Whether it starts turns: `active`, or `paused`.
        started_at: The time it was created.
        ended_at: None: a schedule does not end, it is deleted.
        is_paused: Whether it is paused.
        reason: The reason why it is paused; empty otherwise.
        by: The person or program that has paused it; None otherwise, and without a name.
        next: The next times at which it starts turns, jitter included, at most ten; empty while it
            is paused.
        running: The ids of its turns that are not over, as far as Temporal keeps count: without
            those that `allow` started beside another one. With a session, the ids of its messages
            that are being sent.
        error: The reason why the entry lacks the agent, the task or the times: this process cannot
            decode them, or another program has created or changed the schedule. None for all other
            entries.
        session: The id of the session that gets its messages; None if it starts turns or batches.
        tasks: The number of tasks of the batch that it runs at each time; None without a batch.
    """

    id: str
    agent: str = ""
    task: str = ""
    cron: str = ""
    timezone: str = ""
    state: states.OfSchedule = State.ACTIVE
    started_at: datetime
    ended_at: datetime | None = None
    is_paused: bool = False
    reason: str = ""
    by: str | None = None
    next: tuple[datetime, ...] = ()
    running: tuple[str, ...] = ()
    error: ErrorInfo | None = None
    session: str | None = None
    tasks: int | None = None


class ScheduleStatus(ScheduleEntry):
    """The status of a schedule.

    Attributes:
        task_queue: The task queue of its turns.
        labels: The labels of its turns.
        budget: The budget of each turn, without that of its agent, or of each batch.
        at_once: The largest number of turns of a batch at the same time; None without a batch.
        turn_budget: The budget of each turn of a batch.
        on_error: What a batch does after a turn without an answer; None without a batch.
        total: The budget of all turns together; None without one.
        spent: What they have spent of it, as far as they are over.
        if_running: What happens at a time at which a turn is running.
        catch_up: How late a missed time may be run.
        on_failure: What happens after a turn that failed.
        remember_last: Whether a turn gets the output of the one before.
        jitter: The largest random delay of a turn; None for no delay.
        starts: The time before which no turn starts; None without one.
        ends: The time after which no turn starts; None without one.
        last: The last turns, at most ten, the newest first.
        started: The number of turns that it has started.
        skipped: The number of times that were skipped because a turn was running.
        missed: The number of times that were missed for longer than `catch_up`.
        created_at: The time it was created.
        log: The last requests to it that had a name, at most ten, the newest first: pauses,
            resumes, cancels, runs by hand, and additions to its budget.
    """

    task_queue: str = ""
    labels: dict[str, str] = {}
    budget: Budget | None = None
    at_once: int | None = None
    turn_budget: Budget | None = None
    on_error: OnError | None = None
    total: Budget | None = None
    spent: Spending = NOTHING
    if_running: IfRunning = "skip"
    catch_up: timedelta = timedelta()
    on_failure: OnFailure = "go on"
    remember_last: bool = False
    jitter: timedelta | None = None
    starts: datetime | None = None
    ends: datetime | None = None
    last: tuple[ScheduledTurn, ...] = ()
    started: int = 0
    skipped: int = 0
    missed: int = 0
    created_at: datetime
    log: tuple[ScheduleLogEntry, ...] = ()


def note_of(
    client: Client, description: DescribeScheduleResponse, text: str, by: str | None
) -> str:
    """Return the note of a schedule about what was done last, and who has done it.

    It is hidden if the connection encrypts, with the key of the schedule.
    """
    note = text if by is None else f"{text}{_BY}{by}"
    data_key = data_subjects.key_of_schedule(description)
    return encryption.hidden(note, client.data_converter.payload_codec, data_key)


def _read_note(client: Client, note: str) -> tuple[str, str | None]:
    """Return the text of a note, and the name in it."""
    text, _, by = encryption.revealed(note, client.data_converter.payload_codec).partition(_BY)
    return text, by or None


async def listed_entry(client: Client, schedule_id: str) -> ScheduleEntry | None:
    """Return the entry of a schedule of a list; None if it was deleted meanwhile.

    Raises:
        ServerUnreachableError: Temporal does not answer.
    """
    try:
        description = await server.described(client, schedule_id)
    except errors.ScheduleNotFoundError:
        return None
    return await _entry(client, schedule_id, description)


async def _entry(
    client: Client, schedule_id: str, description: DescribeScheduleResponse
) -> ScheduleEntry:
    state, info = description.schedule.state, description.info
    reason, by = _read_note(client, state.notes) if state.paused else ("", None)
    known = ScheduleEntry(
        id=schedule_id,
        state=State.PAUSED if state.paused else State.ACTIVE,
        started_at=info.create_time.ToDatetime(tzinfo=UTC),
        is_paused=state.paused,
        reason=reason,
        by=by,
        running=tuple(workflow.workflow_id for workflow in info.running_workflows),
    )
    try:
        request = await request_of(client, schedule_id, description)
        batch = request.schedule.batch if request.schedule else None
        fields = {
            "agent": request.agent,
            "task": headline(request.task),
            "session": request.session,
            "tasks": None if batch is None else len(batch.items),
        }
        known = known.model_copy(update=fields)
        definition = await definition_of(client, schedule_id, description)
    except errors.PerdureError as error:
        return known.model_copy(update={"error": error.info()})
    times = {
        "cron": definition.cron.text,
        "timezone": definition.timezone,
        "started_at": known.started_at.astimezone(zone_of(definition)),
        "next": () if state.paused else _next(info, zone_of(definition)),
    }
    return known.model_copy(update=times)


async def status(
    client: Client, schedule_id: str, description: DescribeScheduleResponse
) -> ScheduleStatus:
    """Return the status of a schedule.

    Raises:
        ScheduleConflictError: Another program has created or changed the schedule.
        PayloadDecodeError: This process lacks the codec or the key of the schedule.
        RPCError: The server does not answer.
    """
    definition = await definition_of(client, schedule_id, description)
    time_zone, info, batch = zone_of(definition), description.info, definition.batch
    session_id = definition.request.session
    read = await messages.turns_of(client, session_id) if session_id is not None else None
    names = names_of(definition)
    recent = (
        run_of(client, schedule_id, time_zone, Start.of(action), read, names)
        for action in reversed(info.recent_actions)
    )
    return ScheduleStatus(
        **dict(await _entry(client, schedule_id, description)),
        task_queue=definition.task_queue,
        labels=definition.request.labels,
        budget=definition.request.given_budget,
        at_once=None if batch is None else batch.at_once,
        turn_budget=None if batch is None else batch.turn_budget,
        on_error=None if batch is None else batch.on_error,
        total=definition.total,
        spent=definition.account.spent if definition.account else NOTHING,
        if_running=definition.if_running,
        catch_up=definition.catch_up,
        on_failure=definition.on_failure,
        remember_last=definition.remember_last,
        jitter=definition.jitter,
        starts=definition.starts and definition.starts.astimezone(time_zone),
        ends=definition.ends and definition.ends.astimezone(time_zone),
        last=tuple(await asyncio.gather(*recent)),
        started=info.action_count,
        skipped=info.overlap_skipped,
        missed=info.missed_catchup_window,
        created_at=info.create_time.ToDatetime(tzinfo=UTC).astimezone(time_zone),
        log=definition.log[::-1],
    )


def names_of(definition: Definition) -> Mapping[str, str]:
    """Return who has started turns by hand, by the ids of what was started."""
    return {entry.id: entry.by for entry in definition.log if entry.id and entry.by}


def zone_of(definition: Definition) -> tzinfo:
    """Return the time zone, or UTC if this machine does not know it."""
    try:
        return zones.zone(definition.timezone)
    except errors.PerdureError:
        return UTC


def _next(info: ScheduleInfo, time_zone: tzinfo) -> tuple[datetime, ...]:
    """Return the next times; the server may still name a time that has just passed."""
    now = datetime.now(UTC)
    times = (at.ToDatetime(tzinfo=UTC) for at in info.future_action_times)
    return tuple(at.astimezone(time_zone) for at in times if at > now)


async def run_of(
    client: Client,
    schedule_id: str,
    time_zone: tzinfo,
    start: Start,
    read: Mapping[str, str] | None,
    names: Mapping[str, str],
) -> ScheduledTurn:
    """Return what a start of the schedule has become, with what its own memo says about its end.

    `read` has the turns that read the messages to the session, if there is one. `names` has who has
    started what by hand.

    Raises:
        RPCError: The server does not answer.
    """
    at = slot_of(schedule_id, start.id) or start.scheduled or start.started_at
    turn = ScheduledTurn(
        id=start.id,
        at=at.astimezone(time_zone),
        is_by_hand=Slot(at=at).is_by_hand,
        started_at=start.started_at.astimezone(time_zone),
        by=names.get(start.id),
    )
    info = await _info_of(client, start.id, start.run_id)
    if read is not None and (info is None or info.type.name == SCHEDULED_MESSAGE):
        turn_id = read.get(start.id, "")
        turn = turn.model_copy(update={"id": turn_id, "message": start.id})
        if not turn_id:
            return turn.model_copy(update=await messages.fate_of(client, start.id, start.run_id))
        info = await _info_of(client, turn_id, "")
    if info is None:
        return turn
    return turn.model_copy(update=_known(await _turn_or_batch(client, info), time_zone))


def _known(entry: TurnEntry | BatchStatus, time_zone: tzinfo) -> Mapping[str, object]:
    """Return the fields of `ScheduledTurn` about a turn or a batch."""
    ended_at = entry.ended_at and entry.ended_at.astimezone(time_zone)
    fields: dict[str, object] = {"agent": entry.agent, "state": entry.state, "ended_at": ended_at}
    if isinstance(entry, BatchStatus):
        spent = entry.cost if entry.ended_at else None
        return {**fields, "batch": entry, "spent": spent, "error": error_of(entry.state)}
    return {**fields, "outcome": entry.outcome, "spent": entry.spent, "error": entry.error}


async def _info_of(client: Client, id: str, run_id: str) -> WorkflowExecutionInfo | None:
    """Return what the server knows of a workflow; None if its retention is over.

    Raises:
        RPCError: The server does not answer.
    """
    try:
        return (await describe_last(client, id, run_id, retry=True)).workflow_execution_info
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def _turn_or_batch(client: Client, info: WorkflowExecutionInfo) -> TurnEntry | BatchStatus:
    """Return the entry of a turn, or the status of a batch."""
    if info.type.name in BATCHES:
        return status_of(info, await note_in(client, info))
    attributes = decode_typed_search_attributes(info.search_attributes)
    return await entry_of(client, info, attributes)


def slot_of(schedule_id: str, turn_id: str) -> datetime | None:
    """Return the slot of a turn from its id; None if the id has none."""
    prefix = f"{schedule_id}-"
    if not turn_id.startswith(prefix):
        return None
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(turn_id.removeprefix(prefix))
    return None
