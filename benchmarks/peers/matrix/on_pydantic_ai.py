"""The job on pydantic-ai with `TemporalDurability`.

- `defaults`: as in the first example of its documentation; a tool sends no key.
- `best`: tools and model calls may miss heartbeats for 10 s, tools send the id of the call as a
  key, and `charge` has one attempt. For that it runs in the workflow (its metadata say `False`) and
  makes an activity itself, so that a lost attempt is an answer instead of the end of the run.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.worker import Worker
from temporalio.workflow import ActivityConfig

with workflow.unsafe.imports_passed_through():
    from pydantic_ai import Agent, RunContext, Tool
    from pydantic_ai.durable_exec.temporal import (
        PydanticAIPlugin,
        PydanticAIWorkflow,
        TemporalDurability,
    )
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from benchmarks.peers.matrix.tools import CLERK, MODEL, PROMPT, UNKNOWN, effect

SOON, LONG = timedelta(seconds=10), timedelta(seconds=60)
BEST = ActivityConfig(start_to_close_timeout=LONG, heartbeat_timeout=SOON)


def _job() -> str:
    return str(activity.info().workflow_id)


async def look(what: str) -> str:
    """Look at something."""
    return await asyncio.to_thread(effect, _job(), "look", what)


async def book(what: str) -> str:
    """Book something."""
    return await asyncio.to_thread(effect, _job(), "book", what)


async def charge(what: str) -> str:
    """Charge something."""
    return await asyncio.to_thread(effect, _job(), "charge", what)


async def book_by_key(ctx: RunContext[None], what: str) -> str:
    """Book something."""
    return await asyncio.to_thread(effect, _job(), "book", what, ctx.tool_call_id or "")


@activity.defn
async def charge_once(what: str) -> str:
    """The activity of `charge_or_unknown`."""
    work = asyncio.create_task(asyncio.to_thread(effect, _job(), "charge", what))
    while not work.done():
        activity.heartbeat()
        await asyncio.wait([work], timeout=1)
    return work.result()


async def charge_or_unknown(what: str) -> str:
    """Charge something."""
    try:
        return await workflow.execute_activity(
            charge_once,
            what,
            start_to_close_timeout=LONG,
            heartbeat_timeout=SOON,
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
    except ActivityError:
        return UNKNOWN


def model() -> OpenAIChatModel:
    provider = OpenAIProvider(base_url=os.environ[MODEL], api_key="none")
    return OpenAIChatModel(CLERK, provider=provider)


AGENT = Agent(
    model(),
    name="clerk_defaults",
    instructions=PROMPT,
    tools=[look, book, charge],
    capabilities=[TemporalDurability()],
)
BEST_AGENT = Agent(
    model(),
    name="clerk_best",
    instructions=PROMPT,
    tools=[
        look,
        Tool(book_by_key, name="book"),
        Tool(charge_or_unknown, name="charge", metadata={"temporal": False}),
    ],
    capabilities=[TemporalDurability(activity_config=BEST)],
)


@workflow.defn(name="defaults")
class Defaults(PydanticAIWorkflow):
    """The job with defaults."""

    __pydantic_ai_agents__ = [AGENT]

    @workflow.run
    async def run(self, task: str) -> str:
        return str((await AGENT.run(task)).output)


@workflow.defn(name="best")
class Best(PydanticAIWorkflow):
    """The job with the best settings."""

    __pydantic_ai_agents__ = [BEST_AGENT]

    @workflow.run
    async def run(self, task: str) -> str:
        return str((await BEST_AGENT.run(task)).output)


async def connect(address: str, variant: str) -> Client:
    return await Client.connect(address, plugins=[PydanticAIPlugin()])


def worker(client: Client, queue: str, variant: str) -> Worker:
    return Worker(client, task_queue=queue, workflows=[Defaults, Best], activities=[charge_once])
