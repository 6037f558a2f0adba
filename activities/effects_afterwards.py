"""What became of effects after a turn has recorded them.

A person may say later what became of a call of unknown outcome, or take back what was done. A call
with the same effect is recognized by the record, and looked up then.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Literal

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.activities.effect_keys import Recognized
from perdure.agents.tools import Tool
from perdure.temporal import settlements
from perdure.temporal.histories.fetching import recorded
from perdure.temporal.recent import Recent
from perdure.turn import undo
from perdure.turn.effect_values import CallPlace, KnownEffect
from perdure.turn.effects import settled_result
from perdure.turn.fold import apply
from perdure.turn.state import TurnState

_EFFECTS = 10_000


@dataclass(frozen=True, slots=True)
class EffectNow:
    """What became of an effect: the result of its call if it is there, or the call in words."""

    status: Literal["done", "absent", "undone", "undoing"]
    result: str = ""
    call: str = ""


class EffectsAfterwards:
    """Looks up what became of effects that a worker has recognized. Thread-safe.

    What can still change is looked up again each time, since a person may act at any time.
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
        unsure = {*effect.unknown, *(known for known in effect.same if known.can_undo)}
        for known in unsure:
            place = known.call_in(turn_id)
            before = self._get(run_id, known)
            if place is None or _is_final(before, known):
                continue
            now = await _taken_back(client, place, known)
            if now is None and not known.is_done:
                now = await _settled(client, place)
            with self._lock:
                self._now.drop((run_id, known.place))
                if now is not None:
                    self._now.put((run_id, known.place), now)

    def of(self, item: Tool, run_id: str, effect: Recognized) -> Recognized:
        """Return an effect that was recognized in a run with what was learned since.

        An effect that is not there, or may recur, is not in the way of the call.
        """
        found = [
            (known, now) for known in effect.same if (now := self._get(run_id, known)) is not None
        ]
        undoing = [now.call for _, now in found if now.status == "undoing"]
        gone = {
            known.place
            for known, now in found
            if now.status in ("absent", "undone") or (now.status == "done" and item.may_recur)
        }
        done = (now.result for known, now in found if known.place not in gone)
        return replace(
            effect,
            same=tuple(known for known in effect.same if known.place not in gone),
            settled=next(filter(None, done), ""),
            undone=tuple(now.call for _, now in found if now.status == "undone"),
            undoing=next(iter(undoing), ""),
        )

    def _get(self, run_id: str, known: KnownEffect) -> EffectNow | None:
        with self._lock:
            return self._now.get((run_id, known.place))


def _is_final(now: EffectNow | None, known: KnownEffect) -> bool:
    """Return whether nobody can change any more what became of an effect."""
    if now is None or now.status == "undoing":
        return False
    return not known.can_undo or now.status == "undone"


async def _settled(client: Client, place: CallPlace) -> EffectNow | None:
    """Return what a person has said of a call; None if nobody has."""
    said = await settlements.settled(client, place)
    if said is None:
        return None
    if said.decision.settlement == "done":
        return EffectNow("done", settled_result(said.decision))
    return EffectNow("absent")


async def _taken_back(client: Client, place: CallPlace, known: KnownEffect) -> EffectNow | None:
    """Return whether the effect of a call was taken back, or is being; None if it was not."""
    if not known.can_undo:
        return None
    state = TurnState()
    try:
        async for _, fact in recorded(client, undo.turn_id_of(place), "", is_worker=True):
            state = state if fact is None else apply(state, fact)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    asked = state.request.undo if state.request else None
    progress = undo.progress(state)
    if asked is None or not asked.record.key.startswith(known.key) or progress == "not undone":
        return None
    return EffectNow(progress, call=undo.in_words(asked.record))
