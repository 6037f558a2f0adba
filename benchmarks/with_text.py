"""A model that says the time, piece by piece."""

from __future__ import annotations

import asyncio
import time

from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from perdure import Agent, AssistantMessage, Text
from perdure.activities.provider import Heard, ModelRequest
from perdure.temporal import connect as temporal
from perdure.values.answers import ModelAnswer
from perdure.values.messages import UserMessage
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn

FIRST_S = 0.2


class TimeModel:
    """Says the time in nanoseconds at intervals. The task is the number of pieces, and theirs."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return await self.stream(request, lambda _: None)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        opening = request.messages[0]
        assert isinstance(opening, UserMessage)
        count, every_s = opening.text.split()
        pieces = []
        await asyncio.sleep(FIRST_S)
        for _ in range(int(count)):
            await asyncio.sleep(float(every_s))
            pieces.append(f"t{time.time_ns()} ")
            heard(pieces[-1])
        return ModelAnswer(
            message=AssistantMessage(parts=(Text(text="".join(pieces)),)), model="text"
        )

    async def close(self) -> None:
        pass


AGENT = Agent(name="clock", model="text:time")


async def connect(address: str) -> Client:
    return await temporal.connect(address)


def worker(client: Client, queue: str) -> Worker:
    app = AgentWorker(AGENT, providers={"text": TimeModel()}, task_queue=queue)
    return app.build(client)


def replayer() -> Replayer:
    return Replayer(workflows=[AgentTurn])
