"""The connections of a worker to its servers, one per server, on a single event loop.

The list of tools is fetched before each call: that costs a round trip, and shows whether the server
is alive and what has changed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue

from perdure import errors
from perdure.activities.mcp.connection import (
    IDLE_S,
    AnswerLostError,
    ServerConnection,
    ServerDownError,
    ServerRefusedError,
)
from perdure.activities.tool_compatibility import unknown_result
from perdure.agents.mcp_servers import ListedTool, MCPServer, name_of
from perdure.agents.tool_context import ToolContext
from perdure.text import head
from perdure.turn.wire import ToolOutput

logger = logging.getLogger("perdure")

_ATTEMPTS = 2
_NOTE_EVERY_S = 0.5
_NOTE_BYTES = 1_000


class Pool:
    """Connections by their key, opened on demand and reopened after a failure."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._kept: dict[tuple[object, ...], ServerConnection] = {}
        self._all: set[ServerConnection] = set()

    async def tools(self, server: MCPServer) -> list[ListedTool]:
        """Return the tools that a server offers now.

        Raises:
            ConfigurationError: It cannot be started or queried; the message has its output.
        """
        try:
            _, listed = await self._listed(server)
        except ServerDownError as error:
            raise errors.ConfigurationError(str(error), context={"server": server.name}) from None
        return listed

    async def call(
        self,
        server: MCPServer,
        name: str,
        pinned: str,
        context: ToolContext[Any],
        arguments: Mapping[str, JsonValue],
    ) -> ToolOutput:
        """Call the tool that models know as `name`, if it has not changed since the turn began.

        With an empty digest in `pinned`, it may have changed: no model reads its description.
        Failures are returned as error results.
        """
        tool: ListedTool | None = None
        try:
            connection, listed = await self._listed(server)
            tool = next((item for item in listed if name_of(server.name, item.own) == name), None)
            if tool is None:
                return _error(
                    f"{name} was not called: the MCP server {server.name!r} does not offer it any"
                    " more"
                )
            if pinned and tool.digest != pinned:
                return _error(
                    f"{name} was not called: its description or its arguments have changed since"
                    " this turn began, and nobody accepted that"
                )
            return await connection.call(
                tool.own, arguments, _notes(context, connection.without_secrets)
            )
        except AnswerLostError as error:
            text = f"{name}: {error}"
            only_reads = server.trusted and tool is not None and tool.read_only
            return _error(text) if only_reads else unknown_result(text, error.loss)
        except ServerRefusedError as error:
            return _error(f"{name} failed: the MCP server {server.name!r} refused: {error}")
        except (ServerDownError, errors.ConfigurationError) as error:
            return _error(f"{name} failed: {error}")

    async def close(self) -> None:
        """Close all connections concurrently."""
        if self._all:
            await asyncio.gather(*(connection.close() for connection in self._all))

    async def _listed(self, server: MCPServer) -> tuple[ServerConnection, list[ListedTool]]:
        """Return the connection and the server's tools.

        A connection that turns out to be dead is reopened once.
        """
        for attempts_left in reversed(range(_ATTEMPTS)):
            connection = self._connection(server)
            try:
                return connection, await connection.tools()
            except ServerDownError as error:
                connection.retire()
                if error.is_slow or not attempts_left:
                    raise
                logger.warning("%s; restarting it", error)
        raise AssertionError("unreachable")

    def _connection(self, server: MCPServer) -> ServerConnection:
        connection = self._kept.get(server.connection)
        if connection is None or not connection.is_usable:
            connection = self._kept[server.connection] = ServerConnection(server, self._idle_s)
            self._all = {connection for connection in self._all if not connection.is_over} | {
                connection
            }
        return connection


def _notes(context: ToolContext[Any], without_secrets: Callable[[str], str]) -> Any:
    """Return a callback that heartbeats the server's progress, at most twice a second."""
    last = 0.0

    async def note(progress: float, total: float | None, message: str | None) -> None:
        nonlocal last
        if time.monotonic() - last >= _NOTE_EVERY_S:
            last = time.monotonic()
            context.heartbeat(
                {
                    "progress": progress,
                    "total": total,
                    "message": head(without_secrets(message or ""), _NOTE_BYTES),
                }
            )

    return note


def _error(text: str) -> ToolOutput:
    return ToolOutput(content=text, is_error=True)
