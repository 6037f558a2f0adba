"""Streams of text are attached again after kills of workers, gateways and the Temporal server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import aconnect_sse

from perdure.clients import TextBegins, TextVoid, Turn
from perdure.testing.stub_provider import StubReply

from ..conftest import eventually
from ..support.e2e.gateways import TOKEN, serve, url_of
from ..support.e2e.outages import Outage
from ..support.e2e.restarted_server import server
from ..support.e2e.stories import Story, use

__all__ = ["server"]

WORDS = "The quick brown fox jumps over the lazy dog, as it has done every day of its life. " * 2
KILLS = ("gateway", "worker", "server", "worker and gateway")
PATIENCE_S = 240.0
HEARD = 40
"""Characters of a step after which something is killed."""


class Screen:
    """What somebody sees who follows a turn: the text of each step that counts."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.step = 0
        self.voids = 0
        self.losses = 0

    def begin(self, step: int) -> None:
        self.step = step
        self.texts[step] = ""

    def say(self, text: str) -> None:
        self.texts[self.step] += text

    def void(self) -> None:
        self.voids += 1
        self.texts[self.step] = ""

    def has_heard(self, step: int) -> bool:
        return len(self.texts.get(step, "")) >= HEARD


async def in_python(turn: Turn, screen: Screen) -> None:
    """Follow a turn with the client."""
    async for said in turn.text():
        match said:
            case TextBegins(step):
                screen.begin(step)
            case TextVoid():
                screen.void()
            case str():
                screen.say(said)


async def over_http(turn: Turn, screen: Screen, url: Callable[[], str]) -> None:
    """Follow a turn over a gateway, and from the last event on after each loss."""
    cursor = ""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
        while True:
            headers = {"Last-Event-ID": cursor} if cursor else {}
            path = f"{url()}/v1/turns/{turn.id}/events"
            with contextlib.suppress(httpx.TransportError):
                async with aconnect_sse(http, "GET", path, headers=headers, timeout=60) as source:
                    async for message in source.aiter_sse():
                        cursor = message.id or cursor
                        if message.data and _show(json.loads(message.data), screen):
                            return
            screen.losses += 1
            await asyncio.sleep(0.1)


def _show(data: dict[str, Any], screen: Screen) -> bool:
    """Show a message of a stream; return whether it is the last."""
    match data["kind"]:
        case "text_begins":
            screen.begin(data["step"])
        case "text_void":
            screen.void()
        case "text":
            screen.say(data["text"])
    return bool(data["kind"] == "turn_ended")


async def over_responses(turn: Turn, screen: Screen, url: Callable[[], str]) -> None:
    """Follow a turn as a response, and after the last number after each loss or void text."""
    after = -1
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
        while True:
            query = f"stream=true&starting_after={after}"
            path = f"{url()}/openai/v1/responses/{turn.id}?{query}"
            with contextlib.suppress(httpx.TransportError):
                async with aconnect_sse(http, "GET", path, timeout=60) as source:
                    async for message in source.aiter_sse():
                        data = json.loads(message.data)
                        after = data["sequence_number"]
                        if _show_event(data, screen):
                            return
            screen.losses += 1
            await asyncio.sleep(0.1)


def _show_event(data: dict[str, Any], screen: Screen) -> bool:
    """Show an event of a response; return whether it is the last."""
    match data["type"]:
        case "response.output_item.added" if data["item"]["type"] == "message":
            screen.begin(int(data["item"]["id"].split("_")[2]))
        case "error" if data["code"] == "TEXT_VOID":
            screen.void()
        case "response.output_text.delta":
            screen.say(data["delta"])
    return bool(data["type"] == "response.completed")


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.accepts("E192")
async def test_text_is_void_or_complete_whatever_is_killed(server: Outage, tmp_path: Path) -> None:
    """A kill in the middle of each of the first steps. The texts of attempts differ, so a mixture
    would be seen.
    """
    steps = (
        StubReply(text=WORDS, calls=[use("fetch", f"after a kill of {kill}")], pace_s=0.15)
        for kill in KILLS
    )
    replies = (*steps, StubReply(text=WORDS, pace_s=0.05))
    async with (
        Story(server.address, tmp_path, replies, supervised=True) as story,
        contextlib.AsyncExitStack() as processes,
        asyncio.timeout(PATIENCE_S),
    ):
        worker = await story.worker()
        gateway = await serve(processes, story, server.address, tmp_path)
        urls = [await url_of(gateway)]
        turn = await story.start(live=True)
        here, there, as_response = Screen(), Screen(), Screen()

        async def kill_gateway() -> None:
            nonlocal gateway
            gateway.process.kill()
            gateway = await serve(processes, story, server.address, tmp_path)
            urls.append(await url_of(gateway))

        async def kill_worker() -> None:
            nonlocal worker
            worker = await story.replace(worker)

        kills: dict[str, Callable[[], Awaitable[None]]] = {
            "gateway": kill_gateway,
            "worker": kill_worker,
            "server": lambda: server.happen(1.0),
        }
        async with asyncio.TaskGroup() as group:
            group.create_task(in_python(turn, here))
            group.create_task(over_http(turn, there, lambda: urls[-1]))
            group.create_task(over_responses(turn, as_response, lambda: urls[-1]))
            for number, kill in enumerate(KILLS, 1):
                await eventually(
                    lambda number=number: all(  # type: ignore[misc]
                        screen.has_heard(number) for screen in (here, there, as_response)
                    ),
                    f"step {number} is heard",
                    within_s=PATIENCE_S,
                )
                for part in kill.split(" and "):
                    await kills[part]()
        report = await story.report(turn)

    said = {one.number: one.message.text for one in report.steps}
    assert here.texts == there.texts == as_response.texts == said
    assert min(here.voids, there.voids, as_response.voids) >= 1  # of workers that were killed
    assert min(there.losses, as_response.losses) >= KILLS.count("gateway")
    assert len({*said.values()}) == len(KILLS) + 1
