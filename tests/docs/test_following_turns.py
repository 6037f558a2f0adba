"""Run the code blocks of `docs/following-turns.md`."""

import json
from datetime import timedelta

import pytest

from perdure import Agent, tool
from perdure.errors import LLMUnavailableError
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says, slowly

from .conftest import Tell


def pay() -> str:
    """Pay."""
    return "paid"


SUPPORT = Agent(name="support", model="main")
PAYER = Agent(name="payer", model="main", tools=[tool(requires_approval=True)(pay)])
BROKEN = slowly(fails(LLMUnavailableError("gone")), pieces=["30 d"], pause=timedelta(seconds=1))


@pytest.mark.slow
@pytest.mark.accepts("P22")
async def test_turn_is_followed_as_the_page_says(tell: Tell) -> None:
    """Its events, its status, and its text: of one that is over, one that waits, and a live one."""
    model = ByTask(
        {
            "Answer ticket 4711.": ScriptedModel(says("30 days"), BROKEN, says("31 days")),
            "Pay.": ScriptedModel(calls(call("pay"))),
        }
    )
    async with tell("following-turns") as story:
        client = await story.works([SUPPORT, PAYER], model)
        await client.run("support", "Answer ticket 4711.", id="ticket-4711")
        turn = client.turn("ticket-4711")
        followed = await story.prints((await story.defining("follow"))(turn, None))
        for_a_browser = await story.defining("for_a_browser")
        public = [json.loads(line) for line in await for_a_browser(turn)]
        far = await (await story.defining("how_far"))(client, "ticket-4711")
        waiting = await story["how_far"](client, (await client.start("payer", "Pay.")).id)
        text = await story.prints((await story.defining("show"))(client))

    assert "TurnStarted" in followed.splitlines()[0]
    assert (public[0]["kind"], public[-1]["text"], far) == (
        "turn_started",
        "30 days",
        "completed: 30 days",
    )
    assert waiting.startswith("step 1, waits for approval: ")
    assert ", waits: ['approval of pay'], spent $0.0" in waiting
    assert (
        text == "step 1, attempt 1\n30 dwhat came since does not count\nstep 1, attempt 2\n31 days"
    )
