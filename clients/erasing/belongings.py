"""What there is of a data subject in a namespace: workflows and schedules with one of its keys.

Search attributes would not find all of it: a namespace may lack them, and parts of batches and
deliveries of webhooks have none. The keys are in what is encrypted, so they are looked for there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import ListSchedulesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.temporal import schedule_updates, workflow_list
from perdure.temporal.encryption import data_subjects

_PAGE = 1000
_OVER = "('Completed', 'Failed', 'Canceled', 'Terminated', 'TimedOut', 'ContinuedAsNew')"
_OPEN = f"ExecutionStatus NOT IN {_OVER}"
_ENDED = f"ExecutionStatus IN {_OVER}"
_ANY = ""
_TYPES = "Agent"
"""How the types of Perdure's workflows begin."""


@dataclass(frozen=True, slots=True)
class Belonging:
    """A workflow of a data subject."""

    id: str
    run_id: str
    type: str
    closed_at: datetime | None


class Belongings:
    """Finds what is encrypted with any of some keys.

    Args:
        client: Temporal's client.
        keys: The ids of the keys.
    """

    def __init__(self, client: Client, keys: Collection[str]) -> None:
        self._client = client
        self._keys = keys
        self._read: dict[str, str] = {}

    async def queue(self) -> str | None:
        """Return the task queue of a turn, a session or a batch; None if there is none.

        Raises:
            RPCError: The server does not answer.
        """
        async for info in self._listed(_ANY):
            if data_subjects.key_in_memo(info) in self._keys:
                return info.task_queue
        return None

    async def open(self) -> list[Belonging]:
        """Return the workflows that are not over.

        Raises:
            RPCError: The server does not answer.
        """
        return [
            _belonging(info)
            async for info in self._listed(_OPEN)
            if await self._key_of(info) in self._keys
        ]

    async def ended(self) -> list[Belonging]:
        """Return the runs of workflows that are over; their parts and deliveries are with them.

        Raises:
            RPCError: The server does not answer.
        """
        infos = [info async for info in self._listed(_ENDED)]
        found = {
            info.execution.workflow_id
            for info in infos
            if data_subjects.key_in_memo(info) in self._keys
        }
        return [_belonging(info) for info in infos if not found.isdisjoint(_related(info))]

    async def schedules(self) -> list[str]:
        """Return the ids of the schedules.

        Raises:
            RPCError: The server does not answer.
        """
        found, token = list[str](), b""
        while True:
            request = ListSchedulesRequest(
                namespace=self._client.namespace, maximum_page_size=_PAGE, next_page_token=token
            )
            page = await self._client.workflow_service.list_schedules(request, retry=True)
            for item in page.schedules:
                if item.info.workflow_type.name.startswith(_TYPES) and await self._is_of_subject(
                    item.schedule_id
                ):
                    found.append(item.schedule_id)
            token = page.next_page_token
            if not token:
                return found

    async def _is_of_subject(self, schedule_id: str) -> bool:
        try:
            described = await schedule_updates.described(self._client, schedule_id)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False  # it was deleted since it was listed
            raise
        return data_subjects.key_of_schedule(described) in self._keys

    async def _listed(self, query: str) -> AsyncIterator[WorkflowExecutionInfo]:
        async for infos in workflow_list.pages(self._client, query, _PAGE):
            for info in infos:
                if info.type.name.startswith(_TYPES):
                    yield info

    async def _key_of(self, info: WorkflowExecutionInfo) -> str:
        """Return the key of a run, for which the server is asked once."""
        run_id = info.execution.run_id
        if run_id not in self._read:
            self._read[run_id] = await data_subjects.key_of_run(self._client, info)
        return self._read[run_id]


def _related(info: WorkflowExecutionInfo) -> Iterable[str]:
    """Return the ids of a workflow, of its parent and of the root above it."""
    return {
        info.execution.workflow_id,
        info.parent_execution.workflow_id,
        info.root_execution.workflow_id,
    } - {""}


def _belonging(info: WorkflowExecutionInfo) -> Belonging:
    return Belonging(
        id=info.execution.workflow_id,
        run_id=info.execution.run_id,
        type=info.type.name,
        closed_at=info.close_time.ToDatetime(tzinfo=UTC) if info.HasField("close_time") else None,
    )
