"""The question of an MCP server, seen and answered in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure import Agent, ToolOutcome
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Runtime
from ...support.approving import questions
from ...support.gateway.pages import CARD, page_of, press, problems

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ...support.mcp.task_server import asking, needs, task_server

if TYPE_CHECKING:
    from playwright.async_api import Browser

FIELDS = {
    "colour": {"type": "string", "enum": ["red", "green"], "title": "Which <i>colour</i>"},
    "count": {"type": "integer", "minimum": 1},
    "gift": {"type": "boolean", "default": True},
}


@pytest.mark.slow
@pytest.mark.accepts("H245")
async def test_question_of_a_server_is_a_form_in_the_inbox(
    runtime: Runtime, chromium: Browser
) -> None:
    """It says which server asks, and in which call; a misfit is told."""
    async with task_server() as works:
        works.new = needs(paint=asking("Which <b>paint</b>?", **FIELDS))
        agent = Agent(name="desk", model="main", toolboxes=[works.box()])
        model = ScriptedModel(calls(call("works__build", what="a house")), says("Done."))
        async with page_of(runtime, chromium, model, agent) as (client, base, watched):
            page = watched.page
            turn = await client.start("desk", "build", id="h245")
            await questions(turn)
            await page.goto(f"{base}/ui/#/inbox")
            card = page.locator(CARD)
            await card.get_by_text("Which <b>paint</b>?").wait_for()
            text = await card.inner_text()
            found = await problems(page)
            await card.get_by_label("colour").select_option(label="green")
            await card.get_by_label("count").fill("0")
            await press(page, "Answer")
            refused = await card.locator(".problem").inner_text()
            await card.get_by_label("count").fill("2")
            await press(page, "Answer")
            await card.wait_for(state="detached")
            decided = page.get_by_role("region", name="Decided").locator("li", has_text="h245")
            await decided.get_by_text("by operator").wait_for()
            row = await decided.inner_text()
            report = await turn.result()

    [result] = report.steps[0].results
    assert "The MCP server 'works' asks, in a call of works__build" in text
    assert "Which <i>colour</i>" in text
    assert found == []
    assert "count" in refused
    content = {"colour": "green", "count": 2, "gift": True}
    assert works.answers == [{"paint": {"action": "accept", "content": content}}]
    assert (result.outcome, result.content) == (ToolOutcome.DONE, "a house")
    assert row.startswith("answered")
    assert "works__build" in row
    assert [said for said in watched.said if "422" not in said] == []
