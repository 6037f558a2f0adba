"""The lists: reasons, totals and a chart of the day, search and filters in the address; sessions,
batches, schedules, and who is logged in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure import Agent, UserMessage, errors, tool
from perdure.testing import FunctionModel, ModelRequest, call, calls, fails, says
from perdure.testing.scripted import Reply

from ...conftest import Runtime
from ...support.browser import WIDTHS
from ...support.gateway.pages import confirm, has, page_of, press, problems

if TYPE_CHECKING:
    from playwright.async_api import Browser


@tool
def look_up(text: str) -> str:
    """Look something up."""
    return text


CLERK = Agent(name="lister", model="main", tools=[look_up], max_iterations=2)


def answers(request: ModelRequest) -> Reply:
    """What the task says: fail, go round in circles, or answer."""
    task = next(one.text for one in request.messages if isinstance(one, UserMessage))
    if "fails" in task:
        return fails(errors.LLMInvalidRequestError("no"))
    if "circles" in task:
        return calls(call("look_up", text="again"))
    return says(f"**Answer** to {task}")


@pytest.mark.slow
@pytest.mark.accepts("H214", "H215", "H216", "H217")
async def test_list_says_why_turns_failed_and_is_filtered_by_its_address(
    runtime: Runtime, chromium: Browser
) -> None:
    """With totals and a chart of what is filtered; a label, and a reason, leads to its turns."""
    async with page_of(runtime, chromium, FunctionModel(answers), CLERK) as (client, base, watched):
        page = watched.page
        labels = {"list": "mine"}
        tasks = ["good one", "good two", "it fails", "in circles", "in circles again"]
        for number, task in enumerate(tasks):
            turn = await client.start("lister", task, id=f"list-{number}", labels=labels)
            await turn.wait(60)
        own = f"{base}/ui/#/turns?label=list%3Dmine"
        await page.goto(own)
        await page.locator("li.row").nth(4).wait_for()
        day = page.get_by_role("region", name="The last day")
        numbers = await day.locator("dd").all_inner_texts()
        chart = await day.get_by_role("img").get_attribute("aria-label")
        pieces = await day.locator(".piece").count()
        rows = await page.locator("li.row").all_inner_texts()
        found = await problems(page)
        await day.get_by_role("button", name="All steps are used up").click()
        await page.locator("li.row").nth(2).wait_for(state="detached")
        by_reason = page.url
        await page.reload()
        await page.locator("li.row").nth(1).wait_for()
        reasons = await page.locator("li.row").count()
        await press(page, "Without MAX_ITERATIONS")
        await page.keyboard.press("Escape")
        await page.locator("main").press("/")
        await page.keyboard.type("GOOD tw")
        await page.locator("li.row").nth(1).wait_for(state="detached")
        left = await page.locator("li.row .task").all_inner_texts()
        searched = page.url
        await page.goto(f"{base}/ui/#/turns?agent=lister&outcome=failed&label=list%3Dmine")
        await page.get_by_role("link", name="it fails").wait_for()
        failed = await page.locator("li.row .task").all_inner_texts()
        await page.locator("li.row a.label").click()
        await page.locator("li.row").nth(4).wait_for()
        linked = page.url

    assert numbers[0].startswith("5 turns")
    assert numbers[1:4] == ["2", "3", "0"]
    assert "at most 5" in (chart or "")
    assert pieces >= 2
    assert [row for row in rows if "in circles" in row and "All steps are used up" in row] != []
    assert [row for row in rows if "it fails" in row and "refuses the request" in row] != []
    assert found == []
    assert "reason=MAX_ITERATIONS" in by_reason
    assert reasons == 2
    assert left == ["good two"]
    assert "q=GOOD+tw" in searched
    assert failed == ["it fails"]
    assert linked == own
    assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("H218", "H219", "H220", "H221")
async def test_sessions_batches_schedules_and_the_caller_are_shown(
    runtime: Runtime, chromium: Browser
) -> None:
    """Sessions with their last message, answer and cost; the others with what is done to them."""
    async with page_of(runtime, chromium, FunctionModel(answers), CLERK) as (client, base, watched):
        page = watched.page
        session = client.session("lists-session", "lister")
        await (await session.say("Where is it?")).result()
        batch = await client.start_batch("lists-batch", "lister", ["good", "it fails", "fine"])
        await batch.wait()
        schedule = await client.create_schedule(
            "lists-schedule", "lister", "good night", cron="0 3 * * *", timezone="Europe/Berlin"
        )
        found = {}
        await page.goto(f"{base}/ui/#/sessions")
        row = page.locator("li.row", has_text="lists-session")
        await row.get_by_text("Answer to Where is it?").wait_for()
        last = await row.inner_text()
        found["sessions"] = await problems(page)
        await page.goto(f"{base}/ui/#/batches")
        await page.locator("li.row", has_text="lists-batch").get_by_text("3 of 3").wait_for()
        await page.get_by_role("link", name="lists-batch").click()
        await page.locator("main li.row").nth(2).wait_for()
        results = await page.locator("main li.row").all_inner_texts()
        found["batch"] = await problems(page)
        await press(page, "Retry")
        await confirm(page, "Retry")
        await has(page, "completed")
        await page.goto(f"{base}/ui/#/schedules")
        await page.get_by_role("link", name="lists-schedule").click()
        await press(page, "Pause")
        await confirm(page, "Pause", reason="holidays")
        await has(page, "holidays")
        await press(page, "Run now")
        await confirm(page, "Run now")
        await page.locator("main li.row").get_by_text("by hand").wait_for()
        found["schedule"] = await problems(page)
        status = await schedule.status()
        await page.locator("#who button").first.click()
        who = await page.get_by_role("dialog").inner_text()
        found["who"] = await problems(page)
        await page.keyboard.press("Escape")
        await page.keyboard.press("g")
        await page.keyboard.press("i")
        await page.get_by_role("heading", name="Inbox").wait_for()
        await page.keyboard.press("?")
        keys = await page.get_by_role("dialog").inner_text()
        widths = await page.evaluate(WIDTHS)
        await page.evaluate("location.hash = '#/turns'")
        await page.get_by_role("dialog").wait_for(state="detached")
        await schedule.delete()
        await session.close()

    assert "Where is it?" in last
    assert "$0." in last
    assert "The provider refuses the request" in results[0]
    assert (status.is_paused, status.reason, status.by) == (True, "holidays", "operator")
    assert "operator" in who
    assert "approve, deny, answer and settle calls" in who
    assert "find in the turn" in keys
    assert widths[0] == widths[1]
    assert {name: one for name, one in found.items() if one} == {}
    assert watched.said == []
