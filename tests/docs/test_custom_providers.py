"""Run the code blocks of `docs/custom-providers.md`."""

from dataclasses import replace

import pytest

from perdure import Agent
from perdure.worker import AgentWorker

from .conftest import Tell


@pytest.mark.slow
async def test_custom_providers_answer_and_stream(tell: Tell) -> None:
    """The page's two providers; the second one streams, too."""
    async with tell("custom-providers") as story:
        echo, speaker = (await story.defining("Echo"))(), (await story.defining("Speaker"))()
        app = AgentWorker(
            [Agent(name="echo", model="echo:any"), Agent(name="speaker", model="speaker:any")]
        )
        own = replace(app, providers={"echo": echo, "speaker": speaker})
        client = await story.works(own)
        live = await client.start("speaker", "Say it.", live=True)
        streamed = "".join([text async for text in live.text() if isinstance(text, str)])
        whole = await client.run("speaker", "Say it.")
        echoed = await client.run("echo", "Hello")

    assert "Hello" in echoed.output
    assert (streamed, whole.output) == ("All is well.", "All is well.")
