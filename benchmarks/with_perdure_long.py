"""The worker of the long turns: the job on Perdure, in a turn that takes many runs.

A task is the number of steps, the bytes of a result, and the numbers of the model calls that take
`SLOW_S` seconds ("-" for none).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from benchmarks.job import PROMPT
from benchmarks.with_perdure import fetch
from perdure import Agent, AssistantMessage, Message, Text, ToolCall, UserMessage
from perdure.activities.provider import ModelRequest
from perdure.values.answers import ModelAnswer
from perdure.values.profiles import ModelProfile
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn

WINDOW = 64_000
"""Tokens of the small model: requests of at most some 150 KB."""
SLOW_S = 4.0


class CountingModel:
    """Counts on from the last call that it is sent, however much of the transcript is left out."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        opening = request.messages[0]
        assert isinstance(opening, UserMessage)
        steps, size, slow = opening.text.split()
        asked = _asked(request.messages)
        print(f"asked {time.time()}", flush=True)
        if str(asked) in slow.split(","):
            await asyncio.sleep(SLOW_S)
        if asked == int(steps):
            said = AssistantMessage(parts=(Text(text="done"),))
            return ModelAnswer(message=said, stop=StopReason.END, model="job")
        arguments = json.dumps({"number": asked, "size": int(size)})
        call = ToolCall(id=f"call_{asked}", name="fetch", arguments=arguments)
        said = AssistantMessage(parts=(call,))
        return ModelAnswer(message=said, stop=StopReason.TOOL_CALLS, model="job")

    async def close(self) -> None:
        pass


def _asked(messages: Sequence[Message]) -> int:
    """Return the number of answers that the turn has, by the number in the last call."""
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            return int(json.loads(message.calls[0].arguments)["number"]) + 1
    return 0


def _agent(name: str) -> Agent:
    return Agent(
        name=name,
        model=f"job:{name}",
        instructions=PROMPT,
        tools=[fetch],
        max_iterations="unlimited",
        on_loop="ignore",
    )


def make() -> AgentWorker:
    """For `perdure worker`: an agent whose model takes any request, and one with a window."""
    return AgentWorker(
        [_agent("boundless"), _agent("windowed")],
        providers={"job": CountingModel()},
        profiles={"job:windowed": ModelProfile(window=WINDOW)},
    )


async def connect(address: str) -> Client:
    return await Client.connect(address)


def worker(client: Client, queue: str) -> Worker:
    app = make()
    return AgentWorker(
        app.agents, providers=app.providers, profiles=app.profiles, task_queue=queue
    ).build(client)


def replayer() -> Replayer:
    return Replayer(workflows=[AgentTurn])
