"""The case of `benchmarks.trees` on pydantic-ai: a run limited to five requests and 3,000 tokens, a
delegate that would make twenty requests.

`.venv-peers/bin/python -m benchmarks.peers.trees`, after `make -C benchmarks peers` has set it up.
The delegate is called from a tool, with or without `ctx.usage`, as in the documentation's example
of agent delegation; the limits are those of the run. On Temporal, by `TemporalDurability`, tools
run in activities by default; a tool may be run in the workflow instead. In one variant the delegate
gets the limits, too. The model keeps its own bill, next to which the table has the count of the
run. Activities are retried by Temporal's default, without a limit.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

from pydantic_ai import Agent, RunContext, Tool, UsageLimits
from pydantic_ai.durable_exec.temporal import (
    PydanticAIPlugin,
    PydanticAIWorkflow,
    TemporalDurability,
)
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage, RunUsage
from temporalio import workflow
from temporalio.client import Client
from temporalio.exceptions import ActivityError
from temporalio.worker import Worker

from perdure.worker.dev.server import DevServer

WOULD_MAKE = 20
LIMITS = UsageLimits(request_limit=5, total_tokens_limit=3_000)
TOKENS = RequestUsage(input_tokens=400, output_tokens=20)
LONGEST = timedelta(seconds=10)
BILLS: list[RequestUsage] = []


class Billing(Model):
    """Makes this number of tool calls, then answers, and keeps the bill."""

    def __init__(self, tool: str, times: int, **arguments: Any) -> None:
        super().__init__()
        self._tool, self._times, self._arguments = tool, times, arguments

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> ModelResponse:
        BILLS.append(TOKENS)
        asked = sum(isinstance(message, ModelResponse) for message in messages)
        part = (
            ToolCallPart(self._tool, self._arguments) if asked < self._times else TextPart("done")
        )
        return ModelResponse(parts=[part], model_name="billing", usage=TOKENS)

    @property
    def model_name(self) -> str:
        return "billing"

    @property
    def system(self) -> str:
        return "billing"


def look() -> str:
    """Look again."""
    return "found"


async def with_usage(ctx: RunContext[None], task: str) -> str:
    """Give a task to the worker."""
    return str((await WORKER.run(task, usage=ctx.usage)).output)


async def without_usage(ctx: RunContext[None], task: str) -> str:
    """Give a task to the worker."""
    return str((await WORKER.run(task)).output)


async def with_limits(ctx: RunContext[None], task: str) -> str:
    """Give a task to the worker, and the limits too."""
    return str((await WORKER.run(task, usage=ctx.usage, usage_limits=LIMITS)).output)


WORKER = Agent(
    Billing("look", WOULD_MAKE - 1),
    name="worker",
    tools=[look],
    capabilities=[TemporalDurability()],
)
TOOLS = (with_usage, without_usage, with_limits)
PLAIN = {
    tool.__name__: Agent(Billing(tool.__name__, 1, task="work"), tools=[tool]) for tool in TOOLS
}
IN_WORKFLOW = {"temporal": False}
DURABLE = {
    f"{tool.__name__}, in {place}": Agent(
        Billing(tool.__name__, 1, task="work"),
        name=f"{tool.__name__}-{place}",
        tools=[Tool(tool, metadata=metadata)],
        capabilities=[TemporalDurability()],
    )
    for tool in TOOLS
    for place, metadata in (("activity", {}), ("workflow", IN_WORKFLOW))
}


async def counted(agent: Agent) -> str:
    """The end of a run, and its count."""
    usage = RunUsage()
    try:
        ended = str((await agent.run("go", usage=usage, usage_limits=LIMITS)).output)
    except UsageLimitExceeded as error:
        ended = str(error).partition(". ")[0]
    except ActivityError:
        ended = (
            "the tool failed at the limit and was tried again, billed each time, until"
            f" {LONGEST.total_seconds():g} s were over"
        )
    return f"{usage.requests:>7} {usage.total_tokens:>7}  {ended}"


@workflow.defn(sandboxed=False)
class Run(PydanticAIWorkflow):
    """A run on Temporal."""

    __pydantic_ai_agents__ = [*DURABLE.values(), WORKER]

    @workflow.run
    async def run(self, name: str) -> str:
        return await counted(DURABLE[name])


async def main() -> None:
    """Print the table."""
    logging.getLogger("temporalio.activity").setLevel(logging.CRITICAL)  # each failed attempt
    print(f"{'pydantic-ai':<34} {'billed':>7} {'tokens':>7} {'counted':>7} {'tokens':>7}  end")
    for name, agent in PLAIN.items():
        _print(name, await counted(agent))
    async with DevServer(folder=None, port=0, ui=False) as server:
        client = await Client.connect(server.address.address, plugins=[PydanticAIPlugin()])
        async with Worker(client, task_queue="trees", workflows=[Run]):
            for name in DURABLE:
                _print(
                    name,
                    await client.execute_workflow(
                        Run.run, name, id=name, task_queue="trees", execution_timeout=LONGEST
                    ),
                )


def _print(name: str, ended: str) -> None:
    print(f"{name:<34} {len(BILLS):>7} {sum(bill.total_tokens for bill in BILLS):>7} {ended}")
    BILLS.clear()


if __name__ == "__main__":
    asyncio.run(main())
