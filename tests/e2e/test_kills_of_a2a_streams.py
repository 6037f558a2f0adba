"""The stream of a task over A2A is subscribed to again after kills of worker and gateway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

pytest.importorskip("a2a", reason="the extra perdure[a2a] is not installed")

from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import UnsupportedOperationError

from perdure.testing.stub_provider import StubReply

from ..conftest import eventually
from ..support.e2e.command_line import Started
from ..support.e2e.gateways import TOKEN, serve, url_of
from ..support.e2e.stories import Story, use

WORDS = "The quick brown fox jumps over the lazy dog, as it has done every day of its life. " * 2
PATIENCE_S = 240.0
HEARD = 40
"""Characters of a step after which something is killed."""
AGENTS = """
[[agent]]
name = "clerk"
description = "Fetches things."
"""


class Screen:
    """What somebody sees who follows a task: the text of its answer so far."""

    def __init__(self) -> None:
        self.task_id = ""
        self.text = ""
        self.texts: list[str] = []
        self.losses = 0

    def show(self, response: StreamResponse) -> bool:
        """Show a message of the stream; return whether it is the last."""
        match response.WhichOneof("payload"):
            case "task":
                self.task_id = response.task.id
                shown = [part.text for one in response.task.artifacts for part in one.parts]
                self._replace("".join(shown))
                return bool(response.task.status.state == TaskState.TASK_STATE_COMPLETED)
            case "artifact_update":
                update = response.artifact_update
                said = "".join(part.text for part in update.artifact.parts)
                self._replace(self.text + said if update.append else said)
            case "status_update":
                return bool(response.status_update.status.state == TaskState.TASK_STATE_COMPLETED)
        return False

    def _replace(self, text: str) -> None:
        if not text.startswith(self.text):
            self.texts.append(self.text)
        self.text = text


async def agent_at(http: httpx.AsyncClient, url: str) -> Client:
    """The official client of the agent at a gateway."""
    card = await A2ACardResolver(http, f"{url}/a2a/clerk").get_agent_card()
    return ClientFactory(ClientConfig(streaming=True, httpx_client=http)).create(card)


def stream_of(agent: Client, screen: Screen) -> AsyncIterator[StreamResponse]:
    """Send the message, or subscribe to its task once that is known."""
    if screen.task_id:
        return agent.subscribe(SubscribeToTaskRequest(id=screen.task_id))
    asked = Message(message_id="kills-1", role=Role.ROLE_USER, parts=[Part(text="Go.")])
    return agent.send_message(SendMessageRequest(message=asked))


async def follow(screen: Screen, url: Callable[[], str]) -> None:
    """Follow the task to its end, again after each loss."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        while True:
            with contextlib.suppress(httpx.TransportError, A2AClientError):
                agent = await agent_at(http, url())
                try:
                    async for response in stream_of(agent, screen):
                        if screen.show(response):
                            return
                except UnsupportedOperationError:  # the task is over
                    task = await agent.get_task(GetTaskRequest(id=screen.task_id))
                    screen.show(StreamResponse(task=task))
                    return
            screen.losses += 1
            await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.accepts("E192")
async def test_text_over_a2a_is_void_or_complete_whatever_is_killed(
    perdure_server: str, tmp_path: Path
) -> None:
    """In the first step the worker, in the last the gateway. The texts of attempts differ, so a
    mixture would be seen.
    """
    agents = tmp_path / "agents.toml"
    agents.write_text(AGENTS, encoding="utf-8")
    replies = (
        StubReply(text=WORDS, calls=[use("fetch", "after a kill of the worker")], pace_s=0.15),
        StubReply(text=WORDS, pace_s=0.4),
    )
    async with (
        Story(perdure_server, tmp_path, replies, supervised=True) as story,
        contextlib.AsyncExitStack() as processes,
        asyncio.timeout(PATIENCE_S),
    ):
        worker = await story.worker()

        async def gateway_again() -> str:
            gateway = await serve(
                *(processes, story, perdure_server, tmp_path, "0"), "--a2a", str(agents)
            )
            gateways.append(gateway)
            return await url_of(gateway)

        gateways: list[Started] = []
        urls = [await gateway_again()]
        screen = Screen()
        async with asyncio.TaskGroup() as group:
            group.create_task(follow(screen, lambda: urls[-1]))
            await eventually(lambda: len(screen.text) >= HEARD, "text is heard")
            worker = await story.replace(worker)
            await eventually(lambda: bool(screen.texts), "the text is void")
            turn = story.client.turn(f"a2a/clerk/{screen.task_id}")
            await eventually(
                lambda: len(screen.texts) >= 2 and len(screen.text) >= HEARD,
                "the last step is heard",
                within_s=PATIENCE_S,
            )
            gateways[-1].process.kill()
            urls.append(await gateway_again())
        report = await turn.result()

    assert screen.text == report.output
    assert screen.losses >= 1
    whole = [one.message.text for one in report.steps]
    assert whole[0] in screen.texts
    assert all(WORDS[:10] in text or not text for text in screen.texts)
