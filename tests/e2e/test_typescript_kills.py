"""The gateway is killed while the client in TypeScript follows a turn, and another one takes its
port; once, the worker of the text that is read dies while no gateway runs.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import pytest

from ..support.e2e.command_line import CommandLine
from ..support.e2e.stories import GONE_S, Tell, asks, kill, says, use
from ..support.gateway.typescript import compiled, program
from ..support.ports import free_port

WORDS = "The quick brown fox jumps over the lazy dog, as it has done every day of its life."
TOKEN = "0123456789abcdef" * 2
Items = list[dict[str, Any]]


async def read(following: Process, items: Items, pieces: int) -> None:
    """Read what the client prints until it has had so many pieces of text, or to its end."""
    assert following.stdout is not None
    async with asyncio.timeout(GONE_S):
        while kinds(items).count("text") < pieces:
            if not (line := await following.stdout.readline()):
                break
            items.append(json.loads(line))


def kinds(items: Items) -> list[str]:
    return [one["kind"] for one in items]


def text_of(items: Items) -> str:
    """The text that counts."""
    text = ""
    for item in items:
        text = "" if item["kind"] == "text_void" else text + item.get("text", "") * is_piece(item)
    return text


def is_piece(item: dict[str, Any]) -> bool:
    return bool(item["kind"] == "text")


@pytest.mark.slow  # processes
@pytest.mark.accepts("H233")
@pytest.mark.parametrize("kills_worker", [False, True], ids=["gateway", "gateway and worker"])
async def test_client_goes_on_after_its_gateway_was_killed(
    tell: Tell, perdure_server: str, tmp_path: Path, kills_worker: bool
) -> None:
    """Each event once and each piece of text once, or it is told that the text is void."""
    module, here, port = compiled(tmp_path / "client"), CommandLine(tmp_path), str(free_port())
    here.environment["PERDURE_TOKEN"] = TOKEN
    serve = ("serve", "--address", perdure_server, "--port", port)
    story = await tell(asks(use("fetch", "one")), {**says(WORDS), "pace_s": 0.7})
    worker = await story.worker()
    turn = await story.start(live=True)
    items: Items = []
    url = f"http://127.0.0.1:{port}"
    with here.started(*serve) as gateway:
        gateway.wait_for("Ctrl-C")
        arguments = (module, url, TOKEN, turn.id)
        async with program("typescript_follow.mjs", *arguments) as following:
            await read(following, items, 4)  # one of the first step, the rest of the second
            gateway.process.kill()
            gateway.process.wait()
            if kills_worker:
                await kill(worker)
                await story.worker()
            with here.started(*serve) as another:
                another.wait_for("Ctrl-C")
                await read(following, items, len(WORDS))
                report = await story.report(turn)
                assert await following.wait() == 0

    cursors = [one["cursor"] for one in items if "cursor" in one]
    assert cursors == [event.cursor async for event in turn.events()]
    assert kinds(items).count("text_void") == int(kills_worker)
    assert kinds(items).count("text_begins") == 2 + int(kills_worker)
    last = max(index for index, kind in enumerate(kinds(items)) if kind == "text_begins")
    assert text_of(items[last:]) == report.output
    assert kinds(items[last:]).count("text") >= (1 if kills_worker else 4)  # also before the kill
