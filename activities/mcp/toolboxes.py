"""The MCP servers of agents: their tools when a turn begins, and the functions behind them.

Connections have an event loop of their own, so that neither a blocking tool nor a misbehaving
server affects anything else. `mcp` is not imported for agents without servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from perdure import errors
from perdure.activities.tool_loop import ToolLoop
from perdure.agents.agent import Agent
from perdure.agents.jobs import PendingJob
from perdure.agents.mcp_effects import Call
from perdure.agents.mcp_servers import MCPServer, MCPTool, reads_of, toolbox
from perdure.agents.mcp_tasks import TaskCalls
from perdure.agents.tool_context import ToolContext
from perdure.agents.tools import Tool, Toolbox
from perdure.turn.wire import ToolOutput
from perdure.values.inquiries import GivenAnswers

if TYPE_CHECKING:
    from perdure.activities.mcp.pool import Pool


class Servers:
    """The MCP servers of a worker's agents."""

    def __init__(self) -> None:
        self._pool: Pool | None = None
        self._lock = threading.Lock()
        self.loop = ToolLoop(self._lifespan, name="perdure-mcp")

    async def read(self, agent: Agent[Any], allowed: Collection[str] | None = None) -> Agent[Any]:
        """Return the agent with its servers replaced by toolboxes of their current tools.

        Servers without a tool in `allowed` are skipped.

        Raises:
            ConfigurationError: A server cannot be started or queried, or its tools contradict the
                agent's declaration.
        """
        servers = [
            server
            for server in agent.servers
            if allowed is None or any(map(server.offers, allowed))
        ]
        if not agent.servers:
            return agent
        toolboxes = await self._toolboxes(servers)
        boxes = [
            toolboxes.get(box.name) if isinstance(box, MCPServer) else box
            for box in agent.toolboxes
        ]
        return replace(agent, toolboxes=[box for box in boxes if box is not None])

    async def find(self, agent: Agent[Any], name: str) -> Tool | None:
        """Return the current tool of an agent's server; None if no server offers it.

        Raises:
            ConfigurationError: The server cannot be started or queried, or its tools contradict the
                agent's declaration.
        """
        server = _server(agent, name)
        if server is None:
            return None
        box = (await self._toolboxes([server]))[server.name]
        return next(
            (item for item in box.tools if isinstance(item, MCPTool) and item.name == name), None
        )

    async def toolbox(self, server: MCPServer) -> Toolbox:
        """Return a toolbox of what a server offers now.

        Raises:
            ConfigurationError: The server cannot be started or queried, or its tools contradict the
                agent's declaration.
        """
        return (await self._toolboxes([server]))[server.name]

    def tool(self, agent: Agent[Any], name: str, pinned: str) -> Tool | None:
        """Return the tool for a call, which checks its digest first; None if no server has it."""
        server = _server(agent, name)
        return (
            None
            if server is None
            else MCPTool(
                server,
                name,
                self._call(server, name, pinned),
                pinned,
                reads=reads_of(server, name, functools.partial(self._call, server)),
                tasks=self._tasks(server, name),
            )
        )

    async def _toolboxes(self, servers: Sequence[MCPServer]) -> dict[str, Toolbox]:
        if not servers:
            return {}
        pool = await asyncio.to_thread(self._opened)

        async def ask() -> list[Any]:
            return await asyncio.gather(*map(pool.tools, servers))

        listed = await self.loop.run(ask())
        return {
            server.name: toolbox(
                server,
                items,
                functools.partial(self._call, server),
                functools.partial(self._tasks, server),
            )
            for server, items in zip(servers, listed, strict=True)
        }

    def _call(self, server: MCPServer, name: str, pinned: str) -> Call:
        async def call(context: ToolContext[Any], arguments: Mapping[str, JsonValue]) -> object:
            return await self._opened().call(server, name, pinned, context, arguments)

        return call

    def _tasks(self, server: MCPServer, name: str) -> TaskCalls:
        async def poll(task_id: str, answers: GivenAnswers | None) -> ToolOutput | PendingJob:
            pool = await asyncio.to_thread(self._opened)
            return await self.loop.run(pool.poll(server, name, task_id, answers))

        async def cancel(task_id: str) -> None:
            pool = await asyncio.to_thread(self._opened)
            await self.loop.run(pool.cancel(server, task_id))

        return TaskCalls(poll=poll, cancel=cancel)

    def _opened(self) -> Pool:
        """Return the pool. The first call imports `mcp`, which may take a second.

        Raises:
            ConfigurationError: The package `mcp` is not installed.
        """
        try:
            from perdure.activities.mcp.pool import Pool
        except ModuleNotFoundError as error:
            package, *_ = (error.name or "mcp").split(".")
            raise errors.ConfigurationError(
                f"MCP servers need the package {package}: pip install 'perdure[mcp]'"
            ) from None
        with self._lock:
            self._pool = self._pool or Pool()
            return self._pool

    @contextlib.asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        """Close all connections at the end of the loop's lifespan."""
        try:
            yield
        finally:
            if self._pool is not None:
                await self._pool.close()


def _server(agent: Agent[Any], name: str) -> MCPServer | None:
    return next((server for server in agent.servers if server.offers(name)), None)
