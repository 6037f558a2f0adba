"""Run the code blocks of `docs/how-a-turn-runs.md`."""

import pytest
from temporalio.client import WorkflowExecution

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says

from ..support.docs.until import until
from .conftest import Tell


@tool(read_only=True)
def read_ticket(number: str) -> str:
    """Read a ticket."""
    return "How long?"


@pytest.mark.slow
async def test_turn_is_started_and_continued_as_the_page_says(tell: Tell) -> None:
    """With Temporal's command line, and on from a turn that had no iterations left."""
    reads = calls(call("read_ticket", number="4711"))
    model = ScriptedModel(
        *[says("by hand"), reads, says("30 days"), reads, says("31 days"), says("trente jours")]
    )
    async with tell("how-a-turn-runs") as story:
        client = await story.works(
            Agent(name="support", model="main", tools=[read_ticket], max_iterations=1), model
        )
        await story.through("Start")

        async def listed() -> list[WorkflowExecution]:
            return [entry async for entry in client.temporal.list_workflows()]

        (started,) = await until(
            listed, "the turn that was started by hand in the list, which lags behind"
        )
        over = client.turn(started.id)
        by_hand = await over.result()
        await (await story.defining("correct"))(over)
        report = await (await story.defining("finish"))(client)
        turn = await client.start("support", "Answer ticket 4712.")
        resumed = await (await story.defining("answered"))(turn)
        forked = await (await (await story.defining("again"))(turn)).result()

    assert (by_hand.output, report.output) == ("by hand", "30 days")
    assert (resumed, forked.output) == ("31 days", "trente jours")
    assert [type(message).__name__ for message in model.requests[2].messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "UserMessage",
    ]
