"""Takes the pictures of the page of the gateway: `make screenshots`.

A day of a support desk on a server of its own: sixty turns, ten of which wait for a person, a tree
of delegates, a turn of a hundred steps, sessions, a batch and a schedule; on a desktop, on a phone
and in the dark. Needs Chromium, as `take.py` does. With names of pictures, it takes only those.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import support_desk
from playwright.async_api import Browser, async_playwright

from perdure.clients.gateway import IdentityProvider, LoginClient, one_token, serving
from perdure.clients.gateway import app as gateway
from perdure.testing import FakeIssuer, local_runtime
from perdure.worker.dev.server import DevServer

HERE = Path(__file__).parent
DESK = {"viewport": {"width": 1360, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 780}, "device_scale_factor": 2}
DARK = {"color_scheme": "dark"}
TOKEN = secrets.token_urlsafe()

LOGIN = "page-login"
"""The picture of somebody who has no token."""
PICTURES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "page-list": ("turns", "Check all open invoices", DESK),
    "page-list-dark": ("turns", "Check all open invoices", DESK | DARK),
    "page-list-phone": ("turns", "Check all open invoices", PHONE),
    "page-turn": ("turns/ticket-4711", "paid back in full", DESK),
    "page-turn-phone": ("turns/ticket-4711", "paid back in full", PHONE),
    "page-tree": ("turns/research-1", "compare", DESK),
    "page-tree-dark": ("turns/research-1", "compare", DESK | DARK),
    "page-steps": ("turns/audit-2026", "reminded", DESK),
    "page-inbox": ("inbox", "refund", DESK),
    "page-inbox-dark": ("inbox", "refund", DESK | DARK),
    "page-inbox-phone": ("inbox", "refund", PHONE),
    "page-session": ("sessions/customer-42", "Shall I", DESK),
    "page-sessions": ("sessions", "customer-42", DESK),
    "page-batches": ("batches", "invoices-11", DESK),
    "page-schedules": ("schedules", "nightly", DESK),
    LOGIN: ("turns", "Who are you?", {"viewport": {"width": 900, "height": 300}}),
}
"""Each picture with its view, a text that the view must have, and the browser."""


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[str]:
    """The address of the page of the support desk."""
    with FakeIssuer() as issuer:
        identity = IdentityProvider(issuer.url, ["desk"], client=LoginClient("page"))
        async with served_with(identity) as url:
            yield url


@contextlib.asynccontextmanager
async def served_with(identity: IdentityProvider) -> AsyncIterator[str]:
    """The same, where people may also log in with an identity provider."""
    async with (
        DevServer(folder=None, port=0) as server,
        local_runtime(
            support_desk.app(), model=support_desk.models(), address=server.address.address
        ) as client,
        serving.served(
            gateway(client, one_token(TOKEN), temporal_ui=server.address.ui, identity=identity),
            (0,),
        ) as url,
        support_desk.open_for_business(client),
    ):
        yield f"{url}/ui/"


async def take(browser: Browser, url: str, name: str) -> None:
    """Paint a view, once it has its text."""
    view, text, options = PICTURES[name]
    context = await browser.new_context(**options)
    page = await context.new_page()
    if name != LOGIN:
        await page.goto(f"{url}#token={TOKEN}")
    await page.goto(f"{url}#/{view}")
    await page.locator("main").get_by_text(text).first.wait_for(timeout=30_000)
    await page.wait_for_timeout(2_500)
    await page.screenshot(path=HERE / f"{name}.png")
    await context.close()
    print(f"docs/pictures/{name}.png")


async def main(names: list[str]) -> int:
    """Take all pictures, or those with these names."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        print("no Chromium on the path: the pictures stay as they are", file=sys.stderr)
        return 1
    async with served() as url, async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        for name in names or PICTURES:
            await take(browser, url, name)
        await browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
