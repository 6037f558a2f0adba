"""Versioned workers in this process, each with its build id, on one task queue."""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio.client import Client

from perdure import errors
from perdure.clients import AgentClient, Turn
from perdure.temporal.names import MOVE_ON
from perdure.worker import AgentWorker
from perdure.worker.deploying import routing
from perdure.worker.deploying.draining import Drain, DrainProgress
from perdure.worker.deploying.versions import Deployment
from perdure.worker.deployment import WorkerVersion
from perdure.worker.settings import WorkerSettings

WAIT = timedelta(seconds=30)


def ignore(_: str) -> None:
    """Say nothing."""


class Versions:
    """A deployment of its own, with the workers of its versions.

    Attributes:
        client: The client of its task queue.
        deployment: The deployment.
        last: The last progress of a drain.
    """

    last: DrainProgress

    def __init__(self, temporal: Client) -> None:
        name = f"test-{secrets.token_hex(6)}"
        self.client = AgentClient.from_temporal(temporal, task_queue=name)
        self.deployment = Deployment(temporal, name)

    def worker(
        self, build_id: str | None, agents: Any, **options: Any
    ) -> AbstractAsyncContextManager[Any]:
        """Run a worker of a build; None for one without a version."""
        name = self.deployment.name
        setting = WorkerVersion(name="") if build_id is None else WorkerVersion(name, build_id)
        app = AgentWorker(agents, task_queue=name, **options)
        settings = replace(
            WorkerSettings.from_environment(), grace=timedelta(seconds=1), deployment=setting
        )
        return app.running(self.client.temporal, settings=settings)

    async def promote(self, build_id: str) -> str:
        """Make a version the current one, and return the one before."""
        return await routing.promote(self.deployment, build_id, WAIT, ignore)

    async def drain(
        self, build_id: str, *, within_s: float = WAIT.total_seconds(), **options: Any
    ) -> DrainProgress:
        """Drain a version, and return how that ended; `last` is what was known last."""
        async with asyncio.timeout(within_s):
            async for progress in Drain(self.deployment, build_id, **options).progress():
                self.last = progress
        return self.last

    async def build_of(self, workflow_id: str) -> str:
        """The build that has run the last task of the last run of a workflow; empty for none."""
        described = await self.client.temporal.get_workflow_handle(workflow_id).describe()
        info = described.raw_description.workflow_execution_info.versioning_info
        return str(info.deployment_version.build_id)

    async def runs_on(self, workflow_id: str, build_id: str) -> None:
        """Wait until a workflow is on a build."""
        await until(lambda: self._is_on(workflow_id, build_id))

    async def _is_on(self, workflow_id: str, build_id: str) -> bool:
        return await self.build_of(workflow_id) == build_id


async def until(holds: Callable[[], Awaitable[bool]], within_s: float = 60.0) -> None:
    """Wait until something holds that the server has to be asked for."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110 - the server is polled
            await asyncio.sleep(0.05)


async def builds_of(client: Client, workflow_id: str) -> list[str]:
    """The build that has run each run of a workflow, the first run first; empty for none."""
    described = await client.get_workflow_handle(workflow_id).describe()
    run_id = described.raw_description.workflow_execution_info.first_run_id
    builds = list[str]()
    while run_id:
        ran, following = set[str](), ""
        async for event in client.get_workflow_handle(
            workflow_id, run_id=run_id
        ).fetch_history_events():
            if event.HasField("workflow_task_completed_event_attributes"):
                completed = event.workflow_task_completed_event_attributes
                ran.add(completed.deployment_version.build_id)
            if event.HasField("workflow_execution_continued_as_new_event_attributes"):
                continued = event.workflow_execution_continued_as_new_event_attributes
                following = continued.new_execution_run_id
        builds.append("+".join(sorted(ran)))
        run_id = following
    return builds


async def move_on(client: Client, *workflow_ids: str) -> None:
    """Ask workflows to move on, as a drain does."""
    await asyncio.gather(
        *(client.get_workflow_handle(workflow_id).signal(MOVE_ON) for workflow_id in workflow_ids)
    )


async def until_begun(turn: Turn) -> None:
    """Wait until there is such a turn."""

    async def is_there() -> bool:
        with contextlib.suppress(errors.TurnNotFoundError):
            await turn.status()
            return True
        return False

    await until(is_there)
