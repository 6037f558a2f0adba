"""The connections of a worker to its servers, one for each, and what is asked of them.

All of it lives on one event loop.

Before each call a server is asked for its list anew: it costs a round trip, shows that the server
is alive, and shows what has changed.
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
    Connection,
    ServerDownError,
    ServerRefusedError,
)
from perdure.agents.mcp_servers import ListedTool, MCPServer, name_of
from perdure.agents.tools import ToolContext
from perdure.text import head
from perdure.turn.wire import ToolOutput

logger = logging.getLogger("perdure")

_ATTEMPTS = 2
_NOTE_EVERY_S = 0.5
_NOTE_BYTES = 1_000


class Pool:
    """Connections by what makes them the same.

    They are opened when they are needed and again when they have died.
    """

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._kept: dict[tuple[object, ...], Connection] = {}
        self._all: set[Connection] = set()

    async def tools(self, server: MCPServer) -> list[ListedTool]:
        """What a server offers now.

        Raises:
            ConfigurationError: It cannot be started or asked; the message says what it said.
        """
        try:
            _, listed = await self._asked(server)
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
        """Call the tool that models know as `name`, if it is still what the turn is pinned to.

        What goes wrong is an error result.
        """
        try:
            connection, listed = await self._asked(server)
            tool = next((item for item in listed if name_of(server.name, item.own) == name), None)
            if tool is None:
                return _error(
                    f"{name} was not called: the MCP server {server.name!r} does not offer it any"
                    " more"
                )
            if tool.digest != pinned:
                return _error(
                    f"{name} was not called: its description or its arguments have changed since"
                    " this turn began, and nobody accepted that"
                )
            return await connection.call(
                tool.own, arguments, _notes(context, connection.without_secrets)
            )
        except ServerRefusedError as error:
            return _error(f"{name} failed: the MCP server {server.name!r} refused: {error}")
        except (ServerDownError, errors.ConfigurationError) as error:
            return _error(f"{name} failed: {error}")

    async def close(self) -> None:
        """End all of them at once."""
        if self._all:
            await asyncio.gather(*(connection.close() for connection in self._all))

    async def _asked(self, server: MCPServer) -> tuple[Connection, list[ListedTool]]:
        """The connection and what the server lists.

        One that turns out to be dead is opened again, once.
        """
        for left in reversed(range(_ATTEMPTS)):
            connection = self._connection(server)
            try:
                return connection, await connection.tools()
            except ServerDownError as error:
                connection.retire()
                if error.is_slow or not left:
                    raise
                logger.warning("%s; it is started again", error)
        raise AssertionError("unreachable")

    def _connection(self, server: MCPServer) -> Connection:
        found = self._kept.get(server.connection)
        if found is None or not found.is_usable:
            found = self._kept[server.connection] = Connection(server, self._idle_s)
            self._all = {connection for connection in self._all if not connection.is_over} | {found}
        return found


def _notes(context: ToolContext[Any], without_secrets: Callable[[str], str]) -> Any:
    """Progress of the server as heartbeats, a few a second at most."""
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
