"""Turns that wait for an event, and end when it comes."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from perdure import Agent, AssistantMessage, Text, ToolCall
from perdure.activities.provider import ModelRequest
from perdure.temporal import connect as temporal
from perdure.toolboxes import waiting
from perdure.values.answers import ModelAnswer
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn

PROMPT = "p" * 2_000


class WaitingModel:
    """Waits once, then answers."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if len(request.messages) > 1:
            return _answer(Text(text="done"), StopReason.END)
        call = ToolCall(id="call_1", name="wait_for", arguments='{"event": "go", "note": "a word"}')
        return _answer(call, StopReason.TOOL_CALLS)

    async def close(self) -> None:
        pass


def _answer(part: Text | ToolCall, stop: StopReason) -> ModelAnswer:
    return ModelAnswer(message=AssistantMessage(parts=(part,)), stop=stop, model="job")


AGENT = Agent(
    name="waiter",
    model="job:job",
    instructions=PROMPT,
    toolboxes=[waiting(longest=timedelta(days=30))],
)


async def connect(address: str) -> Client:
    return await temporal.connect(address)


def worker(client: Client, queue: str) -> Worker:
    return AgentWorker(AGENT, providers={"job": WaitingModel()}, task_queue=queue).build(client)


def replayer() -> Replayer:
    return Replayer(workflows=[AgentTurn])
