"""What a turn did before it was reset, and does not know any more.

A reset forgets what came after a point of the history, and undoes none of it. The history of the
run before is still there, and has the effects; a call with the same effect is recognized by them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from temporalio import activity
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.temporal import settlements
from perdure.temporal.histories.fetching import first_event, recorded
from perdure.temporal.histories.runs import run_before
from perdure.temporal.recent import Recent
from perdure.turn import effects
from perdure.turn.effect_values import KnownEffect
from perdure.turn.fold import apply
from perdure.turn.state import TurnState
from perdure.values.effects import EffectRecord, latest

_RUNS = 10_000
_RESET = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


class EffectsBeforeReset:
    """Reads the effects of the runs that a turn was reset from, once for each run. Thread-safe."""

    def __init__(self) -> None:
        self._known = Recent[str, tuple[EffectRecord, ...]](_RUNS)
        self._lock = threading.Lock()

    async def learn(self, client: Client, info: activity.Info) -> None:
        """Read the effects that the turn of an activity does not know any more.

        Of runs whose history is gone, nothing is known.

        Raises:
            RPCError: The server does not answer.
        """
        turn_id, run_id = info.workflow_id or "", info.workflow_run_id or ""
        unread: list[tuple[str, bool]] = []
        with _unless_gone():
            while run_id and self._get(run_id) is None:
                first = await first_event(client, turn_id, run_id)
                unread.append((run_id, _is_reset(first, run_id)))
                run_id = run_before(first)
        records = self._get(run_id) or ()
        for unread_id, is_reset in reversed(unread):
            if is_reset:
                records = latest((*records, *await _before_resets(client, turn_id, unread_id)))
            self._put(unread_id, records)

    def of(self, run_id: str, tool: str) -> tuple[KnownEffect, ...]:
        """Return what was learned of the effects of a tool in a run."""
        return tuple(
            KnownEffect.of(record)
            for record in self._get(run_id) or ()
            if record.tool == tool and record.is_open
        )

    def result_of(self, run_id: str, same: Sequence[KnownEffect]) -> str:
        """Return the result of the first of these effects; empty if the turn itself has it."""
        places = {known.place for known in same}
        records = self._get(run_id) or ()
        return next((record.result for record in records if record.place in places), "")

    def _get(self, run_id: str) -> tuple[EffectRecord, ...] | None:
        with self._lock:
            return self._known.get(run_id)

    def _put(self, run_id: str, records: tuple[EffectRecord, ...]) -> None:
        with self._lock:
            self._known.put(run_id, records)


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    """Go on without a history whose retention is over."""
    try:
        yield
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


def _is_reset(first: HistoryEvent, run_id: str) -> bool:
    """Return whether a run was reset: its history began as that of another run."""
    original = first.workflow_execution_started_event_attributes.original_execution_run_id
    return original not in ("", run_id)


async def _before_resets(client: Client, turn_id: str, run_id: str) -> list[EffectRecord]:
    """Return the effects of the runs that this run was reset from."""
    records: list[EffectRecord] = []
    async for event, _ in recorded(client, turn_id, run_id, is_worker=True):
        failed = event.workflow_task_failed_event_attributes
        is_failure = event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        if is_failure and failed.cause == _RESET:
            with _unless_gone():
                records += await _of_run(client, turn_id, failed.base_run_id)
    return records


async def _of_run(client: Client, turn_id: str, run_id: str) -> tuple[EffectRecord, ...]:
    state = TurnState()
    async for _, fact in recorded(client, turn_id, run_id, is_worker=True):
        state = state if fact is None else apply(state, fact)
    records = effects.gathered_so_far(state)
    own = (run_id,)  # what was said after the reset is about other calls
    return tuple(
        [
            record if record.turn_id else await settlements.applied(client, record, turn_id, own)
            for record in records
        ]
    )
