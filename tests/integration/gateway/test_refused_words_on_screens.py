"""What an agent must not say, looked for on the page in a browser and in `perdure chat`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perdure import errors
from perdure.clients import Turn
from perdure.clients.gateway import one_token

from ...conftest import Runtime
from ...support.browser import launched, opened
from ...support.e2e.terminal import Terminal, terminal
from ...support.gateway.served import served
from ...support.refused_words import (
    ASKED,
    BESIDE,
    EARLY,
    PERSON,
    POLICY,
    REFUSED,
    app,
    canaries,
    script,
)

if TYPE_CHECKING:
    from playwright.async_api import Page

UNFOLDED = """async () => {
  const parts = () => [...document.querySelectorAll("main details")];
  while (parts().some((one) => one.children.length < 2)) {
    for (const one of parts()) one.open = true;
    await new Promise(requestAnimationFrame);
  }
}"""
"""Opens all that is folded, and waits until its content is there."""
TOKEN = secrets.token_urlsafe()
PROMPT = r"(?m)^>$"


async def refused(turn: Turn[Any]) -> None:
    """Deny the call that waits; then the answer is refused, and the turn is over."""
    await turn.wait(timedelta(seconds=60))
    [waiting] = await turn.pending_approvals()
    await turn.deny(waiting, "no")
    with pytest.raises(errors.GuardrailError):
        await turn.result()


async def content(page: Page, until: str) -> str:
    """All that a view has, once it shows this text, with everything in it unfolded."""
    await page.locator("main").get_by_text(until).first.wait_for()
    await page.evaluate(UNFOLDED)
    return await page.content()


@pytest.mark.accepts("G34")
@pytest.mark.slow
async def test_page_has_what_was_asked_for_and_not_what_was_refused(runtime: Runtime) -> None:
    """The document, with what is folded: of views that were open meanwhile, and of new ones."""
    async with (
        launched() as chromium,
        runtime(app(), model=script(POLICY, PERSON)) as client,
        served(client, one_token(TOKEN)) as http,
    ):
        base = str(http.base_url).rstrip("/")

        @contextlib.asynccontextmanager
        async def view(name: str) -> AsyncIterator[Page]:
            address = f"{base}/ui/#token={TOKEN}"
            async with opened(chromium, address, wait_until="load") as watched:
                await watched.page.evaluate("name => { location.hash = `#/${name}` }", name)
                yield watched.page

        session = client.session(f"taint-{secrets.token_hex(4)}", agent="desk", live=True)
        turn = await (await session.say("Help.")).turn()
        await turn.wait(timedelta(seconds=60))
        seen: dict[str, str] = {}
        async with view("inbox") as page:
            seen["inbox"] = await content(page, "refund")
        async with (
            view(f"turns/{turn.id}") as old_turn,
            view(f"sessions/{session.id}") as old_session,
        ):
            await content(old_turn, "refund")
            await content(old_session, "refund")
            await refused(turn)
            await (await session.say("And now?")).result()
            seen["open turn"] = await content(old_turn, "GUARDRAIL")
            seen["open session"] = await content(old_session, "Hello.")
        ends = {
            f"turns/{turn.id}": "GUARDRAIL",
            f"turns/{turn.id}/kid-1": "GUARDRAIL",
            f"turns/{turn.id}/busy-2": "MAX_ITERATIONS",
            f"sessions/{session.id}": "Hello.",
            "turns": "Help.",
            "sessions": session.id,
        }
        for name, until in ends.items():
            async with view(name) as page:
                seen[name] = await content(page, until)
        await session.close()

    inside = {
        "open turn",
        f"turns/{turn.id}",
    }  # the traces of its delegates, as far as they are read
    assert {
        name: canaries(text) - ({BESIDE} if name in inside else set())
        for name, text in seen.items()
    } == {
        "inbox": {PERSON},
        "open turn": ASKED,
        "open session": ASKED,
        **{name: ASKED if session.id in name else set() for name in ends},
        f"turns/{turn.id}/kid-1": set(),
        f"turns/{turn.id}/busy-2": {BESIDE},  # who follows a turn sees what is said beside calls
    }


@pytest.mark.accepts("G35")
@pytest.mark.slow
async def test_terminal_has_what_was_asked_for_and_not_what_was_refused(
    runtime: Runtime, perdure_server: str, tmp_path: Path
) -> None:
    """Every byte of a chat that comes back to a session. One that was there meanwhile has shown the
    answer while it was written, and then the reason why it is refused.
    """
    async with runtime(app(), model=script(POLICY, PERSON)) as client:
        session_id = f"taint-{secrets.token_hex(4)}"
        command = [sys.executable, "-m", "perdure", "chat", "desk", "--session", session_id]
        command += ["--address", perdure_server, "--task-queue", client.task_queue]

        async def until(shown: Terminal, pattern: str) -> None:
            await asyncio.to_thread(shown.wait_for, pattern)

        with terminal(command, tmp_path, os.environ) as shown:
            await until(shown, PROMPT)
            shown.type("Help.\n")
            await until(shown, "perdure approvals")
            await refused(client.turn(f"{session_id}/1"))
            await until(shown, rf"(?s){session_id}/1: .*\n>$")
            shown.type("And now?\n")
            await until(shown, r"(?s)Hello\..*\n>$")
            first = shown.raw
        with terminal(command, tmp_path, os.environ) as shown:
            await until(shown, r"(?s)Hello\..*\n>$")
            second = shown.raw
        await client.session(session_id).close()

    assert canaries(first) == ASKED | {REFUSED, EARLY}
    assert canaries(second) == set()
