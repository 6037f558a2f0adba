"""The agent of `benchmarks.peers.interruptions` on Perdure.

Its tool is read-only, so it may run again after a crash.
"""

from __future__ import annotations

from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from benchmarks.peers.weather import INSTRUCTIONS, weather
from perdure import Agent, tool
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn

AGENT = Agent(
    name="weather",
    model="openai:gpt-5",
    instructions=INSTRUCTIONS,
    tools=[tool(read_only=True)(weather())],
)


async def connect(address: str) -> Client:
    return await Client.connect(address)


def worker(client: Client, queue: str) -> Worker:
    return AgentWorker(AGENT, task_queue=queue).build(client)


def replayer() -> Replayer:
    return Replayer(workflows=[AgentTurn])
