"""What a turn did before it was reset, and does not know any more.

A reset forgets what came after a point of the history, and undoes none of it. The history of the
run before is still there, and has the effects; a call with the same effect is recognized by them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from temporalio import activity
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import Client

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

        Raises:
            RPCError: The server does not answer, or has the history no longer.
        """
        turn_id, run_id = info.workflow_id or "", info.workflow_run_id or ""
        with self._lock:
            is_known = self._known.get(run_id) is not None
        if not is_known:
            records = await _lost(client, turn_id, run_id)
            with self._lock:
                self._known.put(run_id, records)

    def of(self, run_id: str, tool: str) -> tuple[KnownEffect, ...]:
        """Return what was learned of the effects of a tool in a run."""
        return tuple(
            KnownEffect.of(record)
            for record in self._records(run_id)
            if record.tool == tool and record.is_open
        )

    def result_of(self, run_id: str, same: Sequence[KnownEffect]) -> str:
        """Return the result of the first of these effects; empty if the turn itself has it."""
        places = {known.place for known in same}
        records = self._records(run_id)
        return next((record.result for record in records if record.place in places), "")

    def _records(self, run_id: str) -> tuple[EffectRecord, ...]:
        with self._lock:
            return self._known.get(run_id) or ()


async def _lost(client: Client, turn_id: str, run_id: str) -> tuple[EffectRecord, ...]:
    """Return the effects of all runs that this run, or a run before it, was reset from."""
    first = await first_event(client, turn_id, run_id)
    started = first.workflow_execution_started_event_attributes
    records: list[EffectRecord] = []
    if started.original_execution_run_id not in ("", run_id):
        async for event, _ in recorded(client, turn_id, run_id, is_worker=True):
            failed = event.workflow_task_failed_event_attributes
            is_reset = event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
            if is_reset and failed.cause == _RESET:
                records += await _of_run(client, turn_id, failed.base_run_id)
    before = run_before(first)
    if before:
        records += await _lost(client, turn_id, before)
    return latest(records)


async def _of_run(client: Client, turn_id: str, run_id: str) -> tuple[EffectRecord, ...]:
    state = TurnState()
    async for _, fact in recorded(client, turn_id, run_id, is_worker=True):
        state = state if fact is None else apply(state, fact)
    return effects.gathered_so_far(state)
