"""The operator of a simulation who terminates the turns of delegates, in most of them none."""

from __future__ import annotations

from collections.abc import Callable

from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import SimulatedServer

_TERMINATES = "terminates"
_PAUSES_S = (5, 1, 20)


class Terminator:
    """Terminates some delegates. Their parents read what was spent from their histories."""

    def __init__(self, server: SimulatedServer, terminate: Callable[[SimulatedRun], None]) -> None:
        self._server = server
        self._terminate = terminate
        self._left = server.choices.pick((0, 0, 1, 2), beside=_TERMINATES)
        if self._left:
            server.on_event.append(self._watch)

    def _watch(self, run: SimulatedRun) -> None:
        """Terminate a delegate some time after its start."""
        is_new = run.is_delegate and len(run.history) == 1 and not run.begun.continued
        if is_new and self._left and self._server.choices.happens(2, beside=_TERMINATES):
            self._left -= 1
            pause_s = self._server.choices.pick(_PAUSES_S, beside=_TERMINATES)
            self._server.clock.later(pause_s, lambda: self._end(run.id))

    def _end(self, turn_id: str) -> None:
        run = self._server.run_of(turn_id)
        if run is not None:
            self._server.counts["terminated delegates"] += 1
            self._terminate(run)
