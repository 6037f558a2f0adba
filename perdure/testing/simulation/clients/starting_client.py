"""A client whose server is the simulated server, as far as callers start and read batches."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from temporalio.common import RawValue, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from perdure.testing.simulation.client import HistoryClient, SimulatedHandle
from perdure.testing.simulation.server.sdk import CONVERTER, BegunRun
from perdure.testing.simulation.server.server import SimulatedServer


class ClientLostError(Exception):
    """The process of the client ended."""


class StartingClient(HistoryClient):
    """Reads histories and starts workflows, until its process is lost.

    Attributes:
        survives: So many starts are answered before it is lost; None if it is not lost.
        task_timeout: The workflow task timeout of what it starts.
    """

    def __init__(
        self, server: SimulatedServer, task_timeout: timedelta, survives: int | None = None
    ) -> None:
        super().__init__(server)
        self.survives = survives
        self.task_timeout = task_timeout

    async def start_workflow(
        self,
        workflow: str,
        arg: RawValue,
        *,
        id: str,
        id_reuse_policy: WorkflowIDReusePolicy,
        id_conflict_policy: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.FAIL,
        memo: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> SimulatedHandle:
        """Start a workflow with the workflow task timeout of the simulation.

        The start may take place, although the client is lost before it hears of it.

        Raises:
            WorkflowAlreadyStartedError: There is a workflow of this id.
            ClientLostError: The client is lost.
        """
        if self.survives == 0 and self._server.choices.happens(2):
            raise ClientLostError
        running = self._server.run_of(id)
        if running is not None:
            if id_conflict_policy is WorkflowIDConflictPolicy.USE_EXISTING:
                return self._answered(SimulatedHandle(running))
            raise WorkflowAlreadyStartedError(id, workflow, run_id=running.begun.run_id)
        is_known = any(run.id == id for run in self._server.runs)
        if is_known and id_reuse_policy is WorkflowIDReusePolicy.REJECT_DUPLICATE:
            raise WorkflowAlreadyStartedError(id, workflow)
        run_id = self._server.new_run_id()
        encoded = {
            name: CONVERTER.payload_converter.to_payloads([value])[0]
            for name, value in (memo or {}).items()
        }
        begun = BegunRun(
            id,
            run_id,
            run_id,
            workflow,
            0,
            memo=tuple(encoded.items()),
            task_timeout=self.task_timeout,
        )
        return self._answered(SimulatedHandle(self._server.start(begun, [arg.payload])))

    def _answered(self, handle: SimulatedHandle) -> SimulatedHandle:
        if self.survives == 0:
            raise ClientLostError
        if self.survives is not None:
            self.survives -= 1
        return handle
