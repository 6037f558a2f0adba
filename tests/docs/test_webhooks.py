"""Run the code blocks of `docs/webhooks.md`, and compare its message with a real one."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker.settings import WorkerSettings

from ..support.receiver import SECRET, Answer, receiving
from .conftest import Tell


def shape(message: dict[str, Any]) -> dict[str, Any]:
    """The names of a message, and the types of its values."""
    return {
        name: shape(value) if isinstance(value, dict) and name != "labels" else type(value)
        for name, value in message.items()
    }


@tool(requires_approval=True)
def refund() -> str:
    """Pay back."""
    return "paid"


@pytest.mark.slow
@pytest.mark.accepts("H80", "H82", "H162")
async def test_receiver_gets_what_the_page_shows(tell: Tell) -> None:
    """With every field, and verified as the page does it. The query finds a failed delivery."""
    with receiving() as receiver:
        settings = WorkerSettings(
            grace=timedelta(seconds=1),
            webhook_hosts=("hooks.example.com", f"private:127.0.0.1:{receiver.port}"),
            webhook_secrets=(SECRET,),
        )
        async with tell("webhooks") as story:
            agent = Agent(name="support", model="main", tools=[refund])
            done = says("Done.")
            model = ScriptedModel(done, done, done, calls(call("refund")), done)
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
            decide = await story.defining("decide")
            waits = await client.start("support", "Pay.", on_wait=receiver.url("/waits"))
            [told] = await receiver.until("/waits")
            await decide(client, json.loads(told.body), True)
            decided = await waits.result()
            listed = (await story.up_to("Was it delivered?", "text")).text
            query = (await story.up_to("Deliveries in Temporal's web UI", "text")).text
            async with asyncio.timeout(60):
                while not (  # noqa: ASYNC110 - lists lag
                    failed := [one.id async for one in client.temporal.list_workflows(query)]
                ):
                    await asyncio.sleep(0.05)

    assert [result.content for result in decided.steps[0].results] == ["paid"]
    assert re.match(r"on_wait-[0-9a-f]{12}  \S+ \S+ UTC  failed: the webhook", listed)
    assert shape(shown) == shape(verified)
    assert verified["data"]["labels"] == labels
    assert [one.startswith("ticket-4713/on_done-") for one in failed] == [True]
    assert [list(shown), list(shown["data"])] == [list(verified), list(verified["data"])]
