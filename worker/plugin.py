"""Perdure as a plugin of a Temporal worker: one's own, or the one that `AgentWorker` builds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHistory
from temporalio.common import RawValue
from temporalio.worker import ExecuteActivityInput, Plugin, Replayer, ReplayerConfig, Worker, WorkerConfig, WorkflowReplayResult
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from perdure import errors
from perdure.activities import failures
from perdure.activities.agents import Agents
from perdure.activities.call_model import ModelActivities
from perdure.activities.call_tool import ToolActivities, ToolNames
from perdure.activities.heartbeats import HeartbeatInterceptor
from perdure.activities.models import Models
from perdure.activities.payloads import V, pack, unpack
from perdure.activities.signatures import CALL_MODEL, RESOLVE_AGENT, TURN
from perdure.activities.tool_loop import ToolLoop
from perdure.activities.transcripts import Transcripts
from perdure.agents import define
from perdure.errors import PerdureError
from perdure.wire import AgentCall, ModelCall, ToolRun
from perdure.worker.settings import HEARTBEAT_THROTTLE, STICKY_TIMEOUT, WorkerSettings
from perdure.workflows import AgentTurn
from perdure.workflows.inputs import OneInput

if TYPE_CHECKING:
    from perdure.worker.agent_worker import AgentWorker

_SDK_STICKY_TIMEOUT = timedelta(seconds=10)
_THREADS = 100

Handler = Callable[[RawValue], Any]


class PerdurePlugin(Plugin):
    """Adds the turn and the tools of `app` to a Temporal worker; its other workflows and activities stay as they are.

    One plugin belongs to one worker.
    """

    def __init__(self, app: AgentWorker) -> None:
        self._registry = app.registry
        self._client: Client
        self._threads: ThreadPoolExecutor | None = None
        self._loop = ToolLoop(app.lifespan)
        self._models = Models(app.all_providers(), app.models)
        transcripts = Transcripts()
        known = [tool for agent in app.registry.agents() for tool in agent.toolset().values()]
        self._tools = ToolNames(known)
        self._agents = Agents(app.registry, self._models, self._tools.activity_of)
        for agent in app.registry.agents():
            define(agent, model=self._models.resolve(agent.model), activity_of=self._tools.activity_of)
        self._activities: list[Handler] = [
            _handler(RESOLVE_AGENT, self._agents.resolve_agent, AgentCall),
            _handler(CALL_MODEL, ModelActivities(self._models, transcripts).call_model, ModelCall),
            *ToolActivities(self._tools, self._agents, self._loop, transcripts).handlers(),
        ]

    def name(self) -> str:
        """The plugin's name."""
        return "perdure"

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add workflows, activities and interceptors; tune what still has the SDK's default.

        Raises:
            ConfigurationError: A name is taken by another activity or workflow of the worker.
        """
        self._refuse_taken(config)
        self._client = config["client"]
        config["workflows"] = [*config.get("workflows", []), AgentTurn]
        config["activities"] = [*config.get("activities", []), *self._activities]
        config["interceptors"] = [*config.get("interceptors", []), HeartbeatInterceptor(self._names(), self._prepare), OneInput()]
        if config.get("activity_executor") is None:
            threads = config.get("max_concurrent_activities") or _THREADS
            self._threads = ThreadPoolExecutor(threads, thread_name_prefix="perdure-activity")
            config["activity_executor"] = self._threads
        if not config.get("graceful_shutdown_timeout"):
            config["graceful_shutdown_timeout"] = WorkerSettings.from_environment().grace
        if config.get("sticky_queue_schedule_to_start_timeout") == _SDK_STICKY_TIMEOUT:
            config["sticky_queue_schedule_to_start_timeout"] = STICKY_TIMEOUT
        config["max_heartbeat_throttle_interval"] = HEARTBEAT_THROTTLE
        runner = config.get("workflow_runner")
        if isinstance(runner, SandboxedWorkflowRunner):
            passed = runner.restrictions.with_passthrough_modules("perdure")
            config["workflow_runner"] = replace(runner, restrictions=passed)
        return config

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Add the turn to a replayer."""
        config["workflows"] = [*config.get("workflows", []), AgentTurn]
        config["interceptors"] = [*config.get("interceptors", []), OneInput()]
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:  # noqa: A002 - the SDK's name
        """Run the worker with the lifespan open around it."""
        try:
            await self._loop.open()
        except PerdureError:
            worker._shutdown_complete_event.set()  # noqa: SLF001 - nothing was started, or `async with worker` would wait for its end for ever
            raise
        try:
            await next(worker)
        finally:
            await self._models.close()
            await self._loop.close()
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)

    def run_replayer(
        self,
        replayer: Replayer,
        histories: AsyncIterator[WorkflowHistory],
        next: Callable[  # noqa: A002 - the SDK's name
            [Replayer, AsyncIterator[WorkflowHistory]], AbstractAsyncContextManager[AsyncIterator[WorkflowReplayResult]]
        ],
    ) -> AbstractAsyncContextManager[AsyncIterator[WorkflowReplayResult]]:
        """A replay runs no activity, so nothing is opened."""
        return next(replayer, histories)

    def _names(self) -> list[str]:
        return [_name(handler) for handler in self._activities]

    def _refuse_taken(self, config: WorkerConfig) -> None:
        theirs = {_name(handler): handler for handler in config.get("activities", [])}
        for name in self._names():
            if name in theirs:
                what = f"the tool {name!r}" if name in self._tools.is_async else f"Perdure's activity {name!r}"
                raise errors.ConfigurationError(f"{what} and the worker's activity {theirs[name].__qualname__!r} have one name; rename one of them")
        for other in config.get("workflows", []):
            if workflow._Definition.must_from_class(other).name == TURN:  # noqa: SLF001 - there is no public way to the registered name
                raise errors.ConfigurationError(
                    f"the worker's workflow {other.__qualname__!r} and Perdure's turn are both named {TURN!r}; rename yours"
                )

    async def _prepare(self, input: ExecuteActivityInput) -> None:  # noqa: A002 - the SDK's name
        """Have an agent that a factory makes at hand before its tool runs."""
        info = activity.info()
        if info.activity_type not in (RESOLVE_AGENT, CALL_MODEL) and self._registry.has_factories:
            await self._agents.prepare(self._client, info, unpack(input.args[0], ToolRun).owner)


def _handler(name: str, method: Callable[[V], Awaitable[Any]], takes: type[V]) -> Handler:
    """A typed method as an activity that takes and returns raw payloads, with our errors as failures."""

    async def run(raw: RawValue) -> RawValue:
        with failures.typed():
            return pack(await method(unpack(raw, takes)), f"the result of {name}")

    return activity.defn(name=name)(run)


def _name(handler: Callable[..., object]) -> str:
    definition = activity._Definition.from_callable(handler)  # noqa: SLF001 - there is no public way to the registered name
    return definition.name or "" if definition else ""
