"""Run the code blocks of `docs/handoffs.md`."""

import pytest

from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.handoffs import DONE, MESSAGE

from ..support.docs.pages import page
from .conftest import Tell


@pytest.mark.slow
async def test_turn_is_handed_over_as_the_page_says(tell: Tell) -> None:
    """The output, the agents and the steps are printed."""
    model = ScriptedModel(
        calls(call("hand_over", agent="billing", message="Order 7 is to be paid back.")),
        calls(call("refund", order="7")),
        says("Order 7 is paid back."),
    )
    async with tell("handoffs") as story:
        support = await story.defining("support")
        client = await story.works([support, story["billing"], story["legal"]], model)
        story.given(client=client)

    text = page("handoffs").path.read_text(encoding="utf-8")
    assert f"This prints `{story.printed.strip()}`." in text
    assert f"`{DONE.format(agent='billing')}`" in text
    assert f"`{MESSAGE.format(agent='support', message='').strip()}`" in text
