"""What a turn did before it was reset, and does not know any more.

A call with the same effect is recognized by it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from temporalio import activity
from temporalio.client import Client

from perdure.temporal import resets
from perdure.temporal.histories.fetching import first_event
from perdure.temporal.histories.runs import run_before
from perdure.temporal.recent import Recent
from perdure.turn.effect_values import KnownEffect
from perdure.values.effects import EffectRecord, latest

_RUNS = 10_000


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
        with resets.unless_gone():
            while run_id and self._get(run_id) is None:
                first = await first_event(client, turn_id, run_id)
                unread.append((run_id, resets.is_reset(first, run_id)))
                run_id = run_before(first)
        records = self._get(run_id) or ()
        for unread_id, is_reset in reversed(unread):
            if is_reset:
                before = await resets.effects_before(client, turn_id, unread_id, is_worker=True)
                records = latest((*records, *before))
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
