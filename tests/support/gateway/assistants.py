"""A client of the MCP server of turns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp_types import ElicitRequestParams, ElicitResult

from perdure.clients.gateway.mcp.server import serve


class User:
    """The user of a client, who answers every question in the same way."""

    def __init__(self, **answer: Any) -> None:
        self.asked: list[str] = []
        self._answer = ElicitResult(**answer)

    async def __call__(self, context: object, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        return self._answer


@asynccontextmanager
async def assistant(
    perdure: Any, *agents: str, user: User | None = None, mode: str = "auto", **options: Any
) -> AsyncIterator[Client]:
    """An MCP client."""
    async with Client(
        serve(perdure, agents, **options), mode=mode, elicitation_callback=user
    ) as client:
        yield client


async def use(client: Client, name: str, **arguments: Any) -> Any:
    """The result of a tool; an error as `{"error": its text}`."""
    result: Any = await client.call_tool(name, arguments)
    return (
        {"error": result.content[0].text.removeprefix(f"Error executing tool {name}: ")}
        if result.is_error
        else result.structured_content
    )
