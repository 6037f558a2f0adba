"""An MCP server, written with the package `mcp`: `server.py stdio`, or `server.py http
PORT`.
"""

import asyncio
import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

server: MCPServer[Any] = MCPServer("stock")


@server.tool()
def count(item: str) -> int:
    """How many there are of an item."""
    return {"apples": 3}.get(item, 0)


@server.tool()
def prices() -> dict[str, float]:
    """What items cost."""
    return {"apples": 0.5}


@server.tool()
def refuse() -> str:
    """Refuses."""
    raise ValueError("the stock is closed")


@server.tool()
async def take_stock(seconds: float, ctx: Context) -> str:
    """Counts everything, and says how far it is."""
    for done in range(int(seconds * 10)):
        await ctx.report_progress(done, seconds * 10, "counting")
        await asyncio.sleep(0.1)
    return "counted"


@server.tool()
async def key(ctx: Context) -> str:
    """The key that it was called with."""
    return str((ctx.headers or {}).get("authorization"))


@server.tool()
def large() -> str:
    """More than fits."""
    return "x" * 21_000_000


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
