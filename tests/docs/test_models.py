"""Run the code blocks of `docs/models.md`."""

import pytest

from perdure.testing import ScriptedModel

from .conftest import Tell


@pytest.mark.slow
async def test_model_is_asked_by_its_alias(tell: Tell) -> None:
    """The worker resolves the alias to a model."""
    model = ScriptedModel("by alias")
    async with tell("models") as story:
        await story.through("Gemini, Bedrock, Groq, Mistral: by pydantic-ai")
        client = await story.works(await story.defining("app"), model)
        report = await client.run("writer", "Go.")

    assert report.output == "by alias"
    assert [request.model for request in model.requests] == ["gpt-5-mini"]
