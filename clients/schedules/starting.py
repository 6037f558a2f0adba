"""Creates schedules, and finds them again."""

from __future__ import annotations

from dataclasses import replace

from temporalio.api.workflowservice.v1 import ListSchedulesRequest
from temporalio.client import Client, ScheduleAlreadyRunningError
from temporalio.common import TypedSearchAttributes

from perdure import errors, validation
from perdure.clients.reading.lists import Found, Listing
from perdure.clients.schedules import batches, messages, server
from perdure.clients.schedules.definition import Definition, ScheduleChanges, checked_id, parsed
from perdure.clients.schedules.handle import Schedule
from perdure.clients.schedules.status import ScheduleEntry, listed_entry
from perdure.clients.schedules.stored import STARTED, definition_of, schedule_of
from perdure.temporal import start_request
from perdure.temporal.access import SCHEDULE
from perdure.temporal.acts import sources
from perdure.temporal.search_marks import Marks


class Schedules:
    """The schedules of a namespace. New schedules start turns on a given task queue."""

    def __init__(self, client: Client, task_queue: str, marks: Marks) -> None:
        self._client = client
        self._task_queue = task_queue
        self._marks = marks

    async def create(
        self, schedule_id: str, arguments: ScheduleChanges, *, by: str | None = None
    ) -> Schedule:
        """Create a schedule, or find the existing schedule with this id and the same definition.

        `arguments` has an agent, a task, a cron expression and a time zone at least. `by` is who
        creates it.

        Raises:
            PerdureError: As `AgentClient.create_schedule` raises it.
        """
        validation.check_by("the schedule", by)
        arguments = await batches.with_tasks(arguments)
        definition = Definition(
            id=checked_id(schedule_id),
            task_queue=self._task_queue,
            request=start_request.turn_request(arguments["agent"], arguments["task"]),
            cron=parsed(arguments["cron"]),
            timezone="",
        ).changed(arguments)
        if definition.request.session is not None and not await self._exists(schedule_id):
            await messages.check_session(self._client, definition.request)
        try:
            await self._create(definition, by)
        except ScheduleAlreadyRunningError:
            await self._check_same(definition)
        return Schedule(self._client, self._marks, schedule_id)

    async def _exists(self, schedule_id: str) -> bool:
        try:
            await server.described(self._client, schedule_id)
        except errors.ScheduleNotFoundError:
            return False
        return True

    async def _create(self, definition: Definition, by: str | None) -> None:
        """Create a schedule, whose turns have no search attributes if the server refuses them."""

        async def create(attributes: TypedSearchAttributes | None) -> None:
            made = schedule_of(self._client, definition, attributes)
            await self._client.create_schedule(
                definition.id, made, memo=sources.memo_of_schedule(by)
            )

        with SCHEDULE.asking(definition.id):
            await self._marks.applied(definition.request, create)

    async def _check_same(self, new: Definition) -> None:
        """Refuse a schedule whose id has another definition.

        Raises:
            ScheduleConflictError: It has.
        """
        description = await server.described(self._client, new.id)
        there = await definition_of(self._client, new.id, description)
        if there.fairness is None:  # of an earlier release, which had no key for schedules
            new = replace(new, fairness=None)
        names = new.differences(there)
        if names:
            raise errors.ScheduleConflictError(
                f"a schedule {new.id!r} exists and differs in {', '.join(names)}; choose another"
                " id, or change it with Schedule.change (perdure schedule change)",
                context={"schedule_id": new.id, "differs": [*names]},
            )

    def list(self, id_prefix: str, limit: int | None) -> Listing[ScheduleEntry]:
        """Return the schedules that start turns and whose ids have a prefix."""

        async def read(schedule_id: str) -> ScheduleEntry | None:
            return await listed_entry(self._client, schedule_id)

        return Listing(_TurnScheduleIds(self._client, id_prefix), limit, read, also=id_prefix)

    def ids(self, id_prefix: str) -> Listing[str]:
        """Return the ids of these schedules."""

        async def read(schedule_id: str) -> str:
            return schedule_id

        return Listing(_TurnScheduleIds(self._client, id_prefix), None, read, also=id_prefix)


class _TurnScheduleIds:
    """The ids of the schedules that start turns."""

    resource = SCHEDULE

    def __init__(self, client: Client, id_prefix: str) -> None:
        self._client = client
        self._id_prefix = id_prefix

    async def query(self) -> str:
        """Return what the list is about: the server has no filter."""
        return "schedules "

    async def page(self, query: str, size: int, token: bytes, *, retry: bool) -> Found[str]:
        """Return a page of at most this size, after a token."""
        del query  # Temporal's list of schedules takes no filter by id
        request = ListSchedulesRequest(
            namespace=self._client.namespace, maximum_page_size=size, next_page_token=token
        )
        response = await self._client.workflow_service.list_schedules(request, retry=retry)
        ids = [
            item.schedule_id
            for item in response.schedules
            if item.schedule_id.startswith(self._id_prefix)
            and item.info.workflow_type.name in STARTED
        ]
        return ids, response.next_page_token
