"""The client of the activities of a simulated worker, which starts and signals workflows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio.common import RawValue

from perdure.testing.simulation.calls.keyed_events import KEYED
from perdure.testing.simulation.client import SimulatedHandle
from perdure.testing.simulation.clients.starting_client import StartingClient
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.sdk import BegunRun
from perdure.testing.simulation.server.server import SimulatedServer


class WorkerClient(StartingClient):
    """Reads histories, starts workflows, and signals those that it starts unless they run."""

    def __init__(self, server: SimulatedServer) -> None:
        super().__init__(server, timedelta(seconds=10))

    async def start_workflow(
        self,
        workflow: str,
        arg: RawValue,
        *,
        id: str,
        start_signal: str = "",
        start_signal_args: Sequence[RawValue] = (),
        **options: Any,
    ) -> SimulatedHandle:
        """Start or signal a workflow.

        A signal comes twice at times, as from a caller that has heard of no answer.
        """
        if not start_signal:
            return await super().start_workflow(workflow, arg, id=id, **options)
        run = self.running(workflow, arg, id)
        payloads = [one.payload for one in start_signal_args]
        fields = {"signal_name": start_signal, "input": {"payloads": payloads}}
        for _ in range(2 if self._server.choices.happens(6, beside=KEYED) else 1):
            self._server.deliver(run, "WORKFLOW_EXECUTION_SIGNALED", fields)
        return SimulatedHandle(run)

    def running(self, workflow: str, arg: RawValue, workflow_id: str) -> SimulatedRun:
        """Return the open run of a workflow, which is started if there is none."""
        running = self._server.run_of(workflow_id)
        if running is not None:
            return running
        run_id = self._server.new_run_id()
        begun = BegunRun(workflow_id, run_id, run_id, workflow, 0, task_timeout=self.task_timeout)
        return self._server.start(begun, [arg.payload])
