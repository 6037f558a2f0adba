"""Run the code blocks of `docs/composition.md`."""

from dataclasses import replace

import pytest

from perdure import Registry, Toolbox, ToolMessage
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

from .conftest import Tell


def shelve(item: str) -> str:
    """Put an item on a shelf."""
    return item


@pytest.mark.slow
async def test_agents_are_composed_as_the_page_says(tell: Tell) -> None:
    """Tools of two toolboxes, a third toolbox added later, and one found by a resolver."""
    orders = calls(
        call("oslo_stock", item="tea"),
        call("oslo_order", item="tea"),
        call("rome_stock", item="tea"),
    )
    model = ScriptedModel(
        orders,
        says("bought"),
        says("nothing to do"),
        calls(call("weather", city="Rome")),
        says("sunny"),
    )
    registry = Registry()
    async with tell("composition") as story:
        registry.add(await story.defining("buyer"))
        client = await story.works(AgentWorker(registry), model)
        bought = await client.run("buyer", "Buy tea.")
        story.given(registry=registry, warehouse=Toolbox("warehouse", [shelve]))
        await story.through("Give a finished agent more")
        await client.run("buyer", "Look around.")
        registry.add(replace(await story.defining("buyer"), name="resolving"))
        found = await client.run("resolving", "…", allowed_tools=["weather", "horoscope"])

    assert [result.content for result in bought.steps[0].results] == [
        "3 of tea",
        "tea ordered",
        "3 of tea",
    ]
    oslo, rome = ["oslo_stock", "oslo_order"], ["rome_stock"]
    offered = [[tool.name for tool in request.tools] for request in model.requests]
    assert offered == [[*oslo, *rome]] * 2 + [[*oslo, *rome, "shelve"], ["weather"], ["weather"]]
    assert isinstance(found.messages[-2], ToolMessage)
    assert found.messages[-2].results[0].content == "sunny in Rome"
