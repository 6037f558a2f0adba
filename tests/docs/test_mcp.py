"""Run the code blocks of `docs/mcp.md`."""

from __future__ import annotations

import pytest

from perdure import Agent, Registry
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

from ..support.approving import pending
from .conftest import Tell

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ..support.mcp.task_server import asking, task_server


@pytest.mark.slow
async def test_question_of_a_server_is_answered_as_the_page_says(tell: Tell) -> None:
    async with tell("mcp") as story, task_server() as server:
        server.asks = [{"go": asking("Which branch?", branch={"type": "string"})}]
        answer = await story.defining("answer")
        agent = Agent(name="builder", model="main", toolboxes=[server.box("builds")])
        paints = calls(call("builds__paint", what="the door"))
        model = ScriptedModel(paints, says("done"))
        client = await story.works(AgentWorker(Registry([agent])), model)
        turn = await client.start("builder", "go")
        await pending(turn)
        while not server.rounds[1:]:
            await answer(client)
        report = await turn.result()

    given = {"go": {"action": "accept", "content": {"branch": "main"}}}
    assert [answers for answers, _ in server.rounds] == [None, given]
    assert [decision.by for decision in report.steps[0].decisions] == ["anna@example.com"]
