"""Carries over the state of another run of a turn, or of a prefix of it, from its history.

The worker that ran a run usually runs the next one as well. It then takes the state from its
memory, because reading a long history takes longer than all the rest of a continue-as-new.
"""

from __future__ import annotations

import threading

from temporalio import activity
from temporalio.client import Client

from perdure import errors
from perdure.temporal.histories.origins import read_origin
from perdure.temporal.histories.session_history import messages_before
from perdure.temporal.recent import Recent
from perdure.turn import carry, withheld
from perdure.turn.carry import Carried
from perdure.turn.continuation import CarryCall
from perdure.turn.snapshot import CarriedPart
from perdure.turn.wire import Origin

_ORIGINS = 4


class Carrier:
    """Reads each origin once for all of its parts, as long as this process runs the activities."""

    def __init__(self) -> None:
        self._recent = Recent[Origin, tuple[CarriedPart, ...]](_ORIGINS)
        self._handed_over = Recent[Origin, Carried](_ORIGINS)
        self._lock = threading.Lock()  # runs end on the threads of workflows

    def hand_over(self, origin: Origin, carried: Carried) -> None:
        """Keep what a run of this process hands over, from any thread."""
        with self._lock:
            self._handed_over.put(origin, carried)

    async def carry(self, call: CarryCall) -> CarriedPart:
        """Return a part of what an origin holds.

        Raises:
            TurnNotFoundError: The history of the run is gone.
            InvalidRequestError: It has no such step.
            TranscriptMismatchError: Its history holds something else than the origin says.
        """
        parts = self._recent.get(call.origin)
        if parts is None:
            carried = self._taken(call.origin) or await _read(activity.client(), call)
            parts = carry.split(carried)
            self._recent.put(call.origin, parts)
        if call.part > len(parts):
            raise errors.InvalidRequestError(f"there are {len(parts)} parts, and no {call.part}")
        if call.part == len(parts):
            self._recent.drop(call.origin)  # a turn takes each part once, in order
        return parts[call.part - 1]

    def _taken(self, origin: Origin) -> Carried | None:
        """Return what a run of this process has handed over; None if it was another process."""
        with self._lock:
            carried = self._handed_over.get(origin)
            self._handed_over.drop(origin)
        return carried


async def _read(client: Client, call: CarryCall) -> Carried:
    origin = call.origin
    if origin.is_session:
        return await _of_session(client, origin)
    steps = None if call.whole else origin.steps
    state = await read_origin(client, origin.turn_id, origin.run_id, steps, is_worker=True)
    if call.whole:
        carried = carry.state_of(state)
    else:
        state = withheld.without_answers(state, has_passed=not origin.withheld)
        carried = carry.messages_of(state)
    if carried.digest != origin.digest:
        raise errors.TranscriptMismatchError(
            f"run {origin.run_id} of turn {origin.turn_id!r} holds {carried.digest[:16]} after step"
            f" {origin.steps}, and not {origin.digest[:16]}; nothing was sent"
        )
    return carried


async def _of_session(client: Client, origin: Origin) -> Carried:
    """Return the messages that the session of this turn had before it."""
    turn_id = activity.info().workflow_id
    assert turn_id
    return Carried(await messages_before(client, origin, turn_id, is_worker=True), 0)
