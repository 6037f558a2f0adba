"""A worker for agents: its configuration, and how it runs and stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.worker import Plugin, Worker

from perdure import validation
from perdure.activities import providers
from perdure.activities.provider import Provider
from perdure.activities.tool_loop import Lifespan
from perdure.agents.agent import Agent
from perdure.agents.registry import Entry, Registry
from perdure.agents.versions import Rollout
from perdure.temporal import data_converter
from perdure.temporal.connect import connect
from perdure.temporal.names import TASK_QUEUE
from perdure.validation import Must
from perdure.values.model_retry import APolicy, ModelRetryPolicy
from perdure.values.prices import Price
from perdure.values.profiles import ModelProfile
from perdure.worker import deployment, health, setup_checks, startup
from perdure.worker.decrypting import check_keys
from perdure.worker.plugin import PerdurePlugin
from perdure.worker.queues import ModelQueue
from perdure.worker.settings import WorkerSettings
from perdure.worker.supervision.supervised import HeldRunsPlugin, Supervised

if TYPE_CHECKING:
    from perdure.worker.telemetry.telemetry import Telemetry

logger = logging.getLogger("perdure")

_CUT_SHORT_S = 5.0


def _by_name(noun: str, fits: Callable[[Any], bool]) -> Any:
    return Annotated[
        Mapping[validation.Text, Annotated[Any, Must(noun, fits)]],
        Must(f"a mapping from names, each value {noun}"),
    ]


def _is_chain(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, Sequence) and all(isinstance(model, str) for model in value)
    )


_TYPES = {
    "task_queue": validation.Unicode,
    "models": _by_name("a model, or a list of models", _is_chain),
    "providers": _by_name("a provider", lambda value: callable(getattr(value, "complete", None))),
    "prices": _by_name("a Price", lambda value: isinstance(value, Price)),
    "profiles": _by_name("a ModelProfile", lambda value: isinstance(value, ModelProfile)),
    "data_converter": data_converter.Converter,
    "model_retry": APolicy,
    "queues": _by_name("a ModelQueue", lambda value: isinstance(value, ModelQueue)),
    "deployment": validation.Text | None,
    "rollouts": _by_name("a Rollout", lambda value: isinstance(value, Rollout)),
}


def _as_registry(agents: Registry | Agent[Any] | Iterable[Entry]) -> Registry:
    if isinstance(agents, Registry):
        return agents
    return Registry([agents] if isinstance(agents, Agent) else agents)


@dataclass(frozen=True)
class AgentWorker:
    """Agents with everything that they need to run.

    Attributes:
        agents: A registry, an agent, or several agents.
        lifespan: An async context manager that is entered once per process before the first turn
            and exited at shutdown; tools get what it yields as `ctx.deps`.
        task_queue: The task queue of this worker.
        models: Aliases: `{"main": "openai:gpt-5-mini"}` lets agents use `model="main"`. An alias
            may be the name of a fallback chain, given as a list.
        providers: Providers by the prefix of a model name, in addition to `openai`,
            `openai-responses`, `anthropic`, `ollama` and `offline`.
        prices: Prices of models that Perdure does not know, or that replace the known prices:
            `{"vllm:qwen3": Price(input="0.5", output="2")}` in US dollars per million tokens;
            `"vllm:*"` for all models of a provider, `Price.free()` for free models.
        profiles: Capabilities of models that Perdure does not know:
            `{"vllm:qwen3": ModelProfile(window=32_768, media={})}`, with keys as in `prices`.
        model_retry: How long turns keep retrying an unavailable provider; an agent's own policy
            overrides it.
        queues: Separate task queues for the model calls of some providers, with a rate limit:
            `{"openai": ModelQueue(per_second=5)}`.
        rollouts: Which turns get which version of an agent, by the agent's name:
            `{"support": Rollout({"v2": 0.1})}`. Each agent with several versions needs one.
        telemetry: The destination of spans and metrics; without it, `run` uses the environment's
            configuration, if any.
        data_converter: Temporal's data converter for the client that `run` creates; without it, the
            one that `PERDURE_DATA_CONVERTER` names.
        deployment: The deployment that the worker belongs to: it is then versioned, with the build
            id `PERDURE_BUILD_ID`. `PERDURE_DEPLOYMENT` overrides it.
    """

    agents: Registry | Agent[Any] | Iterable[Entry]
    lifespan: Lifespan | None = field(default=None, kw_only=True)
    task_queue: str = field(default=TASK_QUEUE, kw_only=True)
    models: Mapping[str, str | Sequence[str]] = field(default_factory=dict, kw_only=True)
    providers: Mapping[str, Provider] = field(default_factory=dict, kw_only=True)
    prices: Mapping[str, Price] = field(default_factory=dict, kw_only=True)
    profiles: Mapping[str, ModelProfile] = field(default_factory=dict, kw_only=True)
    model_retry: ModelRetryPolicy = field(default=ModelRetryPolicy(), kw_only=True)
    queues: Mapping[str, ModelQueue] = field(default_factory=dict, kw_only=True)
    rollouts: Mapping[str, Rollout] = field(default_factory=dict, kw_only=True)
    telemetry: Telemetry | None = field(default=None, kw_only=True)
    data_converter: DataConverter | None = field(default=None, kw_only=True)
    deployment: str | None = field(default=None, kw_only=True)

    @property
    def registry(self) -> Registry:
        """The agents."""
        return _as_registry(self.agents)

    def __post_init__(self) -> None:
        validation.check("the worker", vars(self), _TYPES)
        if self.deployment is not None:
            deployment.check_name(self.deployment)
        object.__setattr__(self, "agents", _as_registry(self.agents))

    @property
    def polled_queue(self) -> str:
        """The task queue from the environment, else the task queue in the code."""
        return WorkerSettings.from_environment().task_queue or self.task_queue

    def all_providers(self) -> dict[str, Provider]:
        """Return the built-in providers merged with the worker's own, which take precedence."""
        return {**providers.defaults(), **self.providers}

    def build(
        self,
        client: Client,
        *,
        settings: WorkerSettings | None = None,
        plugins: Sequence[Plugin] = (),
    ) -> Worker:
        """Return a Temporal worker that is not running yet.

        Raises:
            ConfigurationError: An agent, a model or a name is not valid, or the worker has a
                deployment and no build id, or the reverse.
            DuplicateToolError: Two tools of one agent have the same name.
        """
        settings = settings or WorkerSettings.from_environment()
        return Worker(
            client,
            task_queue=settings.task_queue or self.task_queue,
            plugins=[*plugins, PerdurePlugin(self, settings=settings)],
            max_concurrent_activities=settings.max_activities,
            max_concurrent_local_activities=settings.max_activities,
            graceful_shutdown_timeout=settings.grace,
            **settings.deployment.options(self.deployment),
        )

    @contextlib.asynccontextmanager
    async def running(
        self, client: Client, *, settings: WorkerSettings | None = None
    ) -> AsyncIterator[Worker]:
        """Run a worker while the block runs."""
        async with self.build(client, settings=settings) as worker:
            yield worker

    async def run(
        self,
        address: str | None = None,
        *,
        health_port: int | None = None,
        on_start: Callable[[], None] | None = None,
    ) -> None:
        """Run until SIGTERM or SIGINT, then drain.

        While draining, the worker takes no new work, and running work may finish within the grace
        period. A second signal stops immediately.

        Args:
            address: The address of Temporal; by default from Temporal's environment profiles, or
                localhost.
            health_port: The port for probes of `/healthz` and `/readyz`; by default from
                `PERDURE_HEALTH_PORT`, or none.
            on_start: Called before the worker takes work, once signals drain it.

        Raises:
            ServerUnreachableError: Temporal does not respond.
            ConfigurationError: An agent, a model, a name, the lifespan, the port or the data
                converter is not valid.
        """
        await serve(self, address, None, health_port=health_port, on_start=on_start)


async def serve(
    app: AgentWorker,
    address: str | None,
    supervised: Supervised | None,
    *,
    health_port: int | None,
    on_start: Callable[[], None] | None,
) -> None:
    """Run a worker as `AgentWorker.run` does, possibly in a process that has a supervisor."""
    settings = WorkerSettings.from_environment()
    client = await connect(
        address,
        converter=app.data_converter,
        identity=supervised.identity if supervised else None,
    )
    await check_keys(client, app.polled_queue)

    def begin() -> None:
        _begin(app, on_start)
        if supervised is not None:
            supervised.serve(client)

    async with _telemetry(app, settings) as telemetry:
        plugins = [HeldRunsPlugin(supervised.held)] if supervised else []
        worker = replace(app, telemetry=telemetry).build(client, settings=settings, plugins=plugins)
        startup.prepare(app.registry.agents())
        await _run(worker, client, settings, health_port, begin, supervised)


def _begin(app: AgentWorker, on_start: Callable[[], None] | None) -> None:
    """Report that the worker starts, and log problems with its setup."""
    if on_start is not None:
        on_start()
    for finding in setup_checks.found(app):
        if finding.is_problem:
            logger.warning("%s", finding)


@contextlib.asynccontextmanager
async def _telemetry(app: AgentWorker, settings: WorkerSettings) -> AsyncIterator[Telemetry | None]:
    """Yield the telemetry of the code, or the telemetry that the environment configures."""
    if app.telemetry is not None or not settings.otlp:
        yield app.telemetry
        return
    from perdure.worker.telemetry import otlp

    async with otlp.from_environment() as telemetry:
        yield telemetry


async def _run(
    worker: Worker,
    client: Client,
    settings: WorkerSettings,
    health_port: int | None,
    on_start: Callable[[], None],
    supervised: Supervised | None,
) -> None:
    """Run until a signal arrives, then drain."""
    stopped, cut_short = asyncio.Event(), asyncio.Event()
    readiness = health.Readiness(client, worker, stopped)
    async with (
        health.served(
            health_port or settings.health_port,
            readiness,
            is_shared=supervised is not None and supervised.has_others,
        ),
        supervised.orders(stopped, cut_short) if supervised else _signals(stopped, cut_short),
    ):
        on_start()
        running = asyncio.create_task(worker.run())
        waiting = asyncio.create_task(stopped.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not running.done():
            logger.warning(
                "draining for up to %g s: no new work is taken, running work may finish; send"
                " another signal to stop now",
                settings.grace.total_seconds(),
            )
            await _drain(worker, running, cut_short)
        await running


async def _drain(worker: Worker, running: asyncio.Task[None], cut_short: asyncio.Event) -> None:
    """Shut down including the lifespan, or stop at once if a second signal arrives."""
    draining = asyncio.create_task(worker.shutdown())
    cut = asyncio.create_task(cut_short.wait())
    await asyncio.wait({running, cut}, return_when=asyncio.FIRST_COMPLETED)
    cut.cancel()
    if not running.done():
        running.cancel()
        await asyncio.wait({running, draining}, timeout=_CUT_SHORT_S)
        raise SystemExit(1)


@contextlib.asynccontextmanager
async def _signals(stopped: asyncio.Event, cut_short: asyncio.Event) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (cut_short if stopped.is_set() else stopped).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
