"""Perdure as a plugin of a Temporal worker: the user's own, or one built by `AgentWorker`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.client import Client, WorkflowHistory
from temporalio.common import RawValue
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

from perdure import errors, limits
from perdure.activities.answer_checks import Answers
from perdure.activities.call_model import ModelActivities
from perdure.activities.call_tool import ToolActivities, ToolNames
from perdure.activities.carry import Carrier
from perdure.activities.error_log import logged
from perdure.activities.heartbeats import HeartbeatInterceptor
from perdure.activities.hooks import Hooks
from perdure.activities.local_runs import LocalRuns
from perdure.activities.mcp.toolboxes import Servers
from perdure.activities.policies import Policies
from perdure.activities.pricing import Prices
from perdure.activities.profiles import Profiles
from perdure.activities.provider import Models
from perdure.activities.read_change import read_change
from perdure.activities.read_child import read_ended
from perdure.activities.record_turn import TurnRecorder
from perdure.activities.resolve_agent import Agents
from perdure.activities.settle_schedule import NOT_KEPT, settle_schedule
from perdure.activities.tool_loop import ToolLoop
from perdure.activities.transcripts import Transcripts
from perdure.activities.webhook_rules import Rules
from perdure.activities.webhooks import Webhooks
from perdure.agents.definitions import Target, define
from perdure.batch.wire import StoreCall
from perdure.clients.batches.storing import NOT_STORED, store_batch
from perdure.clients.schedules.sending import REFUSED, send_message
from perdure.delivery.push import ChangeCall, PushCall
from perdure.delivery.webhook import Notification, WebhookCall
from perdure.errors import PerdureError
from perdure.session.scheduled import MessageCall
from perdure.session.wire import RecordCall
from perdure.temporal import data_converter, failures
from perdure.temporal.core_exit import stop_core_at_exit
from perdure.temporal.liveness import timeout_for
from perdure.temporal.names import (
    ASK_POLICY,
    BATCH,
    BATCH_PART,
    BEAT_SOON,
    CALL_MODEL,
    CARRY,
    CHECK_RECEIVER,
    END_OF_TURN,
    HEARTBEAT_TIMEOUT,
    IS_AT_HAND,
    NOTIFY,
    PUSH,
    READ_CHANGE,
    READ_CHILD,
    RECORD_TURN,
    RESOLVE_AGENT,
    RUN_MIDDLEWARE,
    SCHEDULED_BATCH,
    SCHEDULED_MESSAGE,
    SEND_MESSAGE,
    SESSION,
    SETTLE_SCHEDULE,
    STORE_BATCH,
    TELL_OBSERVERS,
    TURN,
    WEBHOOK,
)
from perdure.temporal.payloads import V, is_foreign, pack, raw_input, undecodable, unpack
from perdure.turn.approvals import PolicyCall
from perdure.turn.continuation import CarryCall
from perdure.turn.schedule_account import SettleCall
from perdure.turn.wire import AgentCall, ChildRun, HookCall, ModelCall, ObserverCall, ToolRun
from perdure.worker import internals, slots
from perdure.worker.ends import TakenTasks
from perdure.worker.queues import ModelQueue, beside
from perdure.worker.settings import HEARTBEAT_THROTTLE, STICKY_TIMEOUT, WorkerSettings
from perdure.worker.workflow_functions import WorkflowFunctions
from perdure.workflows import WORKFLOWS
from perdure.workflows.single_input import OneInput

if TYPE_CHECKING:
    from perdure.worker.agent_worker import AgentWorker

_SDK_STICKY_TIMEOUT = timedelta(seconds=10)
_DYNAMIC = ""
"""The result of `_name` for a dynamic activity."""

_WORKFLOW_NAMES: dict[str | None, str] = {
    TURN: "turn",
    SESSION: "session",
    BATCH: "batch",
    BATCH_PART: "part of a batch",
    SCHEDULED_BATCH: "batch of a schedule",
    SCHEDULED_MESSAGE: "message of a schedule",
    WEBHOOK: "webhook",
    PUSH: "push notification",
}

_NO_TOOLS = (
    RESOLVE_AGENT,
    ASK_POLICY,
    CALL_MODEL,
    RUN_MIDDLEWARE,
    TELL_OBSERVERS,
    READ_CHILD,
    CARRY,
    RECORD_TURN,
    SEND_MESSAGE,
    SETTLE_SCHEDULE,
    STORE_BATCH,
    END_OF_TURN,
    NOTIFY,
    CHECK_RECEIVER,
    READ_CHANGE,
)

Handler = Callable[[RawValue], Any]


class PerdurePlugin(Plugin):
    """Adds the workflows of turns and batches, and the tools of `app`, to a Temporal worker.

    The worker's other workflows and activities are not affected. A plugin belongs to one worker.

    Args:
        app: The agents, with everything that they need.
        settings: The settings of the worker; by default those of the environment.
        max_model_calls: The maximum number of concurrent model calls, for which the worker's limit
            of concurrent activities does not apply; by default that of `settings`. In a worker with
            a tuner, the tuner's limit applies to model calls too.
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
        self._registry = app.registry
        self._client: Client
        self._config: WorkerConfig
        self._threads: ThreadPoolExecutor | None = None
        self._loop = ToolLoop(app.lifespan)
        self._telemetry = app.telemetry
        providers = app.all_providers()
        self._queues = dict(app.queues)
        _refuse_unknown_queues(self._queues, providers)
        self._models = Models(
            self._telemetry.watching(providers) if self._telemetry else providers, app.models
        )
        known = [tool for agent in app.registry.agents() for tool in agent.toolset().values()]
        self._tools = ToolNames(
            known, has_servers=any(agent.servers for agent in app.registry.agents())
        )
        self._servers = Servers()
        self._prices = Prices(app.prices)
        hosts, secrets = self._settings.webhook_hosts, self._settings.webhook_secrets
        self._webhooks = Webhooks(Rules.of(hosts, secrets))
        self._agents = Agents(
            app.registry,
            self._models,
            self._prices,
            Profiles(app.profiles),
            self._queues,
            self._servers,
            self._tools.activity_of,
            app.model_retry,
            self._webhooks,
        )
        self._check_agents()
        transcripts = Transcripts()
        self._local_runs = LocalRuns(transcripts)
        asks = ModelActivities(self._models, self._prices, transcripts, Answers(self._agents))
        self._call_model = _handler(CALL_MODEL, asks.call_model, ModelCall)
        self._activities = self._handlers(transcripts)

    def _check_agents(self) -> None:
        """Define every agent once, so that a wrong one fails here and not in a turn.

        Raises:
            ConfigurationError: A model has no provider, or an agent cannot be defined.
        """
        for agent in self._registry.agents():
            define(
                agent,
                chain=[Target(model=model) for model in self._models.resolve(agent.models)],
                activity_of=self._tools.activity_of,
            )

    def _handlers(self, transcripts: Transcripts) -> list[Handler]:
        """Return the activities of turns."""
        hooks = Hooks(self._agents, transcripts)
        self._tool_calls = ToolActivities(
            self._tools, self._agents, self._loop, self._servers, transcripts
        )
        return [
            _handler(RESOLVE_AGENT, self._agents.resolve_agent, AgentCall),
            _handler(ASK_POLICY, Policies(self._agents).ask_policy, PolicyCall),
            _handler(RUN_MIDDLEWARE, hooks.run_middleware, HookCall),
            _handler(TELL_OBSERVERS, hooks.tell_observers, ObserverCall),
            _handler(READ_CHILD, read_ended, ChildRun, final=failures.UNREADABLE),
            _handler(CARRY, Carrier().carry, CarryCall, may_be_stored=True),
            _handler(
                RECORD_TURN,
                TurnRecorder().record_turn,
                RecordCall,
                may_be_stored=True,
                final=failures.UNREADABLE,
            ),
            _handler(SEND_MESSAGE, send_message, MessageCall, final=REFUSED),
            _handler(STORE_BATCH, store_batch, StoreCall, final=NOT_STORED),
            _handler(SETTLE_SCHEDULE, settle_schedule, SettleCall, final=NOT_KEPT),
            _handler(
                END_OF_TURN, self._webhooks.end_of_turn, WebhookCall, final=failures.UNREADABLE
            ),
            _handler(NOTIFY, self._webhooks.notify, Notification),
            _handler(CHECK_RECEIVER, self._webhooks.check_receiver, PushCall),
            _handler(READ_CHANGE, read_change, ChangeCall, final=failures.UNREADABLE),
            self._call_model,
            *self._tool_calls.handlers(),
        ]

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
        self._tool_calls.has_storage = storage is not None
        config["workflows"] = [*config.get("workflows", []), *WORKFLOWS]
        config["activities"] = [*config.get("activities", []), *self._activities]
        beats = HeartbeatInterceptor(
            _Ours(self._names(), self._tools), self._prepare, self._settings.heartbeat_tolerance
        )
        ours: list[Interceptor] = [beats, OneInput(), self._functions(beats)]
        if self._telemetry is not None:  # inside the heartbeats, as it may read history first
            ours.append(
                self._telemetry.interceptor(self._client, _Ours(self._names(), self._tools))
            )
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
        # evictions are how the records of a turn learn about the fate of its task
        if not config.get("disable_safe_workflow_eviction"):
            config["unsandboxed_workflow_runner"] = TakenTasks(
                config.get("unsandboxed_workflow_runner") or UnsandboxedWorkflowRunner()
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
        }
        if self._settings.local_lookups:
            functions[IS_AT_HAND] = self._agents.is_at_hand
        return WorkflowFunctions(functions)

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Add the workflows of turns, sessions and batches to a replayer."""
        config["workflows"] = [*config.get("workflows", []), *WORKFLOWS]
        config["interceptors"] = [*config.get("interceptors", []), OneInput()]
        config["workflow_failure_exception_types"] = [
            *config.get("workflow_failure_exception_types", []),
            PerdureError,
        ]
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:  # noqa: A002 - the SDK's name
        """Run the worker with the lifespan open around it."""
        async with contextlib.AsyncExitStack() as opened:
            try:
                await self._open(opened)
            except BaseException:  # a cancellation too
                internals.mark_ended(worker)
                raise
            async with beside(
                worker, [self._asking(name, queue) for name, queue in self._queues.items()]
            ):
                await next(worker)

    async def _open(self, opened: contextlib.AsyncExitStack) -> None:
        """Open what the worker needs while it runs; `opened` closes it in the reverse order."""
        if self._threads is not None:
            opened.callback(self._threads.shutdown, wait=False, cancel_futures=True)
        await self._loop.open()
        opened.push_async_callback(self._loop.close)
        await self._servers.loop.open()
        opened.push_async_callback(self._servers.loop.close)
        opened.push_async_callback(self._models.close)
        await self._agents.warm(self._client)

    def _asking(self, provider: str, queue: ModelQueue) -> Worker:
        """Return a worker for the model calls of one provider."""
        config = self._config
        return Worker(
            self._client,
            task_queue=f"{config['task_queue']}.{provider}",
            activities=[self._call_model],
            interceptors=config["interceptors"],
            build_id=config.get("build_id"),
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

    def _names(self) -> list[str]:
        return [internals.activity_name(handler) for handler in self._activities]

    def _refuse_taken(self, config: WorkerConfig) -> None:
        theirs = {
            internals.activity_name(handler): handler for handler in config.get("activities", [])
        }
        if _DYNAMIC in theirs and self._tools.has_servers:
            raise errors.ConfigurationError(
                "the tools of MCP servers need the worker's only dynamic activity, which is already"
                f" {theirs[_DYNAMIC].__qualname__!r}; run the agents with"
                " MCP servers in a worker of their own"
            )
        self._tools.taken = frozenset(theirs)
        for name in self._names():
            if name in theirs and name != _DYNAMIC:
                what = (
                    f"the tool {name!r}"
                    if name in self._tools.is_async
                    else f"Perdure's activity {name!r}"
                )
                raise errors.ConfigurationError(
                    f"{what} and the worker's activity {theirs[name].__qualname__!r} have the same"
                    " name; rename one of them"
                )
        for other in config.get("workflows", []):
            taken = internals.workflow_name(other)
            if taken in _WORKFLOW_NAMES:
                raise errors.ConfigurationError(
                    f"the worker's workflow {other.__qualname__!r} and Perdure's"
                    f" {_WORKFLOW_NAMES[taken]} are both named {taken!r}; rename yours"
                )

    async def _prepare(self, input: ExecuteActivityInput) -> None:  # noqa: A002 - the SDK's name
        """Make an agent of a factory available before its tool runs. Refuse some local calls."""
        info = activity.info()
        if info.activity_type in _NO_TOOLS:
            return
        if info.is_local:
            await self._local_runs.check(self._client, info)
        if self._registry.has_factories:
            await self._agents.prepare(
                self._client, info, unpack(raw_input(input.args), ToolRun).owner
            )


class _Ours(Container[str]):
    """The names of Perdure's activities, including tools of MCP servers, which are dynamic."""

    def __init__(self, names: Iterable[str], tools: ToolNames) -> None:
        self._names = frozenset(names)
        self._tools = tools

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._names or self._tools.is_of_server(name))


def _refuse_unknown_queues(queues: Iterable[str], providers: Collection[str]) -> None:
    """Check that each provider with a queue of its own exists.

    Raises:
        ConfigurationError: One does not.
    """
    unknown = [name for name in queues if name not in providers]
    if unknown:
        raise errors.ConfigurationError(
            f"there is a queue for the provider {unknown[0]!r}, but this worker only has"
            f" {', '.join(sorted(providers))}"
        )


def _handler(
    name: str,
    method: Callable[[V], Awaitable[Any]],
    takes: type[V],
    *,
    may_be_stored: bool = False,
    final: failures.Final = PerdureError,
) -> Handler:
    """Wrap a typed method as an activity with raw payloads and typed failures.

    `may_be_stored` allows a larger result if the client has an external storage. Errors that are
    not `final` are tried again if the workflow allows it.
    """

    async def run(raw: RawValue) -> RawValue:
        with failures.typed(final), logged():
            if is_foreign(raw.payload):  # another worker may have the codec
                raise failures.of_activity(undecodable(None, [raw.payload]), is_final=False)
            result = await method(unpack(raw, takes))
            is_stored = activity.client().data_converter.external_storage is not None
            most = limits.STORED_BYTES if may_be_stored and is_stored else limits.PAYLOAD_BYTES
            return pack(result, f"the result of {name}", most_bytes=most)

    return activity.defn(name=name)(run)
