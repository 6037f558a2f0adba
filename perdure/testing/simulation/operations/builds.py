"""Builds of the workers: another one is made the current one, while turns run on those before.

Whatever goes on in a new run moves to it. A drain asks what waits to do so, again and again.
"""

from __future__ import annotations

from perdure.temporal.names import BATCH, KEYED_EVENTS, MOVE_ON, PUSH, SESSION, TURN
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import SimulatedServer

_BUILDS = "builds"
"""The sequence of all that has to do with builds."""

_CANCEL = frozenset({TURN, SESSION, BATCH})
_MOVE = _CANCEL | {KEYED_EVENTS, PUSH}
_FIRST_S = (0.3, 0, 3, 20)
_PAUSES_S = (5, 0.5, 40)
_ROUNDS = 4


class Builds:
    """Makes other builds the current one, and asks what is on the one before to move on."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        self._left = server.choices.pick((1, 2, 4), beside=_BUILDS)
        self._rounds = 0
        self._later(_FIRST_S)

    def _later(self, pauses_s: tuple[float, ...]) -> None:
        pause_s = self._server.choices.pick(pauses_s, beside=_BUILDS)
        self._server.clock.later(pause_s, self._work)

    def _work(self) -> None:
        """Promote a build, or drain the one before."""
        if all(run.closed for run in self._server.runs):
            return
        if self._rounds:
            self._rounds -= 1
            self._drain()
        elif self._left:
            self._left -= 1
            self._server.build += 1
            self._rounds = _ROUNDS
        else:
            return
        self._later(_PAUSES_S)

    def _drain(self) -> None:
        """Send the signal of a drain to what is not on the current build."""
        for run in list(self._server.runs):
            is_left = not run.closed and run.begun.build != self._server.build
            if is_left and run.begun.type in _MOVE and not self._happens(4):
                self._server.clock.later(0, lambda run=run: self._ask(run))  # type: ignore[misc]

    def _ask(self, run: SimulatedRun) -> None:
        """Ask a run to move on; somebody may cancel a turn, a session or a batch at that moment."""
        fields = {"signal_name": MOVE_ON, "input": {"payloads": []}}
        is_open = self._server.deliver(run, "WORKFLOW_EXECUTION_SIGNALED", fields)
        if is_open and run.begun.type in _CANCEL and self._happens(8):
            self._server.cancel(run, "while it moves")

    def _happens(self, one_in: int) -> bool:
        return self._server.choices.happens(one_in, beside=_BUILDS)
