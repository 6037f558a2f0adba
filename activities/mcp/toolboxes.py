"""MCP servers of agents.

Their tools when a turn begins, and the function behind a tool when it is called.

Connections live on a loop of their own, so that neither a tool that blocks nor a server that
misbehaves hurts anything else. Nothing of `mcp` is imported for agents without servers.
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
from perdure.agents.mcp_servers import Call, MCPServer, MCPTool, toolbox
from perdure.agents.tools import Tool, Toolbox, ToolContext

if TYPE_CHECKING:
    from perdure.activities.mcp.pool import Pool


class Servers:
    """The MCP servers of a worker's agents."""

    def __init__(self) -> None:
        self._pool: Pool | None = None
        self._lock = threading.Lock()
        self.loop = ToolLoop(self._lifespan, name="perdure-mcp")

    async def read(self, agent: Agent[Any], allowed: Collection[str] | None = None) -> Agent[Any]:
        """The agent with what its servers offer now instead of them.

        Those of which no tool is in `allowed` are not asked.

        Raises:
            ConfigurationError: A server cannot be started or asked, or offers something else than
                the agent says.
        """
        servers = [
            server
            for server in agent.servers
            if allowed is None or any(map(server.offers, allowed))
        ]
        if not agent.servers:
            return agent
        found = await self._toolboxes(servers)
        boxes = [
            found.get(box.name) if isinstance(box, MCPServer) else box for box in agent.toolboxes
        ]
        return replace(agent, toolboxes=[box for box in boxes if box is not None])

    async def find(self, agent: Agent[Any], name: str) -> Tool | None:
        """The tool of an agent's server, as it is now; None where none offers it.

        Raises:
            ConfigurationError: The server cannot be started or asked, or offers something else than
                the agent says.
        """
        server = _server(agent, name)
        if server is None:
            return None
        box = (await self._toolboxes([server]))[server.name]
        return next(
            (item for item in box.tools if isinstance(item, MCPTool) and item.name == name), None
        )

    async def toolbox(self, server: MCPServer) -> Toolbox:
        """What a server offers now.

        Raises:
            ConfigurationError: The server cannot be started or asked, or offers something else than
                the agent says.
        """
        return (await self._toolboxes([server]))[server.name]

    def tool(self, agent: Agent[Any], name: str, pinned: str) -> Tool | None:
        """The tool for one call, which compares what the server offers with what the turn is pinned to; None where no server can have it."""
        server = _server(agent, name)
        return (
            None
            if server is None
            else MCPTool(server, name, self._call(server, name, pinned), pinned)
        )

    async def _toolboxes(self, servers: Sequence[MCPServer]) -> dict[str, Toolbox]:
        if not servers:
            return {}
        pool = await asyncio.to_thread(self._opened)

        async def ask() -> list[Any]:
            return await asyncio.gather(*map(pool.tools, servers))

        listed = await self.loop.run(ask())
        return {
            server.name: toolbox(server, items, functools.partial(self._call, server))
            for server, items in zip(servers, listed, strict=True)
        }

    def _call(self, server: MCPServer, name: str, pinned: str) -> Call:
        async def call(context: ToolContext[Any], arguments: Mapping[str, JsonValue]) -> object:
            return await self._opened().call(server, name, pinned, context, arguments)

        return call

    def _opened(self) -> Pool:
        """The connections. May take a second the first time, to import `mcp`.

        Raises:
            ConfigurationError: The package `mcp` is not installed.
        """
        try:
            from perdure.activities.mcp.pool import Pool
        except ModuleNotFoundError as error:
            raise errors.ConfigurationError(
                f"MCP servers need the package {error.name}: pip install 'perdure[mcp]'"
            ) from None
        with self._lock:
            self._pool = self._pool or Pool()
            return self._pool

    @contextlib.asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        """In one task of the loop, whose end ends all connections."""
        try:
            yield
        finally:
            if self._pool is not None:
                await self._pool.close()


def _server(agent: Agent[Any], name: str) -> MCPServer | None:
    return next((server for server in agent.servers if server.offers(name)), None)
