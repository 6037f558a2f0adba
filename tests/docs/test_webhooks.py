"""Run the code blocks of `docs/webhooks.md`, and compare its message with a real one."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent
from perdure.testing import ScriptedModel, says
from perdure.worker.settings import WorkerSettings

from ..support.receiver import SECRET, Answer, receiving
from .conftest import Tell


def shape(message: dict[str, Any]) -> dict[str, Any]:
    """The names of a message, and the types of its values."""
    return {
        name: shape(value) if isinstance(value, dict) and name != "labels" else type(value)
        for name, value in message.items()
    }


@pytest.mark.slow
@pytest.mark.accepts("H80", "H82")
async def test_receiver_gets_what_the_page_shows(tell: Tell) -> None:
    """With every field, and verified as the page does it. The query finds a failed delivery."""
    with receiving() as receiver:
        settings = WorkerSettings(
            grace=timedelta(seconds=1),
            webhook_hosts=("hooks.example.com", f"private:127.0.0.1:{receiver.port}"),
            webhook_secrets=(SECRET,),
        )
        async with tell("webhooks") as story:
            agent = Agent(name="support", model="main")
            model = ScriptedModel(*[says("Done.")] * 3)
            client = await story.works(agent, model, settings=settings)
            await (await story.defining("answer"))(client, "4711")
            await client.turn("ticket-4711").result()
            shown = json.loads((await story.up_to("What the receiver gets", "json")).text)
            url = receiver.url("/page")
            labels = {"ticket": "4712"}
            await client.run("support", "Answer.", id="ticket-4712", labels=labels, on_done=url)
            [hook] = await receiver.until("/page")
            verified = (await story.defining("verified"))(hook.body, hook.headers, SECRET)
            gone = receiver.url("/gone", Answer(410))
            await client.run("support", "Answer.", id="ticket-4713", on_done=gone)
            query = (await story.up_to("Was it delivered?", "text")).text
            async with asyncio.timeout(20):
                while not (  # noqa: ASYNC110 - lists lag
                    failed := [one.id async for one in client.temporal.list_workflows(query)]
                ):
                    await asyncio.sleep(0.05)

    assert shape(shown) == shape(verified)
    assert verified["data"]["labels"] == labels
    assert [one.startswith("ticket-4713/on_done-") for one in failed] == [True]
    assert [list(shown), list(shown["data"])] == [list(verified), list(verified["data"])]
