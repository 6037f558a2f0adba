"""Run the code blocks of `docs/http-a2a.md` with `perdure serve` and the official client."""

from __future__ import annotations

import re

import pytest
from a2a.types import TaskState

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says

from .commands import commands
from .conftest import Tell


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


@pytest.mark.slow
@pytest.mark.accepts("H50", "H51")
async def test_agent_is_served_over_a2a_as_the_page_says(tell: Tell) -> None:
    """It is published by a file, asks for approval, and answers."""
    async with tell("http-a2a") as story:
        model = ScriptedModel(calls(call("refund", euros=40)), says("You have it back."))
        await story.works(Agent(name="desk", model="main", tools=[refund]), model)
        agents = await story.up_to("Publish agents", "toml")
        (story.terminal.folder / "agents.toml").write_text(agents.text, encoding="utf-8")
        [command] = commands(await story.up_to("Publish agents", "console"))
        async with story.terminal.stays(command) as (_, printed):
            [address] = re.findall(r"http://[^;\s]+", printed)
            story.terminal.environment["PERDURE"] = address
            await story.through("Publish agents")
            url = f"{address}/a2a/desk"
            task = await (await story.defining("ask"))(url)
            done = await (await story.defining("approve"))(url, task)

    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert done.status.state == TaskState.TASK_STATE_COMPLETED
    assert done.artifacts[0].parts[0].text == "You have it back."
