"""The page in Chromium shows who has done what, the last first."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from perdure.clients import AgentClient

from ...support.approving import pending
from ...support.auditing import audited, lately
from ...support.browser import PHONE, Watched, opened
from ...support.data_subjects import Home, home
from ...support.gateway.pages import LONG, has, problems
from ...support.gateway.served import as_, served

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

__all__ = ["home"]

MARKUP = "<img src=x onerror=alert(1)>"
ANNA, OTTO = f"anna {MARKUP}", "otto@example.com"


@contextlib.asynccontextmanager
async def page_of(
    home: Home, chromium: Browser, name: str, **options: Any
) -> AsyncIterator[tuple[AgentClient, str, Watched]]:
    """A client, and the page as a caller with this name sees it, once things were done."""
    client = await home.client()
    async with home.worker().running(client.temporal), served(client) as http:
        await acts(client, home)
        body = {"agent": "payer", "task": "go", "id": f"{home.id}-own"}
        assert (await http.post("/v1/turns", json=body, headers=as_("anna"))).status_code == 202
        await pending(client.turn(f"@acme/{home.id}-own"))
        base = str(http.base_url).rstrip("/")
        async with opened(chromium, f"{base}/ui/", wait_until="load", **options) as watched:
            watched.page.set_default_timeout(LONG)
            watched.page.on("dialog", lambda dialog: watched.said.append(dialog.message))
            await watched.page.get_by_label("Token").fill(name)
            await watched.page.keyboard.press("Enter")
            await watched.page.locator("nav").get_by_role("link", name="Audit").click()
            watched.said.clear()  # that the first request had no token
            yield client, base, watched
            assert watched.elsewhere(base) == []
        own = client.turn(f"@acme/{home.id}-own")
        await own.cancel()  # a view of other tests has no key for what waits
        await own.wait(60)


async def acts(client: AgentClient, home: Home) -> None:
    """A turn that one person starts and another one cancels, and one of a data subject."""
    since, mark = lately(), home.id
    first = await client.start("payer", "go", id=f"{mark}-1", by=ANNA)
    await pending(first)
    await first.cancel(f"because of {MARKUP}", by=OTTO)
    await first.wait(60)
    second = await client.start("payer", "go", id=f"{mark}-2", by=ANNA, subject=home.subject)
    await pending(second)
    await client.erase(home.subject, by=OTTO)
    await audited(client, since, {"cancel", "erase"})


async def shown(page: Page, mark: str) -> list[str]:
    """The rows of the test: the list may have those of others."""
    rows = await page.locator("ul[aria-label=Acts] > li").all_inner_texts()
    return [" ".join(row.split()) for row in rows if mark in row]


async def settled(page: Page) -> None:
    """Wait until the list has been read."""
    await page.locator("ul[aria-label=Acts]:not([aria-busy])").wait_for(state="attached")


@pytest.mark.slow
@pytest.mark.accepts("G108")
async def test_audit_tells_who_has_done_what(home: Home, chromium: Browser) -> None:
    """The last first, by person and by data subject, in the address; texts are no markup."""
    async with page_of(home, chromium, "root") as (_, base, watched):
        page = watched.page
        await has(page, home.subject)
        await settled(page)
        everything = await shown(page, home.id)
        images = await page.locator("main img").count()
        found = await problems(page)
        await page.get_by_label("Person").fill(OTTO)
        await page.keyboard.press("Enter")
        await page.locator("main li", has_text="start").first.wait_for(state="detached")
        await settled(page)
        of_otto = await shown(page, home.id)
        address = page.url
        await page.goto(f"{base}/ui/#/audit?subject={home.subject}&hours=1")
        await has(page, f"{home.id}-2")
        await settled(page)
        of_subject = await shown(page, home.id)
        assert watched.said == []
        await page.get_by_role("link", name=f"{home.id}-2").first.click()
        await page.wait_for_url(f"**/#/turns/{home.id}-2")

    names = [row.split()[0] for row in everything]
    assert names == ["start", "cancel", "erase", "start", "cancel", "start"]
    assert f"start turn @acme/{home.id}-own" in everything[0]
    assert "anna@example.com · rest · agent payer" in everything[0]
    assert f"erase subject {home.subject}" in everything[2]
    assert "ERASED" in everything[3]
    assert f"cancel turn {home.id}-1" in everything[4]
    assert f"{OTTO} · client · because of {MARKUP}" in everything[4]
    assert f"{ANNA} · client · agent payer" in everything[5]
    assert images == 0
    assert found == []
    assert [row.split()[0] for row in of_otto] == ["cancel", "erase", "cancel"]
    assert address.endswith("#/audit?by=otto%40example.com")
    assert [row.split()[0] for row in of_subject] == ["cancel", "erase", "start"]


@pytest.mark.slow
@pytest.mark.accepts("G108")
async def test_audit_is_that_of_the_caller(home: Home, chromium: Browser) -> None:
    """A reader sees what was done in its tenant; on a phone, in the dark, without a fault."""
    options = {"viewport": PHONE, "color_scheme": "dark"}
    async with page_of(home, chromium, "rita", **options) as (_, _, watched):
        page = watched.page
        await has(page, f"@acme/{home.id}-own")
        await settled(page)
        own = await shown(page, home.id)
        found = await problems(page)

    assert [row.split()[0] for row in own] == ["start"]
    assert found == []
    assert watched.said == []
