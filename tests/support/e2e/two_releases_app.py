"""The agents that workers of two releases run side by side: `python -m perdure worker
two_releases_app:make`, with this folder in PYTHONPATH.

The previous release loads this file too, so it uses only what that release offers, and nothing of
`tests`. Its worker caches no workflows and takes no activities eagerly, so that each task of each
turn goes to whichever worker polls next. Every result depends only on the call, so that it is the
same on every worker.
"""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.plugin import SimplePlugin
from temporalio.worker import Worker, WorkerConfig

import perdure
import perdure.workflows
from perdure import Agent, ToolContext, tool
from perdure.activities.providers import OpenAIChat
from perdure.worker import AgentWorker

AGENT, SELLER = "porter", "seller"
HELD_S = 600.0
"""Longer than the test: what is held ends by its cancel."""


def note(ctx: ToolContext[Any], what: str) -> None:
    """Record the call durably before it takes effect."""
    line = {
        "what": f"{what} for {ctx.turn_id}",
        "attempt": ctx.attempt,
        "key": ctx.idempotency_key,
        "pid": os.getpid(),
    }
    with Path(os.environ["E2E_JOURNAL"]).open("a", encoding="utf-8") as journal:
        journal.write(json.dumps(line) + "\n")


def duration_s(ctx: ToolContext[Any], what: str) -> float:
    """The duration of a call; in a turn that is meant to block, until the cancel."""
    return HELD_S if ctx.labels.get("held") == what else 0.05


@tool(read_only=True)
async def look(ctx: ToolContext[None], what: str) -> str:
    """Look at something."""
    note(ctx, what)
    await asyncio.sleep(duration_s(ctx, what))
    return f"saw {what} for {ctx.turn_id}"


@tool(idempotent=True)
def count(ctx: ToolContext[None], what: str, numbers: list[int]) -> int:
    """Add numbers in a thread."""
    note(ctx, what)
    until = time.monotonic() + duration_s(ctx, what)
    while time.monotonic() < until:
        time.sleep(0.01)
    return sum(numbers)


@tool
async def charge(ctx: ToolContext[None], what: str) -> dict[str, object]:
    """Do what may not be done twice."""
    note(ctx, what)
    await asyncio.sleep(0.05)
    return {"charged": what, "turn": ctx.turn_id, "at": float("nan")}


@tool
def fail(ctx: ToolContext[None], what: str) -> str:
    """Fail."""
    note(ctx, what)
    raise ValueError(f"no luck with {what}")


@tool(requires_approval=True)
async def sell(ctx: ToolContext[None], what: str) -> str:
    """Do what somebody has to approve."""
    note(ctx, what)
    return f"sold {what}"


class Hopping(SimplePlugin):
    """A worker with a name that appears in history, and without caches."""

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        config = super().configure_worker(config)
        config["identity"] = os.environ["E2E_NAME"]
        config["max_cached_workflows"] = 0
        config["disable_eager_activity_execution"] = True
        return config


class HoppingWorker(AgentWorker):
    """The worker that the release builds, with these settings."""

    def build(self, client: Client, **options: Any) -> Worker:
        return super().build(
            client, **{**options, "plugins": [*options.get("plugins", ()), Hopping("hopping")]}
        )


def make() -> AgentWorker:
    """The worker that the environment describes."""
    print(f"code: {perdure.__file__} {perdure.workflows.__file__}", flush=True)
    provider = OpenAIChat(base_url=os.environ["E2E_PROVIDER"], api_key_env=None, name="stub")
    agent = Agent(
        name=AGENT,
        model="stub:porter",
        instructions="Do as told.",
        tools=[look, count, charge, fail],
        max_iterations=12,
    )
    seller = Agent(name=SELLER, model="stub:seller", instructions="Do as told.", tools=[sell])
    return HoppingWorker([agent, seller], providers={"stub": provider})
