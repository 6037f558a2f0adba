"""Chromium for tests, and what a page says and asks for."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1400, "height": 1000}
WIDTHS = "[document.documentElement.scrollWidth, window.innerWidth]"


@contextlib.asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """A browser during the block; the test is skipped where there is none."""
    playwright = pytest.importorskip(
        "playwright.async_api", reason="make docs-check installs Playwright"
    )
    if CHROMIUM is None:
        pytest.skip("no Chromium on the path: nobody has looked at the pages")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        await browser.close()


class Watched:
    """A page, and its errors.

    Attributes:
        page: The page.
        said: Errors of its console and of its scripts, and requests that failed, except
            for those that the page gave up itself.
        asked: Every requested address.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on(
            "console",
            lambda message: (
                self.said.append(message.text) if message.type in {"error", "warning"} else None
            ),
        )
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on(
            "requestfailed",
            lambda request: (
                self.said.append(f"{request.url}: {request.failure}")
                if request.failure != "net::ERR_ABORTED"
                else None
            ),
        )
        page.on("request", lambda request: self.asked.append(request.url))

    def elsewhere(self, address: str) -> list[str]:
        """The requests to other hosts."""
        return [url for url in self.asked if not url.startswith((f"{address}/", "data:", "blob:"))]


@contextlib.asynccontextmanager
async def opened(
    chromium: Browser, url: str, *, wait_until: Any = "networkidle", **options: Any
) -> AsyncIterator[Watched]:
    """A page, once all of its requests have completed."""
    context = await chromium.new_context(**{"viewport": DESK, **options})
    try:
        watched = Watched(await context.new_page())
        await watched.page.goto(url, wait_until=wait_until, timeout=60_000)
        yield watched
    finally:
        await context.close()
