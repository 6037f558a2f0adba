"""The text of a delegate is attached again after kills of its worker and of the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import aconnect_sse

from perdure.clients import TextBegins, TextVoid, Turn, TurnText
from perdure.testing.stub_provider import StubCall, StubReply

from ..conftest import eventually
from ..support.e2e.gateways import TOKEN, serve, url_of
from ..support.e2e.stories import Improviser, Story, use

PATIENCE_S = 240.0
WORDS = "The quick brown fox jumps over the lazy dog, as it has done every day of its life. " * 2
TASK = "Say what you know."
HEARD = 40
"""Characters of a step after which something is killed."""
CALL = StubCall(name="delegate_to_agent", arguments={"agent": "a1", "task": TASK})
BOSS = (StubReply(calls=[CALL]), StubReply(text="It is said."))
DELEGATE = (
    StubReply(text=WORDS, calls=[use("fetch", "after a kill of the worker")], pace_s=0.15),
    StubReply(text=WORDS, calls=[use("fetch", "after a kill of the gateway")], pace_s=0.15),
    StubReply(text=WORDS, pace_s=0.05),
)
RUN = {
    "threadId": "talk",
    "runId": "r-1",
    "messages": [{"id": "m-1", "role": "user", "content": "go"}],
    "state": {},
    "tools": [],
    "context": [],
    "forwardedProps": {},
}


class Provider(Improviser):
    """The boss delegates one task, and the answers to that are spoken slowly."""

    def reply(self, body: Mapping[str, Any]) -> StubReply | None:
        messages = body["messages"]
        users = [one["content"] for one in messages if one["role"] == "user"]
        replies = DELEGATE if TASK in str(users[0]) else BOSS
        step = sum(one["role"] == "assistant" for one in messages)
        return replies[step] if step < len(replies) else None


class Screen:
    """The texts of a delegate that somebody sees, by step, and how often it was attached again."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.losses = 0
        self.step = 0

    def begin(self, step: int) -> None:
        self.step = step
        self.texts[step] = ""

    def say(self, text: str) -> None:
        self.texts[self.step] += text

    def has_heard(self, step: int) -> bool:
        return len(self.texts.get(step, "")) >= HEARD


async def in_python(turn: Turn, screen: Screen) -> None:
    async for said in turn.text(delegates=True):
        match said:
            case TurnText(piece=TextBegins(step) | TextVoid(step)):
                screen.begin(step)
            case TurnText(piece=str(text)):
                screen.say(text)


async def over_rest(turn: Turn, screen: Screen, url: Callable[[], str]) -> None:
    cursor = ""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
        while True:
            headers = {"Last-Event-ID": cursor} if cursor else {}
            path = f"{url()}/v1/turns/{turn.id}/events?delegates=running"
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
        case "text_begins" | "text_void" if "turn" in data:
            screen.begin(data["step"])
        case "text" if "turn" in data:
            screen.say(data["text"])
    return bool(data["kind"] == "turn_ended")


async def over_agui(screen: Screen, url: Callable[[], str]) -> None:
    """Run the boss, and follow the run again after each loss."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
        while True:
            path = f"{url()}/agui/a0?delegates=true"
            with contextlib.suppress(httpx.TransportError):
                async with aconnect_sse(http, "POST", path, json=RUN, timeout=60) as source:
                    async for message in source.aiter_sse():
                        if message.data and _show_event(json.loads(message.data), screen):
                            return
            screen.losses += 1
            await asyncio.sleep(0.1)


def _show_event(event: dict[str, Any], screen: Screen) -> bool:
    """Show an event of a run; return whether it is the last."""
    match event:
        case {"type": "MESSAGES_SNAPSHOT", "messages": messages}:
            said = [one for one in messages if one.get("subagentRunId")]
            screen.texts = {_step_of(one["id"]): one["content"] for one in said}
        case {"type": "TEXT_MESSAGE_START", "subagentRunId": str(), "messageId": name}:
            screen.begin(_step_of(name))
        case {"type": "TEXT_MESSAGE_CONTENT", "subagentRunId": str(), "delta": text}:
            screen.say(text)
    return bool(event["type"] == "RUN_FINISHED")


def _step_of(message_id: str) -> int:
    return int(message_id.rpartition("#")[2].partition(".")[0])


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.accepts("E192", "E193")
async def test_text_of_a_delegate_is_void_or_complete_whatever_is_killed(
    perdure_server: str, tmp_path: Path
) -> None:
    """In the first step the worker, in the second the gateway. The texts of attempts differ, so a
    mixture would be seen.
    """
    stub = Provider((), tmp_path / "requests.jsonl")
    async with (
        Story(perdure_server, tmp_path, stub=stub, supervised=True) as story,
        contextlib.AsyncExitStack() as processes,
        asyncio.timeout(PATIENCE_S),
    ):
        story.app = "tests.support.e2e.trees:make"
        worker = await story.worker()
        gateway = await serve(processes, story, perdure_server, tmp_path)
        urls = [await url_of(gateway)]
        here, there, as_run = Screen(), Screen(), Screen()
        async with asyncio.TaskGroup() as group:
            group.create_task(over_agui(as_run, lambda: urls[-1]))
            turn = story.client.turn("talk/1")
            await eventually(lambda: bool(stub.requests), "the turn runs")
            group.create_task(in_python(turn, here))
            group.create_task(over_rest(turn, there, lambda: urls[-1]))
            for step in (1, 2):
                await eventually(
                    lambda step=step: all(  # type: ignore[misc]
                        screen.has_heard(step) for screen in (here, there, as_run)
                    ),
                    f"step {step} is heard",
                    within_s=PATIENCE_S,
                )
                if step == 1:
                    worker = await story.replace(worker)
                    continue
                gateway.process.kill()
                gateway = await serve(processes, story, perdure_server, tmp_path)
                urls.append(await url_of(gateway))
        report = await story.client.turn("talk/1/a1-1").result()

    said = {one.number: one.message.text for one in report.steps}
    assert here.texts == there.texts == said
    assert as_run.texts.items() <= said.items()  # a run that is followed again has what runs then
    assert min(there.losses, as_run.losses) >= 1
    assert len({*said.values()}) == len(DELEGATE)
