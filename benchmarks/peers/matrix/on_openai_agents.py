"""The job on the OpenAI Agents SDK with Temporal's plugin.

- `defaults`: as in the example of its documentation. The timeout of a tool, which has no default,
  is that of model calls, 60 s: shorter ones repeat tools on a busy machine.
- `best`: tools and model calls may miss heartbeats for 10 s, tools send the id of their activity as
  a key, and `charge` has one attempt. It is a tool of the workflow that makes the activity itself,
  so that a lost attempt is an answer instead of the end of the run.

Tracing is off: it would send to a service that is not reached here.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool
    from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
    from temporalio.openai_agents.workflow import activity_as_tool

    from benchmarks.peers.matrix.tools import CLERK, MODEL, PROMPT, UNKNOWN, effect

SOON = timedelta(seconds=10)
TIMEOUT = {"start_to_close_timeout": timedelta(seconds=60)}
BEST: dict[str, Any] = {"start_to_close_timeout": timedelta(seconds=60), "heartbeat_timeout": SOON}


async def _beating(tool: str, what: str, key: str = "") -> str:
    """Have an effect, with heartbeats."""
    job = str(activity.info().workflow_id)
    work = asyncio.create_task(asyncio.to_thread(effect, job, tool, what, key))
    while not work.done():
        activity.heartbeat()
        await asyncio.wait([work], timeout=1)
    return work.result()


@activity.defn
async def look(what: str) -> str:
    """Look at something."""
    return await _beating("look", what)


@activity.defn
async def book(what: str) -> str:
    """Book something."""
    return await _beating("book", what)


@activity.defn(name="book_by_key")
async def book_by_key(what: str) -> str:
    """Book something."""
    info = activity.info()
    return await _beating("book", what, f"{info.workflow_run_id}/{info.activity_id}")


@activity.defn
async def charge(what: str) -> str:
    """Charge something."""
    return await _beating("charge", what)


@function_tool(name_override="charge")
async def charge_or_unknown(what: str) -> str:
    """Charge something."""
    try:
        once = RetryPolicy(maximum_attempts=1)
        return await workflow.execute_activity(charge, what, retry_policy=once, **BEST)
    except ActivityError:
        return UNKNOWN


def _named(tool: Any, name: str) -> Any:
    tool.name = name
    return tool


async def answer(task: str, tools: list[Any]) -> str:
    """Run the agent."""
    agent = Agent(name=CLERK, model=CLERK, instructions=PROMPT, tools=tools)
    config = RunConfig(tracing_disabled=True)
    return str((await Runner.run(agent, task, run_config=config)).final_output)


@workflow.defn(name="defaults")
class Defaults:
    """The job with defaults."""

    @workflow.run
    async def run(self, task: str) -> str:
        return await answer(task, [activity_as_tool(fn, **TIMEOUT) for fn in (look, book, charge)])


@workflow.defn(name="best")
class Best:
    """The job with the best settings."""

    @workflow.run
    async def run(self, task: str) -> str:
        booking = _named(activity_as_tool(book_by_key, **BEST), "book")
        return await answer(task, [activity_as_tool(look, **BEST), booking, charge_or_unknown])


async def connect(address: str, variant: str) -> Client:
    provider = OpenAIProvider(base_url=os.environ[MODEL], api_key="none", use_responses=False)
    best = ModelActivityParameters(**BEST)
    parameters = best if variant == "best" else ModelActivityParameters()
    plugin = OpenAIAgentsPlugin(model_provider=provider, model_params=parameters)
    return await Client.connect(address, plugins=[plugin])


def worker(client: Client, queue: str, variant: str) -> Worker:
    return Worker(
        client,
        task_queue=queue,
        workflows=[Defaults, Best],
        activities=[look, book, book_by_key, charge],
    )
