"""Clocks of the machines of a Temporal service: each may be wrong, and be set right at any moment.

The times of events come from the machine that writes them, so that an event may have an earlier
time than the one before it, or one that is minutes ahead. Timers fire by the time that passes.
"""

from __future__ import annotations

from perdure.testing.simulation.choices import CLOCKS
from perdure.testing.simulation.server.server import SimulatedServer

_WRONG_S = (0, 0.5, -0.5, 30, -30, 600, -600)
_PAUSES_S = (1, 0.1, 10, 100)


class Clocks:
    """Lets the server's clock be wrong by another time, some times."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        server.clock.differ_s = 2 * max(_WRONG_S)
        self._left = server.choices.pick((2, 4, 8), beside=CLOCKS)
        self._set()

    def _set(self) -> None:
        """Set the clock, and do it again after a while."""
        choices, clock = self._server.choices, self._server.clock
        clock.wrong_ns = int(choices.pick(_WRONG_S, beside=CLOCKS) * 10**9)
        self._server.counts["wrong clocks"] += clock.wrong_ns != 0
        if self._left:
            self._left -= 1
            clock.later(choices.pick(_PAUSES_S, beside=CLOCKS), self._set)
