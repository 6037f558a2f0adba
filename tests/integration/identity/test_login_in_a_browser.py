"""The login in Chromium: the button, the way back, who is logged in, and the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure import Agent
from perdure.clients.gateway import IdentityProvider
from perdure.clients.gateway.auth import nobody
from perdure.testing import FakeIssuer, ScriptedModel, says

from ...conftest import Runtime
from ...support.browser import opened
from ...support.gateway.identity import ANNA, AUDIENCE, PAGE, TABLE
from ...support.gateway.pages import has, problems
from ...support.gateway.served import served

if TYPE_CHECKING:
    from playwright.async_api import Browser

DESK = Agent(name="desk", model="main")


@pytest.mark.slow
@pytest.mark.accepts("G74")
async def test_person_logs_in_and_out_on_the_page(runtime: Runtime, chromium: Browser) -> None:
    """By keyboard, back to the view that was asked for; a session that has ended leads back."""
    with FakeIssuer() as issuer:
        issuer.person = ANNA
        identity = IdentityProvider(issuer.url, [AUDIENCE], table=TABLE, client=PAGE)
        async with (
            runtime(DESK, model=ScriptedModel(says("Good day."))) as client,
            served(client, nobody, identity=identity) as http,
        ):
            base = str(http.base_url).rstrip("/")
            turn = await client.start("desk", "Hello.", id="@acme/g74")
            await turn.result()
            async with opened(chromium, f"{base}/ui/#/turns/g74", wait_until="load") as watched:
                page = watched.page
                await has(page, "Who are you?")
                focused = await page.evaluate("document.activeElement.textContent")
                before = await problems(page)
                await page.keyboard.press("Enter")
                await has(page, "Good day.")
                name = page.get_by_role("button", name="anna · acme")
                await name.wait_for()
                address = page.url
                scripts = await page.evaluate("document.cookie")
                after = await problems(page)
                await name.click()
                await page.get_by_text("Logged in until").wait_for()
                await page.keyboard.press("Escape")
                await page.context.clear_cookies()
                await page.goto(f"{base}/ui/#/turns")
                await has(page, "Who are you?")
                await page.get_by_role("button", name="Log in").click()
                await page.get_by_role("button", name="Log out").click()
                await has(page, "Who are you?")

    assert focused == "Log in"
    assert (before, after) == ([], [])
    assert address == f"{base}/ui/#/turns/g74"
    assert scripts == ""
