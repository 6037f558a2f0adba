"""The MCP servers of agents: their tools when a turn begins, and the functions behind them.

Connections have an event loop of their own, so that neither a blocking tool nor a misbehaving
server affects anything else. `mcp` is not imported for agents without servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue
from temporalio import activity

from perdure import errors
from perdure.activities.mcp.login_results import LoginNeededError, asked, logged_in, login_tool
from perdure.activities.tool_loop import ToolLoop
from perdure.agents.agent import Agent
from perdure.agents.definitions import define_tool
from perdure.agents.jobs import PendingJob
from perdure.agents.mcp_effects import Call
from perdure.agents.mcp_logins import LOG_IN
from perdure.agents.mcp_servers import (
    ListedTool,
    MCPServer,
    MCPTool,
    name_of,
    reads_of,
    toolbox,
)
from perdure.agents.mcp_tasks import TaskCalls
from perdure.agents.tool_context import ToolContext
from perdure.agents.tools import Tool, Toolbox
from perdure.temporal.encryption import contexts, data_subjects
from perdure.temporal.encryption.grants import Grants
from perdure.temporal.encryption.vault import Vault
from perdure.turn.wire import ToolOutput
from perdure.values.inquiries import GivenAnswers

if TYPE_CHECKING:
    from perdure.activities.mcp.logins import Person
    from perdure.activities.mcp.pool import Pool


class Servers:
    """The MCP servers of a worker's agents.

    `activity_of` returns the activity type that runs a tool.
    """

    def __init__(self, activity_of: Callable[[Tool], str]) -> None:
        self._activity_of = activity_of
        self._grants: Grants | None = None
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
        found = (item for item in box.tools if isinstance(item, MCPTool) and item.name == name)
        # a turn below asks for a login with its own tool, if its agent has the server
        return next((item for item in found if item.digest != LOG_IN), None)

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
        if server is not None and pinned == LOG_IN:
            return self._login_tool(server)
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
        people = [await self._person(server) for server in servers]

        async def ask() -> list[Any]:
            return await asyncio.gather(*map(pool.tools_if_logged_in, servers, people))

        listed = await self.loop.run(ask())
        return {
            server.name: (
                Toolbox(server.name, [self._login_tool(server)])
                if items is None
                else self._toolbox(server, items)
            )
            for server, items in zip(servers, listed, strict=True)
        }

    def _toolbox(self, server: MCPServer, items: Sequence[ListedTool]) -> Toolbox:
        return toolbox(
            server,
            items,
            functools.partial(self._call, server),
            functools.partial(self._tasks, server),
        )

    async def _person(self, server: MCPServer) -> Person | None:
        """Return the person for whom an activity calls a server; None if it acts for nobody.

        Raises:
            ConfigurationError: The turn has no data subject, or the worker keeps no logins.
            KeyStoreError: The store of the keys does not answer.
        """
        if not server.login:
            return None
        from perdure.activities.mcp.logins import Person

        keys = data_subjects.keys_of(activity.client())
        data_key = contexts.ACTIVITY.get()
        if not data_key:
            raise errors.ConfigurationError(
                f"the MCP server {server.name!r} acts for one person, who logs in there: start the"
                " turn for a data subject, with subject=…",
                context={"server": server.name},
            )
        self._grants = self._grants or Grants(Vault(keys))
        return Person(await keys.subject_of(data_key), self._grants)

    def _login_tool(self, server: MCPServer) -> Tool:
        """Return the tool by which a person logs in, and the turn gets the tools of the server."""

        async def log_in(context: ToolContext[Any], _: Mapping[str, JsonValue]) -> object:
            person = await self._person(server)
            assert person is not None
            try:
                items = await self._opened().tools(server, person)
            except LoginNeededError as needed:
                name = name_of(server.name, LOG_IN)
                return asked(server, person.subject, name, needed, context.answers)
            tools = self._toolbox(server, items).tools
            offered = [define_tool(item, self._activity_of(item)) for item in tools]
            return logged_in(server, person.subject, offered)

        return login_tool(server, log_in)

    def _call(self, server: MCPServer, name: str, pinned: str) -> Call:
        async def call(context: ToolContext[Any], arguments: Mapping[str, JsonValue]) -> object:
            person = await self._person(server)
            return await self._opened().call(server, person, name, pinned, context, arguments)

        return call

    def _tasks(self, server: MCPServer, name: str) -> TaskCalls:
        async def poll(task_id: str, answers: GivenAnswers | None) -> ToolOutput | PendingJob:
            pool, person = await asyncio.to_thread(self._opened), await self._person(server)
            given = answers if server.asks else None
            return await self.loop.run(pool.poll(server, person, name, task_id, given))

        async def cancel(task_id: str) -> None:
            pool, person = await asyncio.to_thread(self._opened), await self._person(server)
            await self.loop.run(pool.cancel(server, person, task_id))

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


def with_logins(
    allowed: Sequence[str] | None, servers: Iterable[MCPServer]
) -> tuple[str, ...] | None:
    """Return the tools that a turn may call, with the logins that these need."""
    if allowed is None:
        return None
    needed = (
        name_of(server.name, LOG_IN)
        for server in servers
        if server.login and any(map(server.offers, allowed))
    )
    return tuple(dict.fromkeys((*allowed, *needed)))
