"""Run the program of `docs/chat.md`: over HTTP, and its page in Chromium."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from perdure import UserMessage
from perdure.testing import FunctionModel, ModelRequest, Reply, says

from ..support.browser import launched, opened
from ..support.docs.commands import commands
from .conftest import Tell


def answer(request: ModelRequest) -> Reply:
    asked = [one.text for one in request.messages if isinstance(one, UserMessage)]
    return says(f"You said: {' '.join(asked)}")


@contextlib.asynccontextmanager
async def served(tell: Tell) -> AsyncIterator[str]:
    """The address of the page's program, beside a worker of its agent."""
    async with tell("chat") as story:
        await story.works(await story.defining("guide"), FunctionModel(answer))
        [command] = commands(await story.up_to("The program", "console"))
        async with story.terminal.stays(command) as (_, printed):
            yield re.findall(r"http://\S+", printed)[0]


@pytest.mark.slow  # a process
@pytest.mark.accepts("D70")
async def test_chat_answers_and_is_there_later_as_the_page_says(tell: Tell) -> None:
    """A message that is sent twice is said once, and a stream goes on after its last event."""
    async with served(tell) as address, httpx.AsyncClient(base_url=address, timeout=60) as http:
        before = (await http.get("/chats/c")).json()
        sent = [
            (await http.post("/chats/c", json={"id": "m-1", "text": "Hello."})).json()
            for _ in range(2)
        ]
        stream = (await http.get(f"/turns/{sent[0]['turn']}")).text
        ids = re.findall(r"^id: (\S+)", stream, re.MULTILINE)
        headers = {"Last-Event-ID": ids[-2]}
        rest = (await http.get(f"/turns/{sent[0]['turn']}", headers=headers)).text
        after = (await http.get("/chats/c")).json()
        empty = await http.post("/chats/c", json={"id": "m-2", "text": ""})
        missing = await http.get("/turns/chat/c/9")

    data = [json.loads(line) for line in re.findall(r"^data: (.*)", stream, re.MULTILINE)]
    assert before == {"lines": [], "turn": None}
    assert sent == [{"turn": "chat/c/1"}] * 2
    assert "".join(one["text"] for one in data if one["kind"] == "text") == "You said: Hello."
    assert [one["outcome"] for one in data if one["kind"] == "turn_ended"] == ["completed"]
    assert re.findall(r"^id: (\S+)", rest, re.MULTILINE) == ids[-1:]
    assert after == {"lines": ["> Hello.", "You said: Hello."], "turn": None}
    assert [(one.status_code, bool(one.json()["message"])) for one in (empty, missing)] == [
        (409, True)
    ] * 2


@pytest.mark.slow
@pytest.mark.accepts("D70")
async def test_chat_is_used_in_a_browser_as_the_page_says(tell: Tell) -> None:
    """Messages and answers are lines, also after a reload."""
    async with (
        launched() as chromium,
        served(tell) as address,
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
