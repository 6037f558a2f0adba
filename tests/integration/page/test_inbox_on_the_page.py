"""The inbox: what a decision needs, keys, several calls at once, and what was decided."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from perdure import Agent, UserMessage, tool
from perdure.testing import FunctionModel, ModelRequest, call, calls, says
from perdure.testing.scripted import Reply

from ...conftest import Runtime
from ...support.gateway.pages import CARD, confirm, page_of, press, problems

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

PAID: list[int] = []


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    PAID.append(euros)
    return f"paid {euros} euros"


CLERK = Agent(name="clerk", model="main", tools=[refund])


def answers(request: ModelRequest) -> Reply:
    """Ask to pay what the task says, and then be done."""
    if len(request.messages) > 2:
        return says("Done.")
    task = next(one.text for one in request.messages if isinstance(one, UserMessage))
    return calls(call("refund", euros=int(task.split()[-1])), text=f"They **lost** it: {task}.")


async def order_of(page: Page) -> list[str]:
    """The ids of the turns of the calls, from above."""
    return [
        one.split("/turns/")[1]
        for one in await page.locator(f"{CARD} a.id").evaluate_all(
            "(all) => all.map((a) => a.hash)"
        )
    ]


@pytest.mark.slow
@pytest.mark.accepts("H210", "H211", "H212", "H213", "H244")
async def test_calls_are_decided_with_their_reasons_by_keys_and_several_at_once(
    runtime: Runtime, chromium: Browser
) -> None:
    """The first to expire is open; the focus stays in the list; who decided is shown, also of a
    decision that was made elsewhere.
    """
    PAID.clear()
    async with page_of(runtime, chromium, FunctionModel(answers), CLERK) as (client, base, watched):
        page = watched.page
        turns = []
        for number in range(1, 6):
            turn = await client.start("clerk", f"Pay {number}", id=f"inbox-{number}")
            await turn.wait(60)
            turns.append(turn)
        await page.goto(f"{base}/ui/#/inbox")
        await page.locator(CARD).nth(4).wait_for()
        order = await order_of(page)
        card = page.locator(CARD).first
        await card.get_by_text("They lost it: Pay 1.").wait_for()
        text = await card.inner_text()
        found = await problems(page)

        await page.keyboard.press("a")
        focused = await page.evaluate("document.activeElement.textContent")
        await page.keyboard.press("Enter")
        await page.locator(CARD).nth(4).wait_for(state="detached")
        near = await page.evaluate("document.activeElement.closest('article, main').tagName")
        decided = page.get_by_role("region", name="Decided").locator("li", has_text="inbox-")
        await decided.get_by_text("by operator").wait_for()

        await page.keyboard.press("j")
        await page.keyboard.press("x")
        await press(page, "Choose all")
        await page.get_by_label("Choose refund of inbox-5").uncheck()
        await press(page, "Approve these")
        said = await confirm(page, "Approve", reason="all lost")
        await page.locator(CARD).nth(1).wait_for(state="detached")
        [pending] = await turns[4].pending_approvals()
        await turns[4].deny(pending, "not this one", by="anna")
        await decided.get_by_text("by anna").wait_for()
        await decided.nth(4).wait_for()
        rows = await decided.all_inner_texts()
        await page.reload()
        await decided.nth(4).wait_for()
        later = await decided.all_inner_texts()
        await asyncio.gather(*(turn.result() for turn in turns))

    assert order == [f"inbox-{number}" for number in range(1, 6)]
    assert "Pay 1" in text
    assert '"euros": 1' in text
    assert found == []
    assert (focused, near) == ("Approve", "ARTICLE")
    assert all(f'"euros": {number}' in said for number in (2, 3, 4))
    assert '"euros": 5' not in said
    assert sorted(PAID) == [1, 2, 3, 4]
    assert [row.split("\n")[0] for row in rows].count("approved") == 4
    assert "denied" in rows[0]
    assert "not this one" in rows[0]
    assert [row.split("\n")[0] for row in later] == [row.split("\n")[0] for row in rows]
    assert "not this one" in later[0]
    assert "by anna" in later[0]
    assert watched.said == []
