"""The job on Perdure, with its defaults: `charge` is started at most once, since nothing says that
it may be repeated. In the variant `careless`, a negative control, it says so and sends no key.
"""

from __future__ import annotations

import asyncio
import os

from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.peers.matrix.tools import CLERK, MODEL, PROMPT, effect
from perdure import Agent, ToolContext, tool
from perdure.providers import OpenAIChat
from perdure.worker import AgentWorker


@tool(read_only=True)
async def look(ctx: ToolContext[None], what: str) -> str:
    """Look at something."""
    return await asyncio.to_thread(effect, ctx.turn_id, "look", what)


@tool(idempotent=True)
async def book(ctx: ToolContext[None], what: str) -> str:
    """Book something."""
    return await asyncio.to_thread(effect, ctx.turn_id, "book", what, ctx.idempotency_key)


@tool
async def charge(ctx: ToolContext[None], what: str) -> str:
    """Charge something."""
    return await asyncio.to_thread(effect, ctx.turn_id, "charge", what)


@tool(name="charge", idempotent=True)
async def charge_carelessly(ctx: ToolContext[None], what: str) -> str:
    """Charge something."""
    return await asyncio.to_thread(effect, ctx.turn_id, "charge", what)


def make() -> AgentWorker:
    """The worker for `perdure worker`."""
    return made("defaults")


def made(variant: str) -> AgentWorker:
    """The worker of a variant."""
    provider = OpenAIChat(base_url=os.environ[MODEL], api_key_env=None, name="stub")
    charging = charge_carelessly if variant == "careless" else charge
    agent = Agent(
        name=CLERK, model=f"stub:{CLERK}", instructions=PROMPT, tools=[look, book, charging]
    )
    queue = os.environ.get("PERDURE_TASK_QUEUE", CLERK)
    return AgentWorker(agent, providers={"stub": provider}, task_queue=queue)


async def connect(address: str, variant: str) -> Client:
    return await Client.connect(address)


def worker(client: Client, queue: str, variant: str) -> Worker:
    return made(variant).build(client)
