"""Somebody who sends updates without a pause, to a run that is about to go on in a new one.

There is one in each workflow task then, so the run never has a task without an update.
"""

from __future__ import annotations

from perdure.temporal.names import SESSION, TURN
from perdure.testing.simulation.choices import STREAMS
from perdure.testing.simulation.people import People
from perdure.testing.simulation.server.history import COMPLETED, name_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.turn.history_limits import run_events

_NEAR = 0.6
"""From this share of the events of a run on, the updates come."""


class UpdateStreams:
    """Sends the next update as soon as a workflow task has ended."""

    def __init__(self, server: SimulatedServer, people: People) -> None:
        self._server = server
        self._people = people
        self._left = server.choices.pick((60, 120), beside=STREAMS)
        server.on_event.append(self._watch)

    def _watch(self, run: SimulatedRun) -> None:
        """Send an update to a run that is nearly full."""
        is_end = name_of(run.history.events[-1]) == COMPLETED
        if not is_end or run.begun.type not in (TURN, SESSION) or not self._left:
            return
        if len(run.history) >= _NEAR * run_events(run.begun.task_timeout):
            self._left -= 1
            self._server.clock.later(0, lambda: self._send(run))

    def _send(self, run: SimulatedRun) -> None:
        if not run.closed:
            self._server.counts["updates of a stream"] += 1
            self._people.nudge(run)
