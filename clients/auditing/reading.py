"""Reads what people and programs have done from the histories of a namespace.

Temporal has no list of requests, so every run that may hold one is read: those that are not over,
and those that have ended since.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client
from temporalio.converter import decode_typed_search_attributes
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors, limits
from perdure.clients.auditing.entries import AuditEntry, Kind
from perdure.clients.auditing.filters import OF_SETTLEMENTS, WITHOUT_LABELS, AuditFilter
from perdure.clients.auditing.of_schedules import acts_of_schedule
from perdure.clients.reading.lists import Listing
from perdure.clients.schedules.starting import Schedules
from perdure.clients.turns.listing import Workflows
from perdure.temporal import search_attributes
from perdure.temporal.access import TURN as A_TURN
from perdure.temporal.encryption import data_subjects
from perdure.temporal.histories.act_history import ActReader, RecordedAct
from perdure.temporal.histories.fetching import first_event
from perdure.temporal.names import (
    BATCH,
    BATCH_PART,
    ERASURE,
    KEYED_EVENTS,
    SCHEDULED_BATCH,
    SESSION,
    SETTLEMENT,
)
from perdure.temporal.names import TURN as TURN_TYPE
from perdure.temporal.namespace_check import Index
from perdure.text import one_line

_AT_ONCE = 8
"""The number of histories that are read at the same time."""
_KINDS: dict[str, Kind] = {
    TURN_TYPE: "turn",
    SETTLEMENT: "turn",
    SESSION: "session",
    BATCH: "batch",
    SCHEDULED_BATCH: "batch",
    ERASURE: "subject",
    KEYED_EVENTS: "event",
}
_EVENTS = "events//"

_Place = tuple[str, str, str]
"""A workflow id, its first run and the key of an act, which is the same in all of its runs."""


class Auditor:
    """Reads the acts that match a filter."""

    def __init__(
        self, client: Client, index: Index, schedules: Schedules, filters: AuditFilter
    ) -> None:
        self._client = client
        self._index = index
        self._schedules = schedules
        self._filters = filters
        self._found: dict[_Place, tuple[AuditEntry, RecordedAct]] = {}
        self._starters: dict[tuple[str, str], str | None] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def entries(self) -> AsyncGenerator[AuditEntry, None]:
        """Yield what was done, in the order of its times.

        Raises:
            PerdureError: Temporal does not answer, or does not take the filter.
        """
        await self._read_all()
        entries = [
            await self._with_root(entry, act)
            for entry, act in self._found.values()
            if self._is_in_time(entry)
        ]
        async for schedule_id in self._schedules.ids(self._filters.id_prefix or ""):
            read = acts_of_schedule(self._client, schedule_id, self._filters.subject)
            entries += filter(self._is_in_time, await read)
        for entry in sorted(entries, key=lambda entry: (entry.time, entry.kind, entry.id)):
            yield entry

    def _is_in_time(self, entry: AuditEntry) -> bool:
        until = self._filters.until
        return self._filters.since <= entry.time and (until is None or entry.time < until)

    async def _read_all(self) -> None:
        async def of_subject(info: WorkflowExecutionInfo) -> WorkflowExecutionInfo | None:
            with A_TURN.asking(info.execution.workflow_id):
                return info if await self._is_of_subject(info) else None

        source = Workflows(self._client, self._index, self._filters, A_TURN)
        try:
            async with asyncio.TaskGroup() as reading:
                async for info in Listing(source, None, of_subject):
                    await self._places.acquire()
                    reading.create_task(self._read(info))
        except* errors.PerdureError as failed:
            raise failed.exceptions[0] from None

    async def _is_of_subject(self, info: WorkflowExecutionInfo) -> bool:
        """Return whether a run is of the data subject that is asked for, if one is."""
        subject = self._filters.subject
        if subject is None or info.type.name == ERASURE:
            return True  # who was erased is in the input
        if info.type.name in WITHOUT_LABELS:
            key = await data_subjects.key_of_run(self._client, info)
            return bool(key) and await data_subjects.is_key_of(self._client, key, subject)
        # a store may find other cases of letters
        attributes = decode_typed_search_attributes(info.search_attributes)
        labels = attributes.get(search_attributes.LABELS, ())
        return search_attributes.data_subject(subject) in labels

    async def _read(self, info: WorkflowExecutionInfo) -> None:
        """Read the acts of a run. What cannot be read is an entry that says so.

        Raises:
            PerdureError: Temporal does not answer.
        """
        try:
            await self._read_run(info)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # deleted meanwhile
                raise A_TURN.translated(info.execution.workflow_id, error) from error
        except errors.KeyStoreError:
            raise  # a later audit can read it
        except Exception as error:  # noqa: BLE001 - one run must not hide all others
            problem = one_line(f"{type(error).__name__}: {error}", limits.NOTE_CHARACTERS)
            act = RecordedAct(
                "unreadable", info.start_time.ToDatetime(tzinfo=UTC), "run", problem=problem
            )
            self._note(info, info.execution.run_id, act)
        finally:
            self._places.release()

    async def _read_run(self, info: WorkflowExecutionInfo) -> None:
        reader = ActReader(self._client.data_converter, info.type.name)
        handle = self._client.get_workflow_handle(
            info.execution.workflow_id, run_id=info.execution.run_id
        )
        async for event in handle.fetch_history_events():
            await reader.read(event)
        for act in reader.acts.values():
            self._note(info, reader.first_run, act)

    def _note(self, info: WorkflowExecutionInfo, first_run: str, act: RecordedAct) -> None:
        """Note an act; the earlier one of those that are recorded in several runs."""
        kind, workflow_id = _KINDS[info.type.name], info.execution.workflow_id
        entry = AuditEntry(
            time=act.at,
            act=act.name,
            kind=kind,
            id=_id_of(info.type.name, workflow_id, act),
            by=act.by,
            via=act.via,
            detail=act.detail,
            problem=act.problem,
        )
        if not self._filters.admits_id(entry.id):
            return
        if kind == "subject" and self._filters.subject not in (None, act.about):
            return
        place = (workflow_id, first_run, act.key)
        known = self._found.get(place)
        if known is None or entry.time < known[0].time:
            self._found[place] = entry, act

    async def _with_root(self, entry: AuditEntry, act: RecordedAct) -> AuditEntry:
        """Return an entry with who has started the root of what acted by itself."""
        if act.root is None:
            return entry
        if act.root not in self._starters:
            self._starters[act.root] = await self._starter(*act.root)
        return entry.model_copy(update={"on_behalf_of": self._starters[act.root]})

    async def _starter(self, workflow_id: str, run_id: str) -> str | None:
        """Return who has started a workflow; None if that is not known, or it is gone."""
        for workflow_type in (TURN_TYPE, SESSION, BATCH_PART):
            reader = ActReader(self._client.data_converter, workflow_type)
            try:
                await reader.read(await first_event(self._client, workflow_id, run_id))
            except (RPCError, LookupError):
                return None
            start = reader.acts.get("start")
            if start is not None and not start.problem:
                return start.by
        return None


def _id_of(workflow_type: str, workflow_id: str, act: RecordedAct) -> str:
    """Return what an act is on: its turn, the key of the events, or the data subject."""
    if workflow_type in (SETTLEMENT, ERASURE):
        return act.about or workflow_id.removeprefix(OF_SETTLEMENTS)
    if workflow_type == KEYED_EVENTS:
        name, slash, key = workflow_id.removeprefix(_EVENTS).partition("/")
        return key if slash else name
    return workflow_id
