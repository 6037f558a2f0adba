"""Somebody who may start workflows of the namespace, and makes up their input.

He takes what a run has given to the next one, such as the state of a turn with its result, and
starts a workflow of his own with it.
"""

from __future__ import annotations

from perdure.temporal.names import SESSION, TURN
from perdure.testing.simulation.choices import FORGED, FORGERS
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.sdk import BegunRun
from perdure.testing.simulation.server.server import SimulatedServer

_PAUSES_S = (0, 1, 30)


class Forger:
    """Starts a few workflows with the inputs of later runs."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        self._left = server.choices.pick((1, 2, 3), beside=FORGERS)
        server.on_event.append(self._watch)

    def _watch(self, run: SimulatedRun) -> None:
        """See what a run gives to the next one."""
        event = run.history.events[-1]
        is_next = name_of(event) == "WORKFLOW_EXECUTION_CONTINUED_AS_NEW"
        if is_next and self._left and run.begun.type in (TURN, SESSION):
            self._left -= 1
            payloads = list(attributes(event).input.payloads)
            pause_s = self._server.choices.pick(_PAUSES_S, beside=FORGERS)
            self._server.clock.later(pause_s, lambda: self._start(run, payloads))

    def _start(self, run: SimulatedRun, payloads: list[object]) -> None:
        """Start a workflow of the same type, with another id."""
        self._server.counts["forged inputs"] += 1
        run_id = self._server.new_run_id()
        workflow_id = f"{FORGED}{len(self._server.runs)}"
        timeout = run.begun.task_timeout
        begun = BegunRun(workflow_id, run_id, run_id, run.begun.type, 0, task_timeout=timeout)
        self._server.start(begun, payloads)
