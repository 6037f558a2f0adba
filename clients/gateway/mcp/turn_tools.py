"""Calls of the tools of the MCP server, with arguments under an earlier name, or wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, Tool
from pydantic import ValidationError

from perdure import errors, validation
from perdure.clients.gateway.mcp.served import Served

_SUBJECT = "subject"
"""The argument that names the data subject of a turn."""
_EARLIER = {"call": "call_id"}
"""Names of arguments in earlier releases."""


class TurnTools(MCPServer[Served]):
    """The tools of turns.

    Args:
        served: Returns the turns that are offered to the client that asks.
        name: The name of the server.
        settings: The other arguments of the SDK's server.
    """

    def __init__(self, served: Callable[[], Served], name: str, **settings: Any) -> None:
        super().__init__(name, **settings)
        self._served = served

    async def list_tools(self) -> list[Tool]:
        """List the tools. Without keys of data subjects, no tool takes one."""
        tools = await super().list_tools()
        if not self._served().has_subjects:
            for tool in tools:
                known = tool.input_schema["properties"]
                kept = {name: schema for name, schema in known.items() if name != _SUBJECT}
                tool.input_schema = {**tool.input_schema, "properties": kept}
        return tools

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
