"""Run the program of `docs/recipes/chat.md`: over HTTP, and its page in Chromium."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from perdure import UserMessage
from perdure.testing import FunctionModel, ModelRequest, Reply, says

from ..support.browser import launched, opened
from ..support.docs.commands import commands
from ..support.gateway.served import as_, messages, told
from ..support.gateway.typescript import compiled
from .conftest import Tell


def answer(request: ModelRequest) -> Reply:
    asked = [one.text for one in request.messages if isinstance(one, UserMessage)]
    return says(f"You said: {' '.join(asked)}")


@contextlib.asynccontextmanager
async def application(tell: Tell, folder: Path) -> AsyncIterator[str]:
    """The address of the page's program, beside a worker of its agent."""
    (folder / "static").mkdir(exist_ok=True)
    async with tell("recipes/chat") as story:
        await story.works(await story.defining("guide"), FunctionModel(answer))
        page = await story.up_to("The program", "html")
        (folder / "static/index.html").write_text(page.text, encoding="utf-8")
        [command] = commands(await story.up_to("The program", "console"))
        async with story.terminal.stays(command) as (_, printed):
            yield re.findall(r"http://\S+", printed)[0]


@pytest.mark.slow  # a process
@pytest.mark.accepts("D70")
async def test_chat_answers_and_is_there_later_as_the_page_says(tell: Tell, tmp_path: Path) -> None:
    """A message that is sent twice is said once, a stream goes on after its last event, and a
    visitor sees no other one.
    """
    message = {"id": "m-1", "text": "Hello.", "begin": {"agent": "guide", "live": True}}
    path = "/agents/v1/sessions/chat"
    async with (
        application(tell, tmp_path) as address,
        httpx.AsyncClient(base_url=address, headers=as_("a" * 32), timeout=60) as http,
    ):
        before = await http.get(path)
        sent = [(await http.post(f"{path}/messages", json=message)).json() for _ in range(2)]
        events = f"/agents/v1/turns/{sent[0]['turn_id']}/events"
        seen = [one async for one in messages(http, events)]
        cursors = [cursor for cursor, _ in seen if cursor]
        rest = [cursor async for cursor, _ in messages(http, events, cursors[-2]) if cursor]
        after = (await http.get(f"{path}/messages")).json()["messages"]
        others = [await http.get(f"{path}/messages", headers=as_(name)) for name in ("b" * 32, "b")]

    assert told(before) == (404, "SESSION_NOT_FOUND")
    assert sent[0]["turn_id"] == sent[1]["turn_id"]
    assert "".join(one["text"] for _, one in seen if one["kind"] == "text") == "You said: Hello."
    assert rest == cursors[-1:]
    assert [one["role"] for one in after] == ["user", "assistant"]
    assert [told(one)[0] for one in others] == [404, 401]


@pytest.mark.slow
@pytest.mark.accepts("D70")
async def test_chat_is_used_in_a_browser_as_the_page_says(tell: Tell, tmp_path: Path) -> None:
    """Messages and answers are lines, also after a reload."""
    compiled(tmp_path / "static/client")
    async with (
        launched() as chromium,
        application(tell, tmp_path) as address,
        opened(chromium, address, wait_until="load") as watched,
    ):
        page = watched.page
        for text, answered in (("Hello.", "Hello."), ("And <b>now</b>?", "Hello. And <b>now</b>?")):
            await page.fill("input", text)
            await page.click("button")
            await page.get_by_text(f"You said: {answered}").wait_for()
        lines = await page.locator("p").all_inner_texts()
        await page.reload()
        await page.locator("p").nth(3).wait_for()
        again = await page.locator("p").all_inner_texts()

    assert lines == again
    assert lines[-2:] == ["> And <b>now</b>?", "You said: Hello. And <b>now</b>?"]
