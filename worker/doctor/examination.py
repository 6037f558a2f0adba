"""All checks of `perdure doctor`, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from perdure.errors import PerdureError
from perdure.temporal.connect import connect
from perdure.temporal.names import provider_queue
from perdure.worker.agent_worker import AgentWorker
from perdure.worker.check import loaded, of_program
from perdure.worker.doctor import (
    builds,
    models,
    namespace,
    open_workflows,
    queues,
    rollouts,
    stuck,
    subject_keys,
)
from perdure.worker.doctor.clock import Clock, compared, machine_clock
from perdure.worker.doctor.open_workflows import OpenWorkflow
from perdure.worker.setup_checks import Finding

SERVER = "Temporal"
"""The subject of the finding about the server itself."""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What to look at, and when something counts as late.

    Attributes:
        address: The address of Temporal; None for the one of the environment.
        task_queue: The task queue of the workers, looked at even if nothing runs on it.
        program: `module:name` of a worker whose agents are checked too; None for no check of them.
        asks_models: Whether each model of the program gets a short request.
        longest_wait: How long a turn may wait for a person, a provider, budget or an operator.
        longest_backlog: How long a task may wait although workers poll for it.
        most_workflows: The largest number of open workflows to look at.
        clock: The time of this machine.
    """

    address: str | None = None
    task_queue: str = "perdure"
    program: str | None = None
    asks_models: bool = False
    longest_wait: timedelta = timedelta(days=1)
    longest_backlog: timedelta = timedelta(minutes=1)
    most_workflows: int = 1_000
    clock: Clock = field(default=machine_clock)

    async def findings(self) -> AsyncIterator[Finding]:
        """Yield what is found, in order."""
        app = None if self.program is None else loaded(self.program)
        if self.program is not None and app is not None:
            async for finding in of_program(self.program, app):
                yield finding
        if isinstance(app, AgentWorker) and self.asks_models:
            for finding in await models.asked(app):
                yield finding
        try:
            client = await connect(self.address)
            async for finding in self._of_server(client, app):
                yield finding
        except PerdureError as error:
            yield Finding(SERVER, "failed", error.message)
        except RPCError as error:
            yield Finding(SERVER, "failed", f"it refused a request: {error.message}")

    async def _of_server(
        self, client: Client, app: AgentWorker | PerdureError | None
    ) -> AsyncIterator[Finding]:
        yield await namespace.answering(client)
        kept = await namespace.retention(client)
        yield kept
        if kept.state == "failed":
            return  # the other requests name the namespace too
        yield await namespace.attributes(client)
        clock, now = await compared(client, self.clock)
        yield clock
        workflows = [one async for one in open_workflows.read(client, self.most_workflows)]
        for finding in await self._of_queues(client, app, workflows, now):
            yield finding
        async for finding in builds.findings(client):
            yield finding
        async for finding in subject_keys.findings(client):
            yield finding
        if isinstance(app, AgentWorker):
            async for finding in rollouts.findings(client, app):
                yield finding
        for finding in stuck.findings(workflows, now, self.longest_wait):
            yield finding
        if len(workflows) >= self.most_workflows:
            yield self._rest(await open_workflows.count(client))

    async def _of_queues(
        self,
        client: Client,
        app: AgentWorker | PerdureError | None,
        workflows: Sequence[OpenWorkflow],
        now: datetime,
    ) -> list[Finding]:
        open_ = Counter(one.queue for one in workflows)
        mine = app.polled_queue if isinstance(app, AgentWorker) else self.task_queue
        of_turns = {mine, *open_}
        of_calls = {call.queue for one in workflows for call in one.calls}
        if isinstance(app, AgentWorker):
            of_calls |= {provider_queue(mine, provider) for provider in app.queues}
        late = self.longest_backlog
        return [
            *queues.of_turns(await queues.read(client, of_turns, now), open_, late),
            *queues.of_calls(await queues.read(client, of_calls - of_turns, now), late),
        ]

    def _rest(self, total: int) -> Finding:
        return Finding(
            "open workflows",
            "skipped",
            f"only the latest {self.most_workflows} of {total} were looked at",
            "`--most` looks at more",
        )
