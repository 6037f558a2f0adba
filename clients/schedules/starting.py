"""Creates schedules, and finds them again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from temporalio.api.workflowservice.v1 import ListSchedulesRequest
from temporalio.client import Client, ScheduleAlreadyRunningError
from temporalio.service import RPCError

from perdure import errors, validation
from perdure.clients.schedules import batches, messages, server
from perdure.clients.schedules.definition import Definition, ScheduleChanges, checked_id, parsed
from perdure.clients.schedules.handle import Schedule
from perdure.clients.schedules.status import ScheduleEntry, listed_entry
from perdure.clients.schedules.stored import STARTED, definition_of, schedule_of
from perdure.temporal import start_request
from perdure.temporal.search_marks import Marks

_PAGE = 100


class Schedules:
    """The schedules of a namespace. New ones start turns on one task queue."""

    def __init__(self, client: Client, task_queue: str, marks: Marks) -> None:
        self._client = client
        self._task_queue = task_queue
        self._marks = marks

    async def create(self, schedule_id: str, given: ScheduleChanges) -> Schedule:
        """Create a schedule, or find the existing one with this id and the same definition.

        `given` has an agent, a task, a cron expression and a time zone at least.

        Raises:
            PerdureError: As `AgentClient.schedule` raises it.
        """
        given = await batches.with_tasks(given)
        definition = Definition(
            id=checked_id(schedule_id),
            task_queue=self._task_queue,
            request=start_request.turn_request(given["agent"], given["task"]),
            cron=parsed(given["cron"]),
            timezone="",
        ).changed(given)
        if definition.request.session is not None and not await self._exists(schedule_id):
            await messages.check_session(self._client, definition.request)
        try:
            await self._create(definition)
        except ScheduleAlreadyRunningError:
            await self._check_same(definition)
        except RPCError as error:
            raise server.unreadable(schedule_id, error) from error
        return Schedule(self._client, self._marks, schedule_id)

    async def _exists(self, schedule_id: str) -> bool:
        try:
            await server.described(self._client, schedule_id)
        except errors.ScheduleNotFoundError:
            return False
        return True

    async def _create(self, definition: Definition) -> None:
        """Create a schedule, whose turns have no search attributes if the server refuses them."""
        marks = await self._marks.of(definition.request)
        made = schedule_of(self._client, definition, marks)
        try:
            await self._client.create_schedule(definition.id, made)
        except RPCError as error:
            if marks is None or not self._marks.were_refused(error):
                raise
            await self._client.create_schedule(
                definition.id, schedule_of(self._client, definition, None)
            )

    async def _check_same(self, wanted: Definition) -> None:
        """Refuse a schedule whose id has another definition.

        Raises:
            ScheduleConflictError: It has.
        """
        found = await server.described(self._client, wanted.id)
        there = await definition_of(self._client, wanted.id, found)
        if there.fairness is None:  # of an earlier release, which had no key for schedules
            wanted = replace(wanted, fairness=None)
        names = wanted.differences(there)
        if names:
            raise errors.ScheduleConflictError(
                f"a schedule {wanted.id!r} exists and differs in {', '.join(names)}; choose another"
                " id, or change it with Schedule.change (perdure schedule change)",
                context={"schedule_id": wanted.id, "differs": [*names]},
            )

    async def get(self, schedule_id: str) -> Schedule:
        """Return an existing schedule.

        Raises:
            ScheduleNotFoundError: There is no such schedule that starts turns.
            InvalidRequestError: The id is not a string.
            ServerUnreachableError: Temporal does not answer.
        """
        given, wanted = {"id": schedule_id}, {"id": validation.Unicode}
        validation.check("the schedule", given, wanted, errors.InvalidRequestError)
        found = await server.described(self._client, schedule_id)
        if found.schedule.action.start_workflow.workflow_type.name not in STARTED:
            raise errors.ScheduleNotFoundError(
                f"schedule {schedule_id!r} starts no turns of Perdure",
                context={"schedule_id": schedule_id},
            )
        return Schedule(self._client, self._marks, schedule_id)

    async def list(self, id_prefix: str = "") -> AsyncIterator[ScheduleEntry]:
        """Yield the schedules that start turns and whose id has this prefix, page by page.

        Raises:
            ServerUnreachableError: Temporal does not answer.
        """
        async for schedule_id in self.ids(id_prefix):
            found = await listed_entry(self._client, schedule_id)
            if found is not None:
                yield found

    async def ids(self, id_prefix: str = "") -> AsyncIterator[str]:
        """Yield the ids of these schedules.

        Raises:
            ServerUnreachableError: Temporal does not answer.
        """
        request = ListSchedulesRequest(namespace=self._client.namespace, maximum_page_size=_PAGE)
        while True:
            page = await server.asked(
                "", self._client.workflow_service.list_schedules(request, retry=True)
            )
            for one in page.schedules:
                is_wanted = one.schedule_id.startswith(id_prefix)
                if is_wanted and one.info.workflow_type.name in STARTED:
                    yield one.schedule_id
            if not page.next_page_token:
                return
            request.next_page_token = page.next_page_token
