"""The jobs on pydantic-ai with `TemporalDurability`.

- `defaults`: as in the first example of its documentation: tools are activities, and an error of
  one is tried again by Temporal without end.
- Other settings: the tool that makes effects runs in the workflow (its metadata say `False`) and
  makes its activity itself, so that the attempts end, and the model reads the error.
"""

from __future__ import annotations

from pydantic_ai import Agent, Tool
from pydantic_ai.durable_exec.temporal import (
    PydanticAIPlugin,
    PydanticAIWorkflow,
    TemporalDurability,
)
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.effects.peers import jobs, temporal
from benchmarks.effects.peers.jobs import WRITE_TOOL, job_of
from benchmarks.effects.peers.pydantic_ai_model import JobModel


async def write(records: str) -> str:
    """Make the effects."""
    return await temporal.job().write(records)


async def find(records: str) -> str:
    """Read back which effects were made."""
    return await temporal.job().find(records)


DEFAULTS = Agent(
    JobModel(), name="defaults", tools=[write, find], capabilities=[TemporalDurability()]
)
TOLD = Agent(
    JobModel(),
    name="told",
    tools=[Tool(temporal.written, name=WRITE_TOOL, metadata={"temporal": False}), find],
    capabilities=[TemporalDurability()],
)


@workflow.defn(sandboxed=False)
class Answer(PydanticAIWorkflow):
    """A run of the agent with the setting of its job."""

    __pydantic_ai_agents__ = [DEFAULTS, TOLD]

    @workflow.run
    async def run(self, name: str) -> str:
        agent = DEFAULTS if job_of(name).setting is jobs.DEFAULTS else TOLD
        return str((await agent.run(name)).output)


async def connect(address: str, variant: str) -> Client:
    """A client for workers."""
    return await Client.connect(address, plugins=[PydanticAIPlugin()])


def worker(client: Client, queue: str, variant: str) -> Worker:
    """A worker for all settings."""
    return temporal.worker_of(client, queue, [temporal.write_once], Answer)
