"""Calls of the tools of the MCP server, with arguments under an earlier name, or wrong ones."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult
from pydantic import ValidationError

from perdure import errors, validation
from perdure.clients.gateway.mcp.served import Served

_EARLIER = {"call": "call_id"}
"""Names of arguments in earlier releases."""


class TurnTools(MCPServer[Served]):
    """The tools of turns."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Served, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool.

        Raises:
            ToolError: An argument is wrong, or the tool failed.
        """
        named = {_EARLIER.get(key, key): value for key, value in arguments.items()}
        try:
            return await super().call_tool(name, named, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            problem = validation.in_words(error.__cause__, (), "argument")
            raise ToolError(f"{errors.InvalidRequestError.code}: {name}: {problem}") from None
