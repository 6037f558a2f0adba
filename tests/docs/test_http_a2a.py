"""Run the code blocks of `docs/http-a2a.md` with `perdure serve` and the official client."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from a2a.types import Message, Part, Role, TaskState

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker.settings import WorkerSettings

from ..support.docs.commands import commands
from ..support.receiver import SECRET, receiving
from .conftest import Tell


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


@pytest.mark.slow
@pytest.mark.accepts("H50", "H51", "H58")
async def test_agent_is_served_over_a2a_as_the_page_says(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is published by a file, asks for approval, and answers. A receiver is told of the end."""
    text = Message(message_id="m-3", role=Role.ROLE_USER, parts=[Part(text="Where is it?")])
    with receiving() as receiver:
        settings = WorkerSettings(
            grace=timedelta(seconds=0.1),
            webhook_hosts=(f"private:127.0.0.1:{receiver.port}",),
            webhook_secrets=(SECRET,),
        )
        async with tell("http-a2a") as story:
            model = ScriptedModel(
                calls(call("refund", euros=40)), says("You have it back."), says("On its way.")
            )
            app = Agent(name="desk", model="main", tools=[refund])
            await story.works(app, model, settings=settings)
            agents = await story.up_to("Publish agents", "toml")
            (story.terminal.folder / "agents.toml").write_text(agents.text, encoding="utf-8")
            export, command = commands(await story.up_to("Publish agents", "console"))
            story.terminal.export(export)
            monkeypatch.setenv("PERDURE_TOKEN", story.terminal.environment["PERDURE_TOKEN"])
            async with story.terminal.stays(command) as (_, printed):
                [address] = re.findall(r"http://[^;\s]+", printed)
                story.terminal.environment["PERDURE"] = address
                await story.through("Publish agents")
                url = f"{address}/a2a/desk"
                task = await (await story.defining("ask"))(url)
                done = await (await story.defining("approve"))(url, task)
                leave = await story.defining("leave")
                async with story["connection"]() as http:
                    client = await story["client_of"](http, url)
                    left = await leave(client, text, receiver.url("/told"), "for m-3")
                [hook] = await receiver.until("/told")

    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert done.status.state == TaskState.TASK_STATE_COMPLETED
    assert done.artifacts[0].parts[0].text == "You have it back."
    assert hook.verified()["statusUpdate"]["taskId"] == left.id
    assert hook.headers["x-a2a-notification-token"] == "for m-3"
