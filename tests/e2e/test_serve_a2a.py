"""`perdure serve --a2a` as processes, one of which is killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)

from perdure import Agent
from perdure.activities.provider import ModelRequest
from perdure.testing import ScriptedModel, says
from perdure.values.answers import ModelAnswer

from ..conftest import Runtime
from ..support.e2e.command_line import CommandLine

TOKEN = "0123456789abcdef" * 2
BEARER = {"Authorization": f"Bearer {TOKEN}"}
AGENTS = '[[agent]]\nname = "desk"\ndescription = "Answers."\n'


class Held(ScriptedModel):
    """A model that answers when it may."""

    def __init__(self, answer: str) -> None:
        super().__init__(says(answer))
        self.go_on = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        await self.go_on.wait()
        return await super().complete(request)


@contextlib.asynccontextmanager
async def serving(perdure: CommandLine, queue: str) -> AsyncIterator[Client]:
    """A gateway as a process, which is killed at the end, and the official client of its agent."""
    arguments = ("serve", "--a2a", "agents.toml", "--port", "0", "--task-queue", queue)
    with perdure.started(*arguments, PERDURE_TOKEN=TOKEN) as started:
        found = await asyncio.to_thread(started.wait_for, r"(http://\S+); Ctrl-C stops it")
        async with httpx.AsyncClient(timeout=60, headers=BEARER) as http:
            card = await A2ACardResolver(http, f"{found[1]}/a2a/desk").get_agent_card()
            yield ClientFactory(ClientConfig(httpx_client=http)).create(card)
            started.process.kill()


@pytest.mark.slow
@pytest.mark.accepts("H53")
async def test_task_is_followed_in_another_process_after_a_kill(
    perdure_server: str, tmp_path: Path, runtime: Runtime
) -> None:
    """The killed one had its stream; the task is neither lost nor begun again."""
    perdure, model = CommandLine(tmp_path), Held("Here I am.")
    perdure.environment["TEMPORAL_ADDRESS"] = perdure_server
    (tmp_path / "agents.toml").write_text(AGENTS, encoding="utf-8")
    text = Part(text="Where are you?")
    request = SendMessageRequest(
        message=Message(message_id="serve-a2a-1", role=Role.ROLE_USER, parts=[text])
    )
    async with runtime(Agent(name="desk", model="main"), model=model) as temporal:
        async with serving(perdure, temporal.task_queue) as client:
            lost = client.send_message(request)
            task = (await anext(lost)).task
        with pytest.raises(A2AClientError):
            await anext(lost)
        async with serving(perdure, temporal.task_queue) as client:
            stream = client.subscribe(SubscribeToTaskRequest(id=task.id))
            first = (await anext(stream)).task
            model.go_on.set()
            rest = [one async for one in stream]
            [again] = [one async for one in client.send_message(request)]

    assert first.status.state == task.status.state == TaskState.TASK_STATE_WORKING
    assert rest[-2].artifact_update.artifact.parts[0].text == "Here I am."
    assert rest[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
    assert (again.task.id, again.task.status.state) == (
        task.id,
        TaskState.TASK_STATE_COMPLETED,
    )
