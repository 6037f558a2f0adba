"""A login at an MCP server, from the question on the page to the end in the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure.clients.gateway import one_token

from ...support.browser import opened
from ...support.data_subjects import home
from ...support.gateway.pages import CARD, LONG, TOKEN, press, problems
from ...support.gateway.served import served
from ...support.logins import DONE, LOG_IN, LUNCH, Office, login_of, office

if TYPE_CHECKING:
    from playwright.async_api import Browser

__all__ = ["home", "office"]


@pytest.mark.slow
@pytest.mark.accepts("H249")
async def test_person_logs_in_by_the_link_of_the_page(office: Office, chromium: Browser) -> None:
    """The question gives a link, which says whose login it is, and the turn goes on after it."""
    client = await office.client()
    async with (
        office.worker(LOG_IN, LUNCH, DONE).running(client.temporal),
        served(client, one_token(TOKEN)) as http,
    ):
        base = str(http.base_url).rstrip("/")
        async with opened(chromium, f"{base}/ui/#token={TOKEN}", wait_until="load") as watched:
            page = watched.page
            page.set_default_timeout(LONG)
            turn = await office.start(client)
            await login_of(turn)
            await page.goto(f"{base}/ui/#/inbox")
            card = page.locator(CARD)
            await press(page, "Get the link")
            link = card.get_by_role("link", name="Log in at calendar")
            await link.wait_for()
            text, found = await card.inner_text(), await problems(page)
            async with page.context.expect_page() as opening:
                await link.click()
            tab = await opening.value
            await tab.get_by_role("heading", name="Log in at calendar").wait_for()
            asked, of_tab = await tab.inner_text("main"), await problems(tab)
            await tab.get_by_role("link", name="Go on").click()
            await tab.get_by_role("heading", name="You are logged in").wait_for()
            report = await turn.result()
            await card.wait_for(state="detached")

    assert f"For {office.home.subject} alone" in text
    assert f"on behalf of {office.home.subject}" in asked
    assert found == of_tab == []
    assert report.output == "noted"
    assert office.calendar.events == {"anna": ["Lunch"]}
