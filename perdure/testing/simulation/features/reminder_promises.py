"""What Perdure promises about the reminders of a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from temporalio.api.history.v1 import HistoryEvent
from temporalio.common import RawValue

from perdure.session.facts import ReminderDue
from perdure.session.wire import Remind
from perdure.temporal.names import CLOSE, FORGET_REMINDER, MEMO_REMINDER, REMIND
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.observations import MessageFates, Simulated, sessions
from perdure.testing.simulation.server.history import (
    RESET,
    attributes,
    name_of,
    time_of,
)
from perdure.testing.simulation.server.runs import SimulatedRun, UpdateResponse
from perdure.testing.simulation.server.server import BrokenError

PROMISE = "reminders come once"

_LATE = timedelta(minutes=2)
"""So late may a reminder be, as workflow tasks are lost and done again."""
_EARLY = timedelta(milliseconds=1)
"""So early may it be: the SDK rounds the time of a timer down, to a nanosecond."""
_NEVER = datetime.min.replace(tzinfo=UTC)


class _Came(NamedTuple):
    """When a reminder came, and when its session was reset before that, if it was."""

    at: datetime
    reset_at: datetime


def reminders_come_once(simulated: Simulated) -> None:
    """A reminder that was accepted comes once, when it is due and not before, unless given up.

    Neither a new run of the session nor a lost task loses it. It is a message to the session then.
    A session that ends before that names it. After a reset to a point before it came, it comes
    again, at once if it is due.
    """
    differ = timedelta(seconds=simulated.server.clock.differ_s)
    for runs in sessions(simulated.server).values():
        accepted = [one.removeprefix(f"{REMIND}-") for one in _accepted(runs, REMIND)]
        forgotten = [
            one.removeprefix(f"{FORGET_REMINDER}-") for one in _accepted(runs, FORGET_REMINDER)
        ]
        came = _came(runs)
        _check_moments(runs, came, differ)
        _check_messages(runs, came)
        last = runs[-1]
        left = [reminder.id for reminder in last.session.reminders]
        known = Counter([*came, *left])
        if lost := [one for one in accepted if not known[one] and one not in forgotten]:
            raise BrokenError(PROMISE, f"nothing is known of {lost}", last)
        if twice := [one for one, count in known.items() if count > 1]:
            raise BrokenError(PROMISE, f"{twice} came, and are to come", last)
        closed_at = _closed_at(runs)
        reset_at = max(map(_reset_at, runs))
        late = [
            one.id
            for one in last.session.reminders
            if max(one.at, reset_at) + _LATE + differ < closed_at
        ]
        if late:
            raise BrokenError(PROMISE, f"these never came: {late}", last)
        if left and last.closed and last.session.closed is None and not last.is_cancelled:
            raise BrokenError(PROMISE, f"the session ends by itself before {left}", last)


def _accepted(runs: Sequence[SimulatedRun], name: str) -> list[str]:
    """Return the ids of the updates of a name that were answered without an error."""
    return [
        update.id
        for run in runs
        for update in run.updates.values()
        if update.request.input.name == name and update.answer is UpdateResponse.COMPLETED
    ]


def _closed_at(runs: Sequence[SimulatedRun]) -> datetime:
    """Return when a session was closed, or began to end: then it takes no reminder any more.

    Its last turn may go on for long after that.
    """
    for run in runs:
        for event in run.history.events:
            if name_of(event) == "WORKFLOW_EXECUTION_CANCEL_REQUESTED":
                return time_of(event)
            if name_of(event) == "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
                update = run.updates[attributes(event).protocol_instance_id]
                if update.request.input.name == CLOSE:
                    return time_of(event)
    return time_of(runs[-1].history.events[-1])


def _came(runs: Sequence[SimulatedRun]) -> dict[str, _Came]:
    """Return when each reminder came.

    Raises:
        BrokenError: One came twice.
    """
    found: dict[str, _Came] = {}
    reset_at = _NEVER
    for run in runs:
        ids = [fact.id for fact in run.session_facts if isinstance(fact, ReminderDue)]
        for reminder_id, moment in zip(ids, _moments(run, reset_at), strict=True):
            if reminder_id in found:
                raise BrokenError(PROMISE, f"{reminder_id} came twice", run)
            found[reminder_id] = moment
        reset_at = max(reset_at, _reset_at(run))
    return found


def _moments(run: SimulatedRun, reset_at: datetime) -> Iterator[_Came]:
    """Yield the times at which a run was reminded; a run before it was reset at a time."""
    for event in run.history.events:
        if _is_reset(event):
            reset_at = time_of(event)
        if name_of(event) == "WORKFLOW_PROPERTIES_MODIFIED" and (
            MEMO_REMINDER in attributes(event).upserted_memo.fields
        ):
            yield _Came(time_of(event), reset_at)


def _reset_at(run: SimulatedRun) -> datetime:
    """Return when the reset was that has made a run."""
    return max((time_of(event) for event in run.history.events if _is_reset(event)), default=_NEVER)


def _is_reset(event: HistoryEvent) -> bool:
    is_failure = name_of(event) == "WORKFLOW_TASK_FAILED"
    return is_failure and bool(attributes(event).cause == RESET)


def _check_moments(runs: Sequence[SimulatedRun], came: dict[str, _Came], differ: timedelta) -> None:
    for run in runs:
        for update in run.updates.values():
            reminder_id = update.id.removeprefix(f"{REMIND}-")
            if update.request.input.name != REMIND or reminder_id not in came:
                continue
            [payload] = update.request.input.args.payloads
            planned, moment = unpack(RawValue(payload), Remind).at, came[reminder_id]
            latest = max(planned, moment.reset_at) + _LATE + differ
            if not planned - _EARLY - differ <= moment.at <= latest:
                message = f"{reminder_id} came at {moment.at}, and was planned for {planned}"
                raise BrokenError(PROMISE, message, run)


def _check_messages(runs: Sequence[SimulatedRun], came: dict[str, _Came]) -> None:
    """Check that what came is a message once: read, left, or taken back."""
    fates = MessageFates(fact for run in runs for fact in run.session_facts)
    known = Counter([*fates.read, *fates.left, *fates.taken_back])
    for reminder_id in came:
        if known[f"reminder-{reminder_id}"] != 1:
            message = f"{reminder_id} is {known[f'reminder-{reminder_id}']} messages: {fates}"
            raise BrokenError(PROMISE, message, runs[-1])
