"""The site in a real browser: pages open without errors, make no requests to other hosts and fit a
phone; search finds pages; the copy buttons copy commands only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..support.browser import PHONE, WIDTHS, opened
from ..support.docs.site import NOT_BUILT, PAGES, SITE

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

pytestmark = [pytest.mark.skipif(SITE is None, reason=NOT_BUILT), pytest.mark.timeout(120)]


async def search(page: Page, word: str) -> None:
    """Type a word into the search box, and wait for the first result."""
    await page.get_by_role("textbox", name="Search").click()
    await page.keyboard.type(word)
    await page.locator(".md-search-result__link").first.wait_for(timeout=60_000)


@pytest.mark.accepts("P8")
@pytest.mark.parametrize("name", PAGES)
async def test_page_opens_without_errors_asks_nobody_else_and_fits_a_phone(
    chromium: Browser, address: str, name: str
) -> None:
    """The console is empty, every request goes to this server and succeeds, and at 390 pixels
    nothing overflows.
    """
    async with opened(chromium, f"{address}/{name}", viewport=PHONE) as watched:
        width, room = await watched.page.evaluate(WIDTHS)

        assert watched.said == []
        assert watched.elsewhere(address) == []
        assert width == room == PHONE["width"]


@pytest.mark.accepts("P8")
@pytest.mark.parametrize("at", ["server", "disk"])
async def test_search_finds_a_word_and_opens_its_page(
    chromium: Browser, address: str, at: str
) -> None:
    """On a server and from disk: typing gives results, and a click on the first one opens a page
    with the word.
    """
    start = f"{address}/index.html" if at == "server" else f"file://{SITE}/index.html"
    async with opened(chromium, start) as watched:
        await search(watched.page, "approval")
        found = await watched.page.locator(".md-search-result__link").first.get_attribute("href")
        await watched.page.locator(".md-search-result__link").first.click()
        await watched.page.wait_for_url("**/approvals.html*", timeout=60_000)

        assert "approvals.html" in (found or "")
        assert "approval" in (await watched.page.locator("article").inner_text()).lower()
        assert watched.said == []


PLACES = [
    ("TurnBudgetExceededError", "errors.html"),
    ("budget", "budgets.html"),
    ("worker dies", "how-a-turn-runs.html"),
]


@pytest.mark.parametrize(("word", "page"), PLACES)
async def test_search_leads_to_the_page_about_it(
    chromium: Browser, address: str, word: str, page: str
) -> None:
    """One of the results is the page that explains it."""
    async with opened(chromium, f"{address}/index.html") as watched:
        await search(watched.page, word)
        links = watched.page.locator(".md-search-result__link")
        found = [await link.get_attribute("href") or "" for link in await links.all()]

        assert any(page in link for link in found), found


async def test_copied_console_is_the_command_alone(chromium: Browser, address: str) -> None:
    """The copy button of a console leaves out the prompt and the output."""
    async with opened(
        chromium, f"{address}/overview.html", permissions=["clipboard-read", "clipboard-write"]
    ) as watched:
        block = watched.page.locator(".language-console").first
        await block.hover()
        await block.locator("button").first.click()
        await watched.page.locator(".md-dialog--active").wait_for(timeout=60_000)
        copied = await watched.page.evaluate("navigator.clipboard.readText()")

        assert copied.strip() == "make demo"


async def test_reader_who_likes_it_dark_gets_it_dark(chromium: Browser, address: str) -> None:
    """The page follows the system's setting, and its button switches it."""
    async with opened(chromium, f"{address}/index.html", color_scheme="dark") as watched:
        body = watched.page.locator("body")
        before = await body.get_attribute("data-md-color-scheme")
        await watched.page.locator("label[for=__palette_0]").click()
        await watched.page.locator("body[data-md-color-scheme=default]").wait_for(timeout=60_000)

        assert before == "slate"


async def test_pictures_of_a_turn_are_legible_on_a_phone(chromium: Browser, address: str) -> None:
    """The drawings on the page about turns are as wide as the text, and their smallest letters are
    11 pixels high or more.
    """
    async with opened(chromium, f"{address}/how-a-turn-runs.html", viewport=PHONE) as watched:
        pictures = await watched.page.locator("article img[src$='.svg']").all()
        widths = [
            await picture.evaluate(
                "picture => [picture.clientWidth, picture.naturalWidth, picture.alt.length > 20]"
            )
            for picture in pictures
        ]

        assert len(widths) == 3
        assert [12.5 * shown / drawn >= 11 and told for shown, drawn, told in widths] == [True] * 3
