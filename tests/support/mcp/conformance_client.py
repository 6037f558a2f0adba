"""An agent as a client of the conformance suite: `python conformance_client.py URL`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from perdure import Agent, MCPServer
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, local_runtime, says
from perdure.values.messages import ToolMessage

ARGUMENTS: dict[str, dict[str, Any]] = {"suite__add_numbers": {"a": 5, "b": 3}}


def calls_each(request: ModelRequest) -> Reply:
    """Call each tool of the server once, and answer."""
    if isinstance(request.messages[-1], ToolMessage):
        return says("done")
    return calls(*(call(item.name, **ARGUMENTS.get(item.name, {})) for item in request.tools))


async def main(url: str) -> None:
    """Run a turn with the server at this address."""
    agent = Agent(name="user", model="main", toolboxes=[MCPServer.http("suite", url, trusted=True)])
    async with local_runtime(agent, model=FunctionModel(calls_each)) as client:
        await client.run("user", "go")


asyncio.run(main(*sys.argv[1:]))
