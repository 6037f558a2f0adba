"""The agent of `benchmarks.peers.interruptions` on the OpenAI Agents SDK with Temporal's plugin, as
in the example of its documentation.
"""

from __future__ import annotations

from datetime import timedelta

from agents import Agent, RunConfig, Runner
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.openai_agents import OpenAIAgentsPlugin
from temporalio.openai_agents.workflow import activity_as_tool
from temporalio.worker import Replayer, Worker

from benchmarks.peers.weather import INSTRUCTIONS, weather

TOOL = activity.defn(weather())


@workflow.defn
class Weather:
    """A run of the agent; tracing is off, because it would send data to a service."""

    @workflow.run
    async def run(self, task: str) -> str:
        tools = [activity_as_tool(TOOL, start_to_close_timeout=timedelta(seconds=10))]
        agent = Agent(name="weather", instructions=INSTRUCTIONS, model="gpt-5", tools=tools)
        return str(
            (
                await Runner.run(agent, task, run_config=RunConfig(tracing_disabled=True))
            ).final_output
        )


def plugin() -> OpenAIAgentsPlugin:
    return OpenAIAgentsPlugin()


async def connect(address: str) -> Client:
    return await Client.connect(address, plugins=[plugin()])


def worker(client: Client, queue: str) -> Worker:
    return Worker(client, task_queue=queue, workflows=[Weather], activities=[TOOL])


def replayer() -> Replayer:
    return Replayer(workflows=[Weather], plugins=[plugin()])
