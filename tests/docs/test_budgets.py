"""Run the code blocks of `docs/budgets.md`."""

from dataclasses import replace
from decimal import Decimal

import pytest

from perdure import Agent, Budget, Price, Registry, RequestOptions, Usage, tool
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

from ..support.docs.until import begins_to_wait
from .conftest import Tell


@tool(read_only=True)
def look() -> str:
    """Look somewhere."""
    return "nothing yet"


PATIENT = Agent(
    name="patient",
    model="openai:gpt-5-mini",
    tools=[look],
    budget=Budget(usd="1"),
    on_exhausted="pause",
    options=RequestOptions(max_output_tokens=100),
)
TIRELESS = replace(PATIENT, name="tireless", budget=None, max_iterations=1, on_loop="ignore")
"""It makes more steps than the first addition of the page allows."""
DEAR = {"openai:*": Price(input="1000", output="1000")}
"""The first call of the patient agent may cost $1.67: one addition of the page is not enough, two
are.
"""


@pytest.mark.slow
async def test_turns_spend_pause_and_are_priced_as_the_page_says(tell: Tell) -> None:
    """A turn within its budget, one whose budget is increased in Python and on the command line,
    and one with a custom price.
    """
    model = ByTask(
        {
            "How long is the notice period?": ScriptedModel(
                *[says("30 days", usage=Usage(input_tokens=1_000, output_tokens=100))] * 2
            ),
            "go": ScriptedModel("done"),
            "look": ScriptedModel(*[calls(call("look"))] * 12, "seen"),
        }
    )
    million = ScriptedModel(
        says("done", usage=Usage(input_tokens=1_000_000, output_tokens=1_000_000))
    )
    registry = Registry([PATIENT, TIRELESS])
    async with tell("budgets") as story:
        client = await story.works(AgentWorker(registry, prices=DEAR), model)
        story.given(client=client, registry=registry)
        registry.add(await story.defining("researcher"))
        await story.defining("report")
        turn = await client.start("patient", "go", id="ticket-4711")
        await begins_to_wait(turn)
        await story.through("When a budget is exhausted")
        left = story["left"]
        patient = await turn.result()
        await story.defining("report")
        turn = await client.start("tireless", "look", id="ticket-4712")
        await begins_to_wait(turn)
        await story.through("Iterations")
        tireless = await turn.result()
        priced = replace(
            await story.defining("app"),
            agents=Agent(name="cheap", model="vllm:qwen3"),
            providers={"vllm": million},
        )
        cheap = await (await story.works(priced, million, queue="cheap")).run(
            "cheap", "Count to a million."
        )

    assert story.printed.split()[0] == "0.0045"
    assert (patient.output, tireless.output) == ("done", "seen")
    assert (left.usd, story["left"].iterations) == (Decimal("1.5"), 10)
    assert cheap.cost == Decimal("2.5")
