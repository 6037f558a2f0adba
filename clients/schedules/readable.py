"""What can be read of a schedule."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from temporalio.api.workflowservice.v1 import DescribeScheduleResponse
from temporalio.client import Client

from perdure import errors, validation
from perdure.clients.reading.lists import Listing
from perdure.clients.reading.timeouts import Timeout, at_most
from perdure.clients.schedules import server
from perdure.clients.schedules.results import ScheduleResults
from perdure.clients.schedules.status import ScheduleResult, ScheduleStatus, status
from perdure.clients.schedules.stored import STARTED, definition_of
from perdure.clients.turns import listing
from perdure.clients.turns.entries import TurnEntry
from perdure.clients.turns.filters import Filter
from perdure.temporal.access import SCHEDULE
from perdure.temporal.search_marks import Marks
from perdure.values.tasks import Task

_WAIT_S = 1.0


class ReadableSchedule:
    """The half of `Schedule` that reads: it changes nothing, and needs no worker.

    Attributes:
        id: The schedule's id.
    """

    def __init__(self, client: Client, marks: Marks, schedule_id: str) -> None:
        self.id = schedule_id
        self._client = client
        self._marks = marks
        self._handle = client.get_schedule_handle(schedule_id)

    def __repr__(self) -> str:
        return f"Schedule({self.id!r})"

    async def check(self) -> None:
        """Check that the schedule exists and starts turns. It asks once, and decodes nothing."""
        await self._described()

    async def status(self) -> ScheduleStatus:
        """Return the definition of the schedule, its next times, and its last turns.

        Raises:
            ScheduleConflictError: Another program has created or changed the schedule.
            PayloadDecodeError: This process lacks the codec or the key of the schedule.
        """
        with SCHEDULE.asking(self.id):
            return await status(self._client, self.id, await self._described())

    @validation.arguments("the list")
    def turns(self, limit: validation.Count | None = None) -> Listing[TurnEntry]:
        """List the turns of the schedule: those that are not over first, then the last ended first.

        With a session there are none: `Session.turns` has those of the session.
        Temporal's list may lag a second behind.

        Args:
            limit: The largest number of turns; without it, all that are retained.

        Raises:
            InvalidRequestError: The limit is below 1.
        """
        return listing.turns(self._client, self._marks.index, Filter(schedule=self.id), limit)

    async def results(self, after: str | None = None) -> AsyncGenerator[ScheduleResult, None]:
        """Yield what the schedule has started, each turn or batch once, as soon as it is over.

        It continues until the schedule is deleted, also after an outage of the server, and needs no
        worker. What is over is noticed within some seconds. Turns that run side by side come in the
        order of their ends.

        Args:
            after: The cursor of the last known result; without it, results start with the last ten
                turns that were started. `turns` lists those before.

        Raises:
            StaleCursorError: The cursor belongs to another schedule, also one of this id that was
                deleted.
            InvalidRequestError: The value is not a cursor.
            ScheduleConflictError: Another program has created or changed the schedule.
            PayloadDecodeError: This process lacks the codec or the key of the schedule.
        """
        values, types = {"after": after}, {"after": validation.Text | None}
        validation.check("the results", values, types, errors.InvalidRequestError)
        reader = ScheduleResults(self._client, self._marks.index, self.id, self._described)
        async with contextlib.aclosing(reader.after(after)) as reading:
            async for result in reading:
                yield result

    async def wait(self, timeout: Timeout = None) -> ScheduleStatus:
        """Wait until no turn of the schedule runs, and return its status.

        Turns that `if_running="allow"` started beside another one are not known.

        Args:
            timeout: The longest wait, as a timedelta or in seconds. Without it, the wait is
                unlimited.

        Raises:
            InvalidRequestError: The timeout is not valid.
        """
        async with at_most(timeout):
            while (await self._described()).info.running_workflows:  # noqa: ASYNC110
                await asyncio.sleep(_WAIT_S)
        return await self.status()

    async def task(self) -> Task:
        """Return the task of each turn."""
        definition = await definition_of(self._client, self.id, await self._described())
        return definition.request.task

    async def _described(self) -> DescribeScheduleResponse:
        """Return the server's description.

        Raises:
            ScheduleNotFoundError: There is no such schedule that starts turns.
        """
        description = await server.described(self._client, self.id)
        self._check_kind(description)
        return description

    def _check_kind(self, found: DescribeScheduleResponse) -> None:
        """Check that a schedule starts turns.

        Raises:
            ScheduleNotFoundError: It does not.
        """
        if found.schedule.action.start_workflow.workflow_type.name not in STARTED:
            raise errors.ScheduleNotFoundError(
                f"schedule {self.id!r} starts no turns of Perdure",
                context=SCHEDULE.context(self.id),
            )
