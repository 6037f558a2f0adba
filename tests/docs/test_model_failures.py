"""Run the code blocks of `docs/model-failures.md`."""

import pytest

from perdure import Agent
from perdure.errors import LLMInvalidRequestError
from perdure.testing import ScriptedModel, fails

from .conftest import Tell

WRITER = Agent(name="writer", model="openai:gpt-5-mini")


@pytest.mark.slow
async def test_failing_models_are_replaced_as_the_page_says(tell: Tell) -> None:
    """Retries of one turn, and a chain whose first model fails."""
    model = ScriptedModel("at once", fails(LLMInvalidRequestError("no such model")), "by the next")
    async with tell("model-failures") as story:
        story.given(client=await story.works(WRITER, model))
        await story.through("When a rate limit or a quota is used up")
        app = await story.defining("app")
        report = await (await story.works(app, model, "chain")).run("writer", "Go.")

    assert report.output == "by the next"
    assert [request.model for request in model.requests] == [
        "gpt-5-mini",
        "claude-sonnet-4-5",
        "gpt-5-mini",
    ]
