"""The agent of `benchmarks.peers.interruptions` on pydantic-ai with `TemporalDurability`, as in the
first example of its documentation.

The model is an instance: with openai 3.54, a name alone fails in the workflow sandbox, where the
model's module is imported again.
"""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import (
    PydanticAIPlugin,
    PydanticAIWorkflow,
    TemporalDurability,
)
from pydantic_ai.models.openai import OpenAIResponsesModel
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from benchmarks.peers.weather import INSTRUCTIONS, weather

AGENT = Agent(
    OpenAIResponsesModel("gpt-5"),
    name="weather",
    instructions=INSTRUCTIONS,
    tools=[weather()],
    capabilities=[TemporalDurability()],
)


@workflow.defn
class Weather(PydanticAIWorkflow):
    """A run of the agent."""

    __pydantic_ai_agents__ = [AGENT]

    @workflow.run
    async def run(self, task: str) -> str:
        return str((await AGENT.run(task)).output)


async def connect(address: str) -> Client:
    return await Client.connect(address, plugins=[PydanticAIPlugin()])


def worker(client: Client, queue: str) -> Worker:
    return Worker(client, task_queue=queue, workflows=[Weather])


def replayer() -> Replayer:
    return Replayer(workflows=[Weather], plugins=[PydanticAIPlugin()])
