"""Run the code blocks of `docs/http-agui.md` with the real `perdure serve`, and with the official
client where it is installed.
"""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import PIPE

import pytest

from perdure import Agent, tool
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, says
from perdure.values.messages import ToolMessage

from ..support.docs.commands import commands
from ..support.gateway.agui import official_client
from .conftest import Tell


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


def desk(request: ModelRequest) -> Reply:
    """A refund, and an answer after its result."""
    if isinstance(request.messages[-1], ToolMessage):
        return says("There is no refund.")
    return calls(call("refund", euros=40))


@pytest.mark.slow
@pytest.mark.accepts("H30", "H31", "H36")
async def test_gateway_serves_runs_as_the_page_says(tell: Tell) -> None:
    """By curl, and by a program in JavaScript."""
    async with tell("http-agui") as story:
        await story.works(Agent(name="desk", model="main", tools=[refund]), FunctionModel(desk))
        await story.run(await story.up_to("Start it", "console"))
        export, command = commands(await story.up_to("Start it", "console"))
        story.terminal.export(export)
        async with story.terminal.stays(command) as (_, printed):
            await story.up_to("Start it", "console")
            [url] = re.findall(r"http://[^;\s]+", printed)
            story.terminal.environment["PERDURE"] = url
            program = await story.up_to("In a page", "js")
            found = official_client()
            if found is not None:
                node, modules = found
                process = await asyncio.create_subprocess_exec(
                    *(node, "-e", program.text),
                    stdout=PIPE,
                    env={**os.environ, **story.terminal.environment, "NODE_PATH": modules},
                )
                out, _ = await process.communicate()
                assert out.decode() == "There is no refund.\n"
