"""A schedule that exists."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Unpack

from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import JsonValue
from temporalio.api.schedule.v1 import SchedulePatch, TriggerImmediatelyRequest
from temporalio.api.workflowservice.v1 import (
    DescribeScheduleResponse,
    ListScheduleMatchingTimesRequest,
)
from temporalio.client import (
    ScheduleBackfill,
    ScheduleDescription,
    ScheduleOverlapPolicy,
)
from temporalio.service import RPCError

from perdure import errors, limits, validation
from perdure.clients.schedules import batches, messages, server, zones
from perdure.clients.schedules.definition import (
    MOMENT,
    Definition,
    ScheduleChanges,
    turn_id_of,
)
from perdure.clients.schedules.readable import ReadableSchedule
from perdure.clients.schedules.status import note_of
from perdure.clients.schedules.stored import definition_of, request_of, schedule_of
from perdure.clients.turns import cancelling
from perdure.temporal import schedule_updates
from perdure.temporal.access import SCHEDULE
from perdure.temporal.acts import sources
from perdure.temporal.histories.runs import describe
from perdure.temporal.names import SCHEDULED_MESSAGE
from perdure.text import described, one_line
from perdure.turn.slot import ScheduleLogEntry, ScheduleVerb, Slot
from perdure.values import keywords
from perdure.values.budgets import ABudget

logger = logging.getLogger("perdure")

_TICK = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)
_INSTANT = timedelta(milliseconds=1)
"""The beginning of a range is not part of it, for the server."""
_POLL_S = 0.1
_TRIES = 10
_STARTS_WITHIN_S = 10.0
_LOG_S = 5.0
_ONE_AFTER_ANOTHER = (ScheduleOverlapPolicy.BUFFER_ONE, ScheduleOverlapPolicy.CANCEL_OTHER)


class Schedule(ReadableSchedule):
    """A schedule that starts turns. It lives in Temporal, and needs no process of its own.

    Every method raises `ScheduleNotFoundError` if the schedule was deleted, and
    `ServerUnreachableError` if Temporal does not answer.

    Attributes:
        id: The schedule's id.
    """

    @validation.arguments("the run")
    async def run_now(self, *, by: validation.By | None = None) -> str:
        """Start a turn now, outside the schedule, also while it is paused. Returns its id.

        With a session, a message is sent, and its id is returned.

        If a turn is running, the schedule's `if_running` says what happens. With `queue`, the new
        turn starts when the running turn is over, and this returns before that.

        Args:
            by: The person or program that runs it: one line, at most 200 characters. It is
                recorded, not checked: in the `log` of the status.

        Raises:
            ScheduleBusyError: A turn is running and `if_running` is `skip`, or a turn waits
                already.
            InvalidRequestError: `by` is not valid.
        """
        before = await self._described()
        overlap = before.schedule.policies.overlap_policy
        self._check_free(before, overlap)
        if overlap == int(ScheduleOverlapPolicy.SKIP):
            await self._check_session(before)
        at = await self._free_second()
        moment = Timestamp()
        moment.FromDatetime(at)
        trigger = TriggerImmediatelyRequest(scheduled_time=moment)
        await server.patch(self._client, self.id, SchedulePatch(trigger_immediately=trigger))
        turn_id = turn_id_of(self.id, at)
        waits = overlap in map(int, _ONE_AFTER_ANOTHER)
        if not (waits and before.info.running_workflows):
            await self._until_started(turn_id, before)
        await self._log("run", by, id=turn_id)
        return turn_id

    @validation.arguments("the pause")
    async def pause(self, reason: str = "", *, by: validation.By | None = None) -> None:
        """Start no more turns until `resume`; a turn that runs continues.

        Args:
            reason: The reason, for people: one line of at most 200 visible characters. It is not
                encrypted.
            by: The person or program that pauses it: one line, at most 200 characters. It is
                recorded, not checked, and not encrypted.

        Raises:
            InvalidRequestError: The reason or `by` is not valid.
        """
        if reason:
            types = {"reason": validation.By}
            validation.check("the pause", {"reason": reason}, types, errors.InvalidRequestError)
        found = await self._described()
        await self._pause(note_of(self._client, found, reason or "paused", by))
        await self._log("paused", by, reason)

    @validation.arguments("the resume")
    async def resume(self, *, by: validation.By | None = None) -> None:
        """Start turns again. The times that passed meanwhile are not made up for.

        Args:
            by: The person or program that resumes it: one line, at most 200 characters.
        """
        found = await self._described()
        resumed = SchedulePatch(unpause=note_of(self._client, found, "resumed", by))
        await server.patch(self._client, self.id, resumed)
        await self._log("resumed", by)

    @validation.arguments("the cancel")
    async def cancel(
        self, reason: validation.Unicode = "", *, by: validation.By | None = None
    ) -> bool:
        """Cancel the turns that run, and start no more until `resume`.

        Turns that `if_running="allow"` started beside another turn are not known, and continue.

        Args:
            reason: The reason, for people; it is not encrypted.
            by: The person or program that cancels it: one line, at most 200 characters. It is
                recorded, not checked, and not encrypted.

        Returns:
            Whether there was something to cancel: False for a schedule that is paused, of which no
            turn runs.

        Raises:
            InvalidRequestError: The reason is not a string, or `by` is not valid.
        """
        found = await self._described()
        why = one_line(reason, limits.BY_CHARACTERS) or "cancelled"
        await self._pause(note_of(self._client, found, why, by))
        running = (await self._described()).info.running_workflows
        for workflow in running:
            asking = cancelling.request(self._client, workflow.workflow_id, reason, by)
            await SCHEDULE.asked_if_known(self.id, asking)
        await self._log("cancelled", by, one_line(reason, limits.BY_CHARACTERS))
        return bool(running) or not found.schedule.state.paused

    async def _pause(self, note: str) -> None:
        await server.patch(self._client, self.id, SchedulePatch(pause=note))

    async def _log(
        self, verb: ScheduleVerb, by: str | None, reason: str = "", *, id: str = ""
    ) -> None:
        """Record who has asked for something that was done.

        What was asked for is done already, so a failure to record it is no error, and the wait is
        short.
        """
        try:
            async with asyncio.timeout(_LOG_S):
                await self._change(
                    lambda definition: _logged(definition, verb, by, reason, id),
                    may_differ=True,
                )
        except (errors.PerdureError, RPCError, TimeoutError) as error:
            logger.warning("schedule %r has no record of %s: %s", self.id, verb, described(error))

    @validation.arguments("what is added")
    async def add_budget(self, more: ABudget, *, by: validation.By | None = None) -> None:
        """Add to the total budget of the schedule.

        A schedule that has paused because it was spent is started again with `resume`.

        Args:
            more: The amounts to add to its limits.
            by: The person or program that adds it: one line, at most 200 characters. It is recorded
                in the note of a schedule that is not paused.

        Raises:
            InvalidRequestError: The schedule has no such limit, or `more` or `by` is not valid.
            ScheduleConflictError: As `change` raises it.
        """

        def added(definition: Definition) -> Definition:
            if definition.total is None:
                raise errors.InvalidRequestError(
                    f"schedule {self.id!r} has no total budget, so nothing can be added to it",
                    context=SCHEDULE.context(self.id),
                )
            changed = definition.changed({"total": definition.total.plus(more)})
            return _logged(changed, "budget_added", by)

        await self._change(added, by=by)

    @validation.arguments("the backfill")
    async def backfill(
        self,
        start: MOMENT,
        end: MOMENT,
        *,
        at_once: validation.Flag = False,
        by: validation.By | None = None,
    ) -> tuple[datetime, ...]:
        """Start a turn for each time of the schedule in a range, and return these times.

        Each turn is told the time for which it was scheduled. A time whose turn exists, because its
        retention is not over, is not run again and not returned.

        Args:
            start: The beginning of the range, included, with a time zone.
            end: The end of the range, included, with a time zone.
            at_once: Whether the turns run at once. Otherwise each begins when the turn before is
                over.
            by: The person or program that starts them, as for `run_now`.

        Raises:
            InvalidRequestError: A time has no time zone, the range is empty or has too many times,
                the turns would run at once although the schedule remembers the last output or has a
                total budget, or `by` is not valid.
        """
        definition = await definition_of(self._client, self.id, await self._described())
        if at_once and (definition.remember_last or definition.total is not None):
            dependency = (
                "the output of the one before" if definition.remember_last else "what it left"
            )
            raise errors.InvalidRequestError(
                f"the turns of schedule {self.id!r} get {dependency}, so they cannot run at once"
            )
        slots = await self._missing(definition, start, end)
        overlap = ScheduleOverlapPolicy.ALLOW_ALL if at_once else ScheduleOverlapPolicy.BUFFER_ALL
        ranges = [ScheduleBackfill(slot.at - _INSTANT, slot.starts, overlap) for slot in slots]
        if ranges:
            await SCHEDULE.asked(self.id, self._handle.backfill(*ranges))
            await self._log("backfilled", by)
        return tuple(slot.at for slot in slots)

    @validation.arguments("the range")
    async def missing(self, start: MOMENT, end: MOMENT) -> tuple[datetime, ...]:
        """Return the times of the schedule in a range that `backfill` would start a turn for.

        Args:
            start: The beginning of the range, included, with a time zone.
            end: The end of the range, included, with a time zone.

        Raises:
            InvalidRequestError: A time has no time zone, or the range is empty or has too many
                times.
        """
        definition = await definition_of(self._client, self.id, await self._described())
        return tuple(slot.at for slot in await self._missing(definition, start, end))

    @keywords.shows(ScheduleChanges)
    @validation.arguments("the change")
    async def change(
        self, *, by: validation.By | None = None, **changes: Unpack[ScheduleChanges]
    ) -> None:
        """Change the schedule; the arguments are as for `AgentClient.create_schedule`.

        What is not named stays. Turns that run already are not affected.

        Args:
            by: The person or program that changes it, as for `run_now`.

        Raises:
            InvalidRequestError: A value is not valid; nothing is changed then.
            TooLargeError: The input of the turns is too large.
            ConfigurationError: The output type cannot be enforced on a model.
            ScheduleConflictError: Another caller has changed the schedule at the same moment, and
                nothing is changed; or another program has created or changed it.
            PayloadDecodeError: This process lacks the codec or the key of the schedule.
        """
        changes = await batches.with_tasks(changes)
        await self._change(
            lambda definition: _logged(definition.changed(changes), "changed", by),
            has_other_session=bool(changes.keys() & {"session", "agent"}),
        )

    async def _change(
        self,
        change: Callable[[Definition], Definition],
        *,
        has_other_session: bool = False,
        may_differ: bool = False,
        by: str | None = None,
    ) -> None:
        """Change the definition. `by` is who has added to its budget.

        With `may_differ`, another caller may change it at the same moment.

        Raises:
            PerdureError: As `change` does.
        """
        seen: Definition | None = None
        for _ in range(_TRIES):
            found = await SCHEDULE.asked(self.id, self._handle.describe())
            self._check_kind(found.raw_description)
            definition = await definition_of(self._client, self.id, found.raw_description)
            if seen is not None and not may_differ:
                self._refuse_other(seen, definition)
            seen, new = definition, change(definition)
            if new.request.subject != definition.request.subject:
                raise errors.InvalidRequestError(
                    f"schedule {self.id!r} keeps its subject; delete it, and create another one"
                )
            if has_other_session:
                await messages.check_session(self._client, new.request)
            try:
                if await self._update(found, new, by):
                    return
            except RPCError as error:
                if not self._marks.were_refused(error):
                    raise SCHEDULE.translated(self.id, error) from error
        raise self._conflict("it is changed all the time")

    def _refuse_other(self, seen: Definition, now: Definition) -> None:
        """Refuse to change what another caller has changed meanwhile; a pause does not count.

        Raises:
            ScheduleConflictError: The definition differs.
        """
        names = seen.differences(now)
        if names:
            raise self._conflict(f"another caller has changed {', '.join(names)}", differs=[*names])

    def _conflict(self, why: str, **context: JsonValue) -> errors.ScheduleConflictError:
        return errors.ScheduleConflictError(
            f"schedule {self.id!r} was not changed, because {why} at the same moment; look at it,"
            " and change it again",
            context={"schedule_id": self.id, **context},
        )

    @validation.arguments("the deletion")
    async def delete(self, *, by: validation.By | None = None) -> None:
        """Delete the schedule. Its turns stay, and a turn that runs continues.

        Args:
            by: The person or program that deletes it. Nothing of the schedule is left in Temporal
                that could have the name, so only the log of this process has it.
        """
        await self._described()
        await SCHEDULE.asked(self.id, self._handle.delete())
        logger.info("schedule %r was deleted by %s over %s", self.id, by, sources.current())

    async def _update(
        self, description: ScheduleDescription, new: Definition, by: str | None
    ) -> bool:
        """Give the schedule a new definition. Returns False if it has changed since it was found.

        Raises:
            RPCError: The server does not answer or refuses it.
        """
        marks = await self._marks.of(new.request)
        updates = schedule_updates.following(new.updates)
        new = replace(new, updates=updates)
        state = description.schedule.state
        if by is not None and not state.paused:
            note = note_of(self._client, description.raw_description, "budget added", by)
            state = replace(state, note=note)
        made = schedule_of(self._client, new, marks, state)
        return await schedule_updates.update(
            self._client, self.id, description.raw_description, made, updates[-1]
        )

    def _check_free(self, description: DescribeScheduleResponse, overlap: int) -> None:
        """Refuse a start that the server would drop.

        Raises:
            ScheduleBusyError: A turn is running.
        """
        running = [workflow.workflow_id for workflow in description.info.running_workflows]
        is_queued = overlap == ScheduleOverlapPolicy.BUFFER_ONE and description.info.buffer_size
        if running and (overlap == ScheduleOverlapPolicy.SKIP or is_queued):
            raise self._busy(running[0])

    async def _check_session(self, description: DescribeScheduleResponse) -> None:
        """Refuse a message that would be skipped.

        Raises:
            ScheduleBusyError: A turn of the session is running.
        """
        if description.schedule.action.start_workflow.workflow_type.name == SCHEDULED_MESSAGE:
            session_id = (await request_of(self._client, self.id, description)).session or ""
            running = await messages.running_in(self._client, session_id)
            if running:
                raise self._busy(running)

    def _busy(self, running: str) -> errors.ScheduleBusyError:
        return errors.ScheduleBusyError(
            f"turn {running!r} of schedule {self.id!r} is running, so no other was started; wait"
            " until it is over, cancel it, or change if_running",
            context={"schedule_id": self.id, "turn_id": running},
        )

    async def _free_second(self) -> datetime:
        """Return a second, now or soon, that tells the turn apart from turns of the schedule.

        Times of a cron expression have no seconds.
        """
        at = datetime.now(UTC).replace(microsecond=0)
        while not Slot(at=at).is_by_hand or await self._exists(turn_id_of(self.id, at)):
            at += _TICK
        return at

    async def _exists(self, turn_id: str) -> bool:
        describing = describe(self._client, turn_id, retry=True)
        return await SCHEDULE.asked_if_known(self.id, describing) is not None

    async def _until_started(self, turn_id: str, before: DescribeScheduleResponse) -> None:
        """Wait until a turn exists.

        Raises:
            ScheduleBusyError: The server did not start it, because another turn began meanwhile.
        """
        end = asyncio.get_running_loop().time() + _STARTS_WITHIN_S
        while not await self._exists(turn_id):
            description = await self._described()
            running = [workflow.workflow_id for workflow in description.info.running_workflows]
            if description.info.overlap_skipped > before.info.overlap_skipped and running:
                raise self._busy(running[0])
            if asyncio.get_running_loop().time() > end:
                raise errors.ServerUnreachableError(
                    f"Temporal has not started turn {turn_id!r} of schedule {self.id!r} within"
                    f" {_STARTS_WITHIN_S:g} s"
                )
            await asyncio.sleep(_POLL_S)

    async def _missing(
        self, definition: Definition, start: datetime, end: datetime
    ) -> list[_BackfillSlot]:
        """Return the times of the schedule in a range that have no turn.

        Raises:
            InvalidRequestError: There are none, or too many.
        """
        request = ListScheduleMatchingTimesRequest(
            namespace=self._client.namespace, schedule_id=self.id
        )
        request.start_time.FromDatetime(start - _INSTANT)
        request.end_time.FromDatetime(end)
        matches = await SCHEDULE.asked(
            self.id,
            self._client.workflow_service.list_schedule_matching_times(request, retry=True),
        )
        if not 0 < len(matches.start_time) <= limits.BACKFILL_SLOTS:
            raise errors.InvalidRequestError(
                f"schedule {self.id!r} has {len(matches.start_time)} times from {start} to {end}; a"
                f" backfill has 1 to {limits.BACKFILL_SLOTS}"
            )
        time_zone, slots = zones.zone(definition.timezone), []
        for moment in matches.start_time:
            starts = moment.ToDatetime(tzinfo=UTC)
            at = _without_jitter(definition, starts.astimezone(time_zone))
            if not await self._exists(turn_id_of(self.id, at)):
                slots.append(_BackfillSlot(at, starts))
        return slots


def _logged(
    definition: Definition, verb: ScheduleVerb, by: str | None, reason: str = "", id: str = ""
) -> Definition:
    """Return the definition with a request in its log."""
    at, via = datetime.now(UTC), sources.current()
    entry = ScheduleLogEntry(at=at, verb=verb, by=by or "", reason=reason, id=id, via=via)
    return definition.with_entry(entry)


class _BackfillSlot(NamedTuple):
    """A time of the schedule, and when its turn starts with jitter."""

    at: datetime
    starts: datetime


def _without_jitter(definition: Definition, starts: datetime) -> datetime:
    """Return the time of the schedule for which a turn starts: jitter never reaches the next."""
    at = starts.astimezone(UTC).replace(second=0, microsecond=0)
    earliest = at - (definition.jitter or timedelta())
    while at > earliest and not definition.cron.matches(at.astimezone(starts.tzinfo)):
        at -= _MINUTE
    return at.astimezone(starts.tzinfo)
