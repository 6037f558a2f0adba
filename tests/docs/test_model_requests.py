"""Run the code blocks of `docs/model-requests.md`."""

from base64 import b64encode

import pytest

from perdure import AgentReport, AssistantMessage, Media, Outcome, Step, UserMessage
from perdure.testing import ScriptedModel
from perdure.values.reports import LeftOut

from ..support.docs.pages import ROOT
from .conftest import Tell

PICTURE = ROOT / "docs/pictures/card.png"
NOTHING = AssistantMessage(parts=())
LONG = AgentReport(
    turn_id="long",
    agent="writer",
    outcome=Outcome.COMPLETED,
    steps=(
        Step(number=13, model="vllm:qwen3", message=NOTHING),
        Step(
            number=14,
            model="vllm:qwen3",
            message=NOTHING,
            left_out=LeftOut(results=12, steps=3, bytes=410_000),
        ),
    ),
)


@pytest.mark.slow
async def test_requests_have_what_the_page_says(tell: Tell) -> None:
    """With options and a picture; and what was left out of a long transcript."""
    model = ScriptedModel("old pond", "a card", "a cat")
    async with tell("model-requests") as story:
        agent = await story.defining("agent")
        story.given(client=await story.works(agent, model))
        await story.through("Options: temperature, output limit, stop sequences, tool choice")
        about = await story.defining("about")
        await story["client"].run(agent, about(PICTURE))
        await story.through("Images and files in a message")
        story.given(report=LONG)

    assert (model.requests[0].options.max_output_tokens, model.requests[0].options.extra) == (
        100,
        {"reasoning_effort": "low"},
    )
    message = model.requests[1].messages[0]
    assert isinstance(message, UserMessage)
    assert message.parts[1] == Media(
        media_type="image/png", data=b64encode(PICTURE.read_bytes()).decode()
    )
    assert story.printed == "a cat\n14 12 tool results and 3 steps, 410 KB\n"
