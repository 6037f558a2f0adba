"""The job on Perdure with tools whose runs are visible: the tool of `job` may not run again, that
of `job-read-only` may.
"""

from __future__ import annotations

from typing import Any

from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from benchmarks.job import PROMPT
from benchmarks.peers.effects import effect
from benchmarks.with_perdure import JobModel
from perdure import Agent, tool
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn


@tool
def fetch(number: int, size: int) -> str:
    """Fetch so many bytes."""
    return effect(number, size)


@tool(name="fetch", read_only=True)
def fetch_again(number: int, size: int) -> str:
    """Fetch so many bytes; it may run again."""
    return effect(number, size)


def agent(name: str, function: Any) -> Agent[str]:
    return Agent(
        name=name,
        model="job:job",
        instructions=PROMPT,
        tools=[function],
        max_iterations="unlimited",
    )


AGENTS = (agent("job", fetch), agent("job-read-only", fetch_again))


async def connect(address: str) -> Client:
    return await Client.connect(address)


def worker(client: Client, queue: str) -> Worker:
    return AgentWorker(AGENTS, providers={"job": JobModel()}, task_queue=queue).build(client)


def replayer() -> Replayer:
    return Replayer(workflows=[AgentTurn])
