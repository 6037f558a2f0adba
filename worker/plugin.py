"""Perdure as a plugin of a Temporal worker: the user's own, or a worker built by `AgentWorker`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio.client import Client, WorkflowHistory
from temporalio.worker import (
    ExecuteActivityInput,
    Interceptor,
    Plugin,
    Replayer,
    ReplayerConfig,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkerConfig,
    WorkflowReplayResult,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from perdure import errors
from perdure.activities.heartbeats import HeartbeatInterceptor
from perdure.errors import PerdureError
from perdure.temporal import data_converter
from perdure.temporal.core_exit import stop_core_at_exit
from perdure.temporal.liveness import timeout_for
from perdure.temporal.names import (
    BATCH,
    BATCH_PART,
    BEAT_SOON,
    ERASURE,
    HAND_OVER,
    HAS_STORAGE,
    HEARTBEAT_TIMEOUT,
    IS_AT_HAND,
    KEYED_EVENTS,
    PUSH,
    SCHEDULED_BATCH,
    SCHEDULED_MESSAGE,
    SESSION,
    SETTLEMENT,
    SHARE_STATE,
    TURN,
    WEBHOOK,
    provider_queue,
)
from perdure.worker import deployment, internals, replaying, slots
from perdure.worker.assembly import build
from perdure.worker.decrypting import Decrypting
from perdure.worker.ends import TakenTasks
from perdure.worker.queues import ModelQueue, beside
from perdure.worker.settings import HEARTBEAT_THROTTLE, STICKY_TIMEOUT, WorkerSettings
from perdure.worker.workflow_functions import WorkflowFunctions
from perdure.workflows import WORKFLOWS
from perdure.workflows.details_query import DetailsQuery
from perdure.workflows.single_input import OneInput

if TYPE_CHECKING:
    from perdure.worker.agent_worker import AgentWorker

_SDK_STICKY_TIMEOUT = timedelta(seconds=10)
_CORE_ENDS_WITHIN_S = 10.0
_DYNAMIC = ""
"""The name of a dynamic activity."""

_WORKFLOW_NAMES: dict[str | None, str] = {
    TURN: "turn",
    SESSION: "session",
    BATCH: "batch",
    BATCH_PART: "part of a batch",
    SCHEDULED_BATCH: "batch of a schedule",
    SCHEDULED_MESSAGE: "message of a schedule",
    WEBHOOK: "webhook",
    PUSH: "push notification",
    SETTLEMENT: "settlement",
    ERASURE: "erasure",
    KEYED_EVENTS: "keeper of events",
}


class PerdurePlugin(Plugin):
    """Adds the workflows of turns and batches, and the tools of `app`, to a Temporal worker.

    The worker's other workflows and activities are not affected. A plugin belongs to one worker.

    Args:
        app: The agents, with everything that they need.
        settings: The settings of the worker; by default from the environment.
        max_model_calls: The maximum number of concurrent model calls, for which the worker's limit
            of concurrent activities does not apply; by default the limit of `settings`. In a worker
            with a tuner, the tuner's limit applies to model calls too.
    """

    def __init__(
        self,
        app: AgentWorker,
        *,
        settings: WorkerSettings | None = None,
        max_model_calls: int | None = None,
    ) -> None:
        stop_core_at_exit()
        self._settings = settings or WorkerSettings.from_environment()
        self._max_model_calls = (
            self._settings.max_model_calls if max_model_calls is None else max_model_calls
        )
        self._activities = build(app, self._settings)
        self._telemetry = app.telemetry
        self._queues = dict(app.queues)
        self._client: Client
        self._config: WorkerConfig
        self._threads: ThreadPoolExecutor | None = None

    def name(self) -> str:
        """The plugin's name."""
        return "perdure"

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add workflows, activities and interceptors; tune settings that have the SDK's defaults.

        Raises:
            ConfigurationError: A name, or the dynamic activity, is already used by another activity
                or workflow of the worker, a limit of concurrent activities or model calls is below
                1, or the client's data converter cannot carry Perdure's payloads.
        """
        self._refuse_taken(config)
        data_converter.check(config["client"].data_converter)
        self._client = config["client"]
        storage = self._client.data_converter.external_storage
        self._activities.tool_calls.has_storage = storage is not None
        config["workflows"] = [*config.get("workflows", []), *WORKFLOWS]
        config["activities"] = [*config.get("activities", []), *self._activities.all]
        beats = HeartbeatInterceptor(
            self._activities, self._prepare, self._settings.heartbeat_tolerance
        )
        ours: list[Interceptor] = [beats, OneInput(), DetailsQuery(), self._functions(beats)]
        if self._telemetry is not None:  # inside the heartbeats, as it may read history first
            ours.append(self._telemetry.interceptor(self._client, self._activities))
        config["interceptors"] = [*config.get("interceptors", []), *ours]
        if config.get("activity_executor") is None:
            threads = config.get("max_concurrent_activities") or slots.SDK_SLOTS
            threads += config.get("max_concurrent_local_activities") or slots.SDK_SLOTS
            self._threads = ThreadPoolExecutor(threads, thread_name_prefix="perdure-activity")
            config["activity_executor"] = self._threads
        if not config.get("graceful_shutdown_timeout"):
            config["graceful_shutdown_timeout"] = self._settings.grace
        if config.get("sticky_queue_schedule_to_start_timeout") == _SDK_STICKY_TIMEOUT:
            config["sticky_queue_schedule_to_start_timeout"] = STICKY_TIMEOUT
        config["max_heartbeat_throttle_interval"] = HEARTBEAT_THROTTLE
        # raised by `run_turn`
        config["workflow_failure_exception_types"] = [
            *config.get("workflow_failure_exception_types", []),
            PerdureError,
        ]
        runner = config.get("workflow_runner")
        if isinstance(runner, SandboxedWorkflowRunner):
            passed = runner.restrictions.with_passthrough_modules("perdure")
            config["workflow_runner"] = replace(runner, restrictions=passed)
        if deployment.is_versioned(config):
            config["unsandboxed_workflow_runner"] = deployment.Following(
                config.get("unsandboxed_workflow_runner") or UnsandboxedWorkflowRunner()
            )
        config["unsandboxed_workflow_runner"] = Decrypting(
            config.get("unsandboxed_workflow_runner"), self._client.data_converter.payload_codec
        )
        # evictions are how the records of a turn learn about the fate of its task
        if not config.get("disable_safe_workflow_eviction"):
            config["unsandboxed_workflow_runner"] = TakenTasks(
                config["unsandboxed_workflow_runner"]
            )
        slots.separate(config, self._max_model_calls)
        self._config = config
        return config

    def _functions(self, beats: HeartbeatInterceptor) -> WorkflowFunctions:
        """Return what the workflows of turns ask their worker."""
        functions: dict[str, Callable[..., Any]] = {
            HEARTBEAT_TIMEOUT: lambda: timeout_for(
                self._settings.heartbeat, self._settings.heartbeat_tolerance
            ),
            BEAT_SOON: beats.beat_soon,
            HAND_OVER: self._activities.carrier.hand_over,
            SHARE_STATE: self._activities.transcripts.share,
            HAS_STORAGE: lambda: self._client.data_converter.external_storage is not None,
        }
        if self._settings.local_lookups:
            functions[IS_AT_HAND] = self._activities.agents.is_at_hand
        return WorkflowFunctions(functions)

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Add the workflows of turns, sessions and batches to a replayer."""
        return replaying.configured(config)

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:  # noqa: A002 - the SDK's name
        """Run the worker with the lifespan open around it."""
        internals.bound_end(worker, _CORE_ENDS_WITHIN_S)
        async with contextlib.AsyncExitStack() as opened:
            try:
                if self._threads is not None:
                    opened.callback(self._threads.shutdown, wait=False, cancel_futures=True)
                await self._activities.open(opened, self._client)
            except BaseException:  # a cancellation too
                internals.mark_ended(worker)
                raise
            async with beside(
                worker, [self._asking(name, queue) for name, queue in self._queues.items()]
            ):
                await next(worker)

    def _asking(self, provider: str, queue: ModelQueue) -> Worker:
        """Return a worker for the model calls of one provider."""
        config = self._config
        # without a version: a worker of any build may ask a model for a turn of any other
        is_versioned = deployment.is_versioned(config)
        build_id = deployment.UNVERSIONED_BUILD if is_versioned else config.get("build_id")
        return Worker(
            self._client,
            task_queue=provider_queue(config["task_queue"], provider),
            activities=[self._activities.call_model],
            interceptors=config["interceptors"],
            build_id=build_id,
            max_concurrent_activities=queue.at_once or self._max_model_calls,
            max_task_queue_activities_per_second=queue.per_second,
            max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            graceful_shutdown_timeout=config["graceful_shutdown_timeout"],
        )

    def run_replayer(
        self,
        replayer: Replayer,
        histories: AsyncIterator[WorkflowHistory],
        next: Callable[  # noqa: A002 - the SDK's name
            [Replayer, AsyncIterator[WorkflowHistory]],
            AbstractAsyncContextManager[AsyncIterator[WorkflowReplayResult]],
        ],
    ) -> AbstractAsyncContextManager[AsyncIterator[WorkflowReplayResult]]:
        """Open nothing, as a replay runs no activities."""
        return next(replayer, histories)

    def _refuse_taken(self, config: WorkerConfig) -> None:
        theirs = {
            internals.activity_name(handler): handler for handler in config.get("activities", [])
        }
        tools = self._activities.tool_names
        if _DYNAMIC in theirs and tools.has_servers:
            raise errors.ConfigurationError(
                "the tools of MCP servers need the worker's only dynamic activity, which is already"
                f" {theirs[_DYNAMIC].__qualname__!r}; run the agents with"
                " MCP servers in a worker of their own"
            )
        tools.taken = frozenset(theirs)
        for name in map(internals.activity_name, self._activities.all):
            if name in theirs and name != _DYNAMIC:
                is_tool = name in tools.is_async
                subject = f"the tool {name!r}" if is_tool else f"Perdure's activity {name!r}"
                raise errors.ConfigurationError(
                    f"{subject} and the worker's activity {theirs[name].__qualname__!r} have the"
                    " same name; rename one of them"
                )
        _refuse_taken_workflows(config)

    async def _prepare(self, input: ExecuteActivityInput) -> None:  # noqa: A002 - the SDK's name
        await self._activities.prepare(self._client, input.args)


def _refuse_taken_workflows(config: WorkerConfig) -> None:
    for other in config.get("workflows", []):
        taken = internals.workflow_name(other)
        if taken in _WORKFLOW_NAMES:
            raise errors.ConfigurationError(
                f"the worker's workflow {other.__qualname__!r} and Perdure's"
                f" {_WORKFLOW_NAMES[taken]} are both named {taken!r}; rename yours"
            )
