"""Run the code blocks of `docs/http.md` with the real `perdure serve`."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from perdure import Agent, tool
from perdure.clients.gateway import tokens_from
from perdure.testing import ScriptedModel, call, calls, says

from ..support.docs.commands import commands
from .conftest import Tell


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


@pytest.mark.slow
@pytest.mark.accepts("H1", "H10")
async def test_gateway_serves_as_the_page_says(
    tell: Tell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By curl, and mounted in another application."""
    async with tell("http") as story:
        model = ScriptedModel(
            calls(call("refund", euros=40)), says("There is no refund."), says("Good morning.")
        )
        await story.works(Agent(name="desk", model="main", tools=[refund]), model)
        await story.run(await story.up_to("Start it", "console"))
        await story.run(await story.up_to("Start it", "console"))
        export, command = commands(await story.up_to("Start it", "console"))
        story.terminal.export(export)
        async with story.terminal.stays(command) as (_, printed):
            await story.up_to("Start it", "console")
            [url] = re.findall(r"http://[^;\s]+", printed)
            token = story.terminal.environment["PERDURE_TOKEN"]
            story.terminal.environment |= {
                "PERDURE": url,
                "AUTH": f"Authorization: Bearer {token}",
            }
            tokens = await story.up_to("Who may call", "toml")
            await story.through("Errors")
        (tmp_path / "tokens.toml").write_text(tokens.text, encoding="utf-8")
        tokens_from(tmp_path / "tokens.toml")
        address = story.terminal.environment["TEMPORAL_ADDRESS"]
        monkeypatch.setenv("TEMPORAL_ADDRESS", address)
        app = await (await story.defining("make"))()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x/agents") as http:
            bare = await http.post("/v1/turns", json={})
            user = {"X-User": "anna"}
            begun = await http.post(
                "/v1/turns", json={"agent": "desk", "task": "Help.", "id": "1"}, headers=user
            )
            found = await http.get("/v1/turns/1", headers=user)
            cancel = await http.post("/v1/turns/1/cancel", headers=user)

    assert [one.status_code for one in (bare, begun, found, cancel)] == [401, 202, 200, 403]
    assert begun.headers["location"] == "/agents/v1/turns/%40acme/1"
