"""Run the code blocks of `docs/models.md`."""

from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest

from perdure import Agent, AgentReport, AssistantMessage, Media, Outcome, Step, UserMessage
from perdure.errors import LLMInvalidRequestError
from perdure.testing import ScriptedModel, fails
from perdure.values.reports import LeftOut
from perdure.worker import AgentWorker

from .conftest import Tell
from .pages import ROOT
from .stories import Story

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
async def test_models_are_asked_as_the_page_says(tell: Tell) -> None:
    """With options, an alias, a chain whose first model fails, a picture, and retries; and what was
    left out of a long transcript.
    """
    model = ScriptedModel(
        "old pond",
        "by alias",
        fails(LLMInvalidRequestError("no such model")),
        "by the next",
        "a card",
        "at once",
    )
    async with tell("models") as story:
        await story.through("Gemini, Bedrock, Groq, Mistral: by pydantic-ai")
        agent = await story.defining("agent")
        story.given(client=await story.works(agent, model))
        await story.through("Options: temperature, output limit, stop sequences, tool choice")
        alias = await (await story.works(await story.defining("app"), model, "alias")).run(
            "writer", "Go."
        )
        chain = await (await story.works(await story.defining("app"), model, "chain")).run(
            "writer", "Go."
        )
        about = await story.defining("about")
        await story["client"].run(agent, about(PICTURE))
        story.given(report=LONG)
        await story.through("A transcript larger than the context window")
        answers = await answers_of_ones_own(story)

    assert (alias.output, chain.output) == ("by alias", "by the next")
    assert [request.model for request in model.requests[1:4]] == [
        "gpt-5-mini",
        "claude-sonnet-4-5",
        "gpt-5-mini",
    ]
    assert (model.requests[0].options.max_output_tokens, model.requests[0].options.extra) == (
        100,
        {"reasoning_effort": "low"},
    )
    message = model.requests[4].messages[0]
    assert isinstance(message, UserMessage)
    assert message.parts[1] == Media(
        media_type="image/png", data=b64encode(PICTURE.read_bytes()).decode()
    )
    assert story.printed == "14 12 tool results and 3 steps, 410 KB\n"
    assert answers == [True, "All is well.", "All is well."]


async def answers_of_ones_own(story: Story) -> list[Any]:
    """The replies of the page's two custom providers; the second one streams, too."""
    echo, speaker = (await story.defining("Echo"))(), (await story.defining("Speaker"))()
    app = AgentWorker(
        [Agent(name="echo", model="echo:any"), Agent(name="speaker", model="speaker:any")]
    )
    own = replace(app, providers={"echo": echo, "speaker": speaker})
    client = await story.works(own, queue="own")
    live = await client.start("speaker", "Say it.", live=True)
    heard = "".join([said async for said in live.text() if isinstance(said, str)])
    whole = await client.run("speaker", "Say it.")
    return ["Hello" in (await client.run("echo", "Hello")).output, heard, whole.output]
