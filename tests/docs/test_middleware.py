"""The story of `docs/middleware.md`."""

from dataclasses import replace

import pytest

from perdure import Registry
from perdure.errors import GuardrailError
from perdure.testing import ScriptedModel
from perdure.worker import AgentWorker

from .conftest import Tell


async def test_guardrails_refuse_and_observers_see_as_the_page_says(tell: Tell, capsys: pytest.CaptureFixture[str]) -> None:
    """A task that is not about the handbook, an answer with a TODO, and one that is fine."""
    registry = Registry()
    async with tell("middleware") as story:
        registry.add(await story.defining("researcher"))
        client = await story.works(AgentWorker(registry), ScriptedModel("TODO", "30 days"))
        with pytest.raises(GuardrailError, match="this agent answers about the handbook only"):
            await client.run("researcher", "Tell me a joke.")
        with pytest.raises(GuardrailError):
            await client.run("researcher", "What does the handbook say?")
        registry.add(replace(story["researcher"], observers=[(await story.defining("Audit"))()]), replace=True)
        report = await client.run("researcher", "And the handbook?", id="seen")

    assert report.output == "30 days"
    assert capsys.readouterr().out == "seen 1 []\n"
