"""What a run of a turn did before it was reset.

A reset forgets what came after a point of the history, and undoes none of it. The history of the
run before is still there, and has the effects. So have the runs that continued it: a reset forgets
them, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Iterator

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.temporal import settlements
from perdure.temporal.histories.fetching import recorded
from perdure.temporal.histories.runs import run_after
from perdure.turn import effects
from perdure.turn.facts import Recorded
from perdure.turn.fold import apply
from perdure.turn.state import TurnState
from perdure.values.effects import EffectRecord, latest

_RESET = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


@contextlib.contextmanager
def unless_gone() -> Iterator[None]:
    """Go on without a history whose retention is over."""
    try:
        yield
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


def is_reset(first: HistoryEvent, run_id: str) -> bool:
    """Return whether a run was reset, by its first event: it began as another run."""
    original = first.workflow_execution_started_event_attributes.original_execution_run_id
    return original not in ("", run_id)


async def effects_before(
    client: Client, turn_id: str, run_id: str, *, is_worker: bool = False
) -> list[EffectRecord]:
    """Return the effects of the runs that a run was reset from.

    `is_worker` is as in `HistoryReader`.

    Raises:
        RPCError: The server does not answer.
    """
    reader = _Reader(client, turn_id, is_worker=is_worker)
    return await reader.before(run_id)


class _Reader:
    """Reads what runs did, each of them once."""

    def __init__(self, client: Client, turn_id: str, *, is_worker: bool) -> None:
        self._client = client
        self._turn_id = turn_id
        self._is_worker = is_worker
        self._seen: set[str] = set()

    async def before(self, run_id: str) -> list[EffectRecord]:
        """Return the effects of the runs that a run was reset from."""
        records: list[EffectRecord] = []
        async for event, _ in self._recorded(run_id):
            records += await self._of_base(event)
        return records

    async def _of_base(self, event: HistoryEvent) -> list[EffectRecord]:
        """Return the effects of the run that a reset has replaced; none for all other events."""
        failed = event.workflow_task_failed_event_attributes
        is_failure = event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        if is_failure and failed.cause == _RESET:
            return await self._of_chain(failed.base_run_id)
        return []

    async def _of_chain(self, run_id: str) -> list[EffectRecord]:
        """Return the effects of a run, and of the runs before and after it that it has forgotten.

        Before it are those that it was reset from itself, and after it those that continued it.
        """
        own: list[str] = []
        before: list[EffectRecord] = []
        records: tuple[EffectRecord, ...] = ()
        with unless_gone():
            while run_id and run_id not in self._seen:
                self._seen.add(run_id)
                own.append(run_id)
                state, later = TurnState(), ""
                async for event, fact in self._recorded(run_id):
                    before += await self._of_base(event)
                    state = state if fact is None else apply(state, fact)
                    later = run_after(event)
                records = latest((*records, *effects.gathered_so_far(state)))
                run_id = later
        return [*before, *[await self._with_words(record, own) for record in records]]

    async def _with_words(self, record: EffectRecord, own: Collection[str]) -> EffectRecord:
        """Return a record with what people have said of its call, if it is one of these runs.

        What was said after the reset is about other calls.
        """
        if record.turn_id:
            return record
        return await settlements.applied(self._client, record, self._turn_id, own)

    def _recorded(self, run_id: str) -> AsyncIterator[tuple[HistoryEvent, Recorded | None]]:
        return recorded(self._client, self._turn_id, run_id, is_worker=self._is_worker)
