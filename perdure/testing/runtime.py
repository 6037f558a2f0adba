"""A real Temporal server and worker for an agent, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from temporalio.converter import DataConverter

from perdure.activities.provider import Heard, ModelRequest, Provider, listen
from perdure.activities.tool_loop import Lifespan
from perdure.agents.agent import Agent
from perdure.agents.registry import Entry, Registry
from perdure.agents.versions import address, parts_of
from perdure.clients import AgentClient
from perdure.temporal.connect import connect_local
from perdure.testing.fake_mcp import FakeMCPServer, check_names, with_fakes
from perdure.testing.time_skipping import SETTING
from perdure.values.answers import ModelAnswer
from perdure.values.tasks import TurnInfo
from perdure.worker import AgentWorker
from perdure.worker.deployment import WorkerVersion
from perdure.worker.dev.server import DevServer
from perdure.worker.settings import WorkerSettings

_AS_DECLARED: Any = object()
_GRACE = timedelta(seconds=1)


class Runtime(Protocol):
    """The type of the pytest fixture `perdure_runtime`: `local_runtime` on the session's server."""

    def __call__(
        self,
        app: AgentWorker | Registry | Agent[Any],
        *,
        model: Provider | Mapping[str, Provider] | None = None,
        deps: Any = ...,
        mcp: Mapping[str, FakeMCPServer] | None = None,
        data_converter: DataConverter | None = None,
    ) -> AbstractAsyncContextManager[AgentClient]:
        """See `local_runtime`."""


@contextlib.asynccontextmanager
async def local_runtime(
    app: AgentWorker | Registry | Agent[Any],
    *,
    model: Provider | Mapping[str, Provider] | None = None,
    deps: Any = _AS_DECLARED,
    mcp: Mapping[str, FakeMCPServer] | None = None,
    address: str | None = None,
    data_converter: DataConverter | None = None,
) -> AsyncIterator[AgentClient]:
    """Yield a client whose turns run on a real server by a real worker, in this process.

    Args:
        app: The agents to run.
        model: Replaces the agents' models: one for all, or one for each agent by name, or by name
            and version as in `support@v2`; for `generate`, by the model's name.
        deps: The value of `ctx.deps` in tools; replaces the lifespan.
        mcp: Fakes for the agents' MCP servers, by server name.
        address: The address of a running server; by default, a server is started in memory and
            stopped at the end.
        data_converter: The data converter of worker and client; by default the worker's, or the
            converter that `PERDURE_DATA_CONVERTER` names.
    """
    worker = _with(app, model, deps, mcp)
    async with contextlib.AsyncExitStack() as stack:
        if address is None:
            server = await stack.enter_async_context(_server())
            address = server.address.address
        client = await connect_local(address, converter=data_converter or worker.data_converter)
        await stack.enter_async_context(worker.running(client, settings=_settings()))
        yield AgentClient.from_temporal(client, task_queue=worker.task_queue)


@contextlib.contextmanager
def server_in_thread() -> Iterator[str]:
    """Yield the address of a server that runs during the block, on an event loop of its own.

    Each test may have its own server.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="perdure-test-server")
    thread.start()
    server = _server()
    try:
        yield asyncio.run_coroutine_threadsafe(server.start(), loop).result().address
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _settings() -> WorkerSettings:
    """Return the settings of a worker in a test.

    Webhooks are allowed by the environment, which also says where live text is served. The worker
    has no version: it is the only one.
    """
    settings = WorkerSettings.from_environment()
    return WorkerSettings(
        grace=_GRACE,
        webhook_hosts=settings.webhook_hosts,
        webhook_secrets=settings.webhook_secrets,
        live_text=settings.live_text,
        deployment=WorkerVersion(name=""),
    )


def _server() -> DevServer:
    """Return a server in memory.

    Its task queues are not divided into partitions, which takes a tenth of its CPU time.
    """
    settings = {
        SETTING: "true",
        "matching.numTaskqueueReadPartitions": "1",
        "matching.numTaskqueueWritePartitions": "1",
    }
    arguments = [f"--dynamic-config-value={name}={value}" for name, value in settings.items()]
    return DevServer(folder=None, port=0, ui=False, extra_args=arguments)


def _with(
    app: AgentWorker | Registry | Agent[Any],
    model: Provider | Mapping[str, Provider] | None,
    deps: Any,
    mcp: Mapping[str, FakeMCPServer] | None,
) -> AgentWorker:
    worker = app if isinstance(app, AgentWorker) else AgentWorker(app)
    worker = replace(worker, task_queue=f"test-{secrets.token_hex(6)}")
    if mcp:
        check_names(mcp, worker.registry)
        worker = replace(
            worker, agents=_each(worker.registry, lambda agent, _: with_fakes(agent, mcp))
        )
    if deps is not _AS_DECLARED:
        worker = replace(worker, lifespan=_yielding(deps))
    if model is not None:
        scripted = _ByAgent(model)
        worker = replace(
            worker,
            agents=_each(worker.registry, _asking),
            providers={**dict.fromkeys(worker.all_providers(), scripted), "scripted": scripted},
        )
    return worker


def _yielding(deps: Any) -> Lifespan:
    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[Any]:
        yield deps

    return lifespan


def _asking(agent: Agent[Any], name: str) -> Agent[Any]:
    """Return the agent with the model `scripted:<its name>`, and its version if it has one."""
    return replace(agent, model=f"scripted:{address(name, agent.version)}")


def _each(registry: Registry, change: Callable[[Agent[Any], str], Agent[Any]]) -> Registry:
    """Return a registry with changed agents, including those made by factories."""
    out = Registry()
    for entry in registry.entries():
        out.add(_changed(entry, change))
    return out


def _changed(entry: Entry, change: Callable[[Agent[Any], str], Agent[Any]]) -> Entry:
    if isinstance(entry, Agent):
        return change(entry, entry.name)
    make: Callable[[TurnInfo], Agent[Any]] = entry

    @functools.wraps(make)
    def factory(info: TurnInfo) -> Agent[Any]:
        return change(make(info), info.agent)

    return factory


class _ByAgent:
    """Routes each agent's requests to its model."""

    def __init__(self, model: Provider | Mapping[str, Provider]) -> None:
        self._model = model

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return await self._of(request).complete(request)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        return await listen(self._of(request), request, heard)

    def _of(self, request: ModelRequest) -> Provider:
        if not isinstance(self._model, Mapping):
            return self._model
        name, _ = parts_of(request.model)
        return self._model[request.model if request.model in self._model else name]

    async def close(self) -> None:
        """Do nothing: the models belong to the test."""
