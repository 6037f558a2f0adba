"""Run the code blocks of `docs/http-responses.md` against a gateway."""

import pytest

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says

from ..support.delegating import delegate
from ..support.gateway.served import served
from .conftest import Tell


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


@pytest.mark.slow
@pytest.mark.accepts("H20", "H21", "H23", "H181")
async def test_openai_client_runs_agents_as_the_page_says(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first request to a conversation."""
    model = ScriptedModel(
        calls(call("refund", euros=40)),
        *(says(text) for text in ("Paid.", "No.", "Good morning.", "Good morning.")),
        *(says(text) for text in ("Welcome.", '{"number": 7, "is_lost": true}', "It is lost.")),
        calls(call("locate")),
        says("You are in Bern."),
        *(delegate("guide", "Find it."), says("It is on its way."), says("Wait a little.")),
    )
    async with tell("http-responses") as story:
        guide = Agent(name="guide", model="main", takes_tools=True)
        desk = Agent(name="desk", model="main", tools=[refund], delegates=["guide"])
        client = await story.works([desk, guide], model)
        async with served(client, name="root") as http:
            monkeypatch.setenv("PERDURE", str(http.base_url).rstrip("/"))
            monkeypatch.setenv("PERDURE_TOKEN", "root")
            async with (await story.defining("connect"))() as ai:
                asked = await (await story.defining("ask"))(ai)
                follow = await story.defining("follow")
                paid = await (await story.defining("approve"))(ai, "ticket-4711")
                printed = await story.prints(follow(ai, "ticket-4711"))
                more = await (await story.defining("go_on"))(ai, "ticket-4711")
                said = await story["talk"](ai)
                items = await (await story.defining("remember"))(ai)
                parcel = await (await story.defining("typed"))(ai)
                completed = await (await story.defining("complete"))(ai)
                guided = await (await story.defining("guide"))(ai)
                watched = await story.prints(story["watch"](ai, "Where is it?"))
            turns = await client.session("customer-42").turns()
            await client.session("customer-42").close()

    assert asked == "ticket-4711: in_progress, "
    assert (paid, printed, more, said) == ("Paid.", "Paid.\n", "No.", "Good morning.")
    assert items == ["message", "message"]
    assert (parcel.number, parcel.is_lost, completed) == (7, True, "It is lost.")
    assert guided == "You are in Bern."
    assert "guide-1 guide text It is on its way.\n" in watched
    assert [one.turn_id for one in turns] == ["customer-42/1", "customer-42/2"]
