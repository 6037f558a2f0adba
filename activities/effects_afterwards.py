"""What became of effects after a turn has recorded that nobody knows.

A person may say so when the turn has gone on, or is over. A call with the same effect is recognized
by the record, and what was said is looked up then.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from temporalio import activity
from temporalio.client import Client

from perdure.activities.effect_keys import Recognized
from perdure.agents.tools import Tool
from perdure.temporal import settlements
from perdure.temporal.recent import Recent
from perdure.turn.effect_values import KnownEffect
from perdure.turn.effects import settled_result
from perdure.values.effects import EffectStatus

_EFFECTS = 10_000


@dataclass(frozen=True, slots=True)
class EffectNow:
    """What became of an effect, and the result of its call if it is there."""

    status: EffectStatus
    result: str = ""


class EffectsAfterwards:
    """Looks up what became of effects that a worker has recognized. Thread-safe.

    Only what was found is remembered, since a person may say it at any time.
    """

    def __init__(self) -> None:
        self._now = Recent[tuple[str, str], EffectNow](_EFFECTS)
        self._lock = threading.Lock()

    async def learn(self, client: Client, info: activity.Info, effect: Recognized) -> None:
        """Look up what became of the effect of a call, before the call is made.

        Raises:
            PayloadDecodeError: This process lacks the codec or the key.
            RPCError: The server does not answer.
        """
        turn_id, run_id = info.workflow_id or "", info.workflow_run_id or ""
        for known in effect.unknown:
            place = known.call_in(turn_id)
            if place is None or self._get(run_id, known) is not None:
                continue
            said = await settlements.settled(client, place)
            if said is not None:
                is_done = said.decision.settlement == "done"
                result = settled_result(said.decision) if is_done else ""
                now = EffectNow("done" if is_done else "absent", result)
                with self._lock:
                    self._now.put((run_id, known.place), now)

    def of(self, item: Tool, run_id: str, effect: Recognized) -> Recognized:
        """Return an effect that was recognized in a run with what was learned since.

        An effect that is not there, or may recur, is not in the way of the call.
        """
        now = {known.place: self._get(run_id, known) for known in effect.unknown}
        gone = {
            place
            for place, found in now.items()
            if found and (found.status != "done" or item.may_recur)
        }
        done = (found.result for place, found in now.items() if found and place not in gone)
        same = tuple(known for known in effect.same if known.place not in gone)
        return replace(effect, same=same, settled=next(done, ""))

    def _get(self, run_id: str, known: KnownEffect) -> EffectNow | None:
        with self._lock:
            return self._now.get((run_id, known.place))
