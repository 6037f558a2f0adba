"""The chat that a product shows its users, from one file."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says, slowly
from perdure.toolboxes import asking

from ...conftest import Runtime
from ...support.browser import PHONE
from ...support.gateway.pages import TOKEN, page_of, problems

if TYPE_CHECKING:
    from playwright.async_api import Browser

TEXT = "one **two** three <b>four</b>"


@tool
def look_up(text: str) -> str:
    """Look something up."""
    return f"secret of {text}"


@pytest.mark.slow
@pytest.mark.accepts("H222", "H223")
async def test_user_chats_and_is_asked_without_seeing_calls_and_costs(
    runtime: Runtime, chromium: Browser
) -> None:
    """Text comes while it is generated, as Markdown at the end; a question is answered there."""
    helper = Agent(name="helper", model="main", tools=[look_up], toolboxes=[asking()])
    model = ScriptedModel(
        calls(call("look_up", text="it"), text="I look."),
        slowly(TEXT, pause=timedelta(milliseconds=700)),
        calls(call("ask", question="Which one?", options=["red", "green"])),
        says("Green it is."),
    )
    options = {"viewport": PHONE}
    async with page_of(runtime, chromium, model, helper, options=options) as (
        client,
        base,
        watched,
    ):
        page = watched.page
        await page.locator("#who", has_text="operator").wait_for()
        await page.goto(f"{base}/ui/chat.html#agent=helper&session=product-1")
        chat = page.locator("perdure-chat")
        box = chat.get_by_role("textbox", name="Message")
        await box.fill("Hello there.")
        await page.keyboard.press("Enter")
        await chat.get_by_text("one").first.wait_for()
        turn = client.turn("product-1/1")
        before = (await turn.status()).outcome
        await chat.locator(".agent strong", has_text="two").wait_for()
        await turn.result()
        text = await chat.get_by_role("log").inner_text()
        said = list(watched.said)
        found = await problems(page)  # which tries an inline style in the element
        await box.fill("And now?")
        await chat.get_by_role("button", name="Send").click()
        await chat.get_by_role("button", name="green").click()
        await chat.get_by_text("Green it is.").wait_for()
        await (client.turn("product-1/2")).result()
        await page.reload()
        await chat.get_by_text("Green it is.").wait_for()
        again = await chat.get_by_role("log").inner_text()
        await page.evaluate(EMBEDDED, f"{base}/ui/chat.js")
        other = page.locator("perdure-chat[session=product-1]").nth(1)
        await other.get_by_text("Green it is.").wait_for()
        await client.session("product-1").close()

    assert before is None
    assert "Hello there." in text
    assert "<b>four</b>" in text
    assert "secret of it" not in text
    assert "look_up" not in text
    assert "$" not in text
    assert found == []
    assert again.count("And now?") == 1
    assert not any(TOKEN in url for url in watched.asked)
    assert len(said) <= 1  # the browser tells that the session did not exist


EMBEDDED = """async (address) => {
  await import(address);
  const chat = document.createElement("perdure-chat");
  chat.setAttribute("session", "product-1");
  document.body.append(chat);
}"""
"""What the page of a product does."""
