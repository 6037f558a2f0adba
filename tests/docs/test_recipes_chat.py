"""Run the program of `docs/recipes/chat.md`: over HTTP, and its page in Chromium."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from perdure import UserMessage
from perdure.testing import FunctionModel, ModelRequest, Reply, says, slowly

from ..support.browser import launched, opened
from ..support.docs.commands import Command, commands
from ..support.docs.stories import Story
from ..support.gateway.served import as_, messages, told
from ..support.gateway.typescript import compiled
from ..support.ports import free_port
from .conftest import Tell

WORDS = "This hall has the oldest boats of the coast, and the youngest of them is from 1740."
WATCH = """
window.shown = []
new MutationObserver(() => window.shown.push(document.querySelector("p:last-child").innerText))
  .observe(document.querySelector("main"), {childList: true, subtree: true, characterData: true})
"""


def answer(request: ModelRequest) -> Reply:
    """What was said so far, or a slow answer."""
    asked = [one.text for one in request.messages if isinstance(one, UserMessage)]
    if asked == ["Slowly."]:
        return slowly(WORDS, pause=timedelta(seconds=0.5))
    return says(f"You said: {' '.join(asked)}")


class Application:
    """The page's program, beside a worker of its agent.

    Attributes:
        address: Its address.
    """

    def __init__(self, story: Story, command: Command, stack: contextlib.AsyncExitStack) -> None:
        self.address = ""
        self._story, self._command, self._stack = story, command, stack
        self._port = free_port()

    async def restart(self) -> None:
        """Kill it if it runs, and start it on its port."""
        await self._stack.aclose()
        staying = self._story.terminal.stays(self._command, self._port)
        _, printed = await self._stack.enter_async_context(staying)
        [self.address] = re.findall(r"http://\S+", printed)


@contextlib.asynccontextmanager
async def application(tell: Tell, folder: Path) -> AsyncIterator[Application]:
    """The application, which runs."""
    (folder / "static").mkdir(exist_ok=True)
    async with tell("recipes/chat") as story:
        await story.works(await story.defining("guide"), FunctionModel(answer))
        page = await story.up_to("The program", "html")
        (folder / "static/index.html").write_text(page.text, encoding="utf-8")
        [command] = commands(await story.up_to("The program", "console"))
        async with contextlib.AsyncExitStack() as stack:
            running = Application(story, command, stack)
            await running.restart()
            yield running


@pytest.mark.slow  # a process
@pytest.mark.accepts("D70")
async def test_chat_answers_and_is_there_later_as_the_page_says(tell: Tell, tmp_path: Path) -> None:
    """A message that is sent twice is said once, a stream goes on after its last event, and a
    visitor sees no other one.
    """
    message = {"id": "m-1", "text": "Hello.", "begin": {"agent": "guide", "live": True}}
    path = "/agents/v1/sessions/chat"
    async with (
        application(tell, tmp_path) as running,
        httpx.AsyncClient(base_url=running.address, headers=as_("a" * 32), timeout=60) as http,
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
        application(tell, tmp_path) as running,
        opened(chromium, running.address, wait_until="load") as watched,
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


@pytest.mark.slow
@pytest.mark.accepts("D70", "H233")
async def test_answer_grows_on_when_the_application_is_killed(tell: Tell, tmp_path: Path) -> None:
    """And started again: no text is shown twice, and none is lost."""
    compiled(tmp_path / "static/client")
    async with (
        launched() as chromium,
        application(tell, tmp_path) as running,
        opened(chromium, running.address, wait_until="load") as watched,
    ):
        page = watched.page
        await page.evaluate(WATCH)
        await page.fill("input", "Slowly.")
        await page.click("button")
        await page.get_by_text("This hall").wait_for()
        await running.restart()
        await page.get_by_text(WORDS).wait_for()
        shown = await page.evaluate("window.shown")
        lines = await page.locator("p").all_inner_texts()

    assert lines == ["> Slowly.", WORDS]
    assert [text for text in shown if not (WORDS.startswith(text) or text == lines[0])] == []
