"""The page of a gateway in Chromium, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from axe_playwright_python.async_playwright import Axe

from perdure import Agent, Price, Rollout
from perdure.clients import AgentClient
from perdure.clients.gateway import Auth, one_token
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ..browser import WIDTHS, Watched, opened
from .served import served

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

LONG = 30_000
TOKEN = "0123456789abcdef" * 2
CARD = "article.decision"


def priced(*agents: Agent[Any], **options: Any) -> AgentWorker:
    """Agents whose model costs 3 and 15 dollars for a million tokens."""
    return AgentWorker(
        list(agents),
        models={"main": "scripted:main"},
        prices={"scripted:*": Price(input=3, output=15)},
        **options,
    )


@contextlib.asynccontextmanager
async def page_of(
    runtime: Runtime,
    chromium: Browser,
    model: Any,
    *agents: Agent[Any],
    auth: Auth | None = None,
    options: dict[str, Any] | None = None,
    rollouts: Mapping[str, Rollout] | None = None,
) -> AsyncIterator[tuple[AgentClient, str, Watched]]:
    """A client, the address of a gateway, and its page, which has said nothing at the end."""
    worker = priced(*agents, rollouts=rollouts or {})
    async with (
        runtime(worker, model=model) as client,
        served(client, auth or one_token(TOKEN), temporal_ui="http://127.0.0.1:8233") as http,
    ):
        base = str(http.base_url).rstrip("/")
        address = f"{base}/ui/" if auth else f"{base}/ui/#token={TOKEN}"
        async with opened(chromium, address, wait_until="load", **(options or {})) as watched:
            watched.page.set_default_timeout(LONG)
            watched.page.on(
                "dialog", lambda dialog: watched.said.append(f"dialog: {dialog.message}")
            )
            yield client, base, watched
            assert watched.elsewhere(base) == []


async def show(page: Page, kind: str, id: str) -> None:
    """Open a view by its address."""
    await page.evaluate(f"location.hash = '#/{kind}/{id}'")


async def press(page: Page, name: str) -> None:
    """Press a button of the view."""
    await page.get_by_role("button", name=name, exact=True).click()


async def confirm(page: Page, name: str, **values: str) -> str:
    """Fill in the fields of the open dialog, press its button, and return what it said."""
    dialog = page.get_by_role("dialog")
    for field, value in values.items():
        await dialog.locator(f"[name={field}]").fill(value)
    said = await dialog.inner_text()
    await dialog.get_by_role("button", name=name, exact=True).click()
    await dialog.wait_for(state="detached")
    return said


async def has(page: Page, text: str) -> None:
    """Wait until the view has a text."""
    await page.locator("main").get_by_text(text).first.wait_for()


async def problems(page: Page) -> list[str]:
    """What axe finds serious, and whether the view is wider than the phone."""
    results = await Axe().run(page)
    found = [
        f"{one['id']}: {node['html'][:200]}"
        for one in results.response["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
    width, room = await page.evaluate(WIDTHS)
    return found + ([f"{width} pixels wide"] if width > room else [])
