"""The worker of the matrix: `perdure worker benchmarks.matrix.app:make`, as users run theirs.

Only one number is smaller than in production: a run of a turn ends after `MATRIX_RUN_EVENTS`
events, so that each job continues as new.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from benchmarks.matrix import witness
from benchmarks.matrix.script import CLERK, SCOUT
from perdure import (
    Agent,
    Budget,
    Delegate,
    Price,
    Registry,
    RequestOptions,
    ToolContext,
    limits,
    tool,
)
from perdure.activities.providers import OpenAIChat
from perdure.worker import AgentWorker

MODEL, SERVICE, BUILD, RUN_EVENTS, SLOW, WORDS = (
    "MATRIX_MODEL",
    "MATRIX_SERVICE",
    "MATRIX_BUILD",
    "MATRIX_RUN_EVENTS",
    "MATRIX_SLOW",
    "MATRIX_WORDS",
)
"""The variables with the addresses of the witness, the name of the build, that number, the name of
a tool that is slow, and the number of words that a look finds."""
SCOUT_USD = "0.02"
"""The budget of the delegate, which never stops by itself."""
PAGE_WORDS = 200
"""How much a look finds, so that looking costs money."""
PAUSE_S, SLOW_S = 0.1, 3.0
"""How long a tool takes before its effect, and after it, so that a fault finds it at work."""


async def effect(ctx: ToolContext[None], tool: str, what: str, **arguments: object) -> str:
    """Have an effect, and return its receipt."""
    pause_s = SLOW_S if tool == os.environ.get(SLOW) else PAUSE_S
    fields: Mapping[str, Any] = {
        "job": ctx.turn_id.partition("/")[0],
        "what": what,
        "tool": tool,
        "key": ctx.idempotency_key if tool == "book" else "",
        "attempt": ctx.attempt,
        "arguments": arguments,
    }
    service = os.environ[SERVICE]
    await asyncio.to_thread(witness.post, service, "/notes", {"kind": "begun", **fields})
    await asyncio.sleep(pause_s)
    answer = await asyncio.to_thread(witness.post, service, "/effects", fields)
    await asyncio.sleep(pause_s)
    await asyncio.to_thread(witness.post, service, "/notes", {"kind": "ended", **fields})
    return f"{what}: {answer['receipt']}"


@tool(read_only=True)
async def look(ctx: ToolContext[None], what: str) -> str:
    """Look at something. It may be repeated."""
    return await effect(ctx, "look", what) + " words" * int(os.environ.get(WORDS, PAGE_WORDS))


@tool(idempotent=True)
async def book(ctx: ToolContext[None], what: str) -> str:
    """Book something. The service has it once for each key."""
    return await effect(ctx, "book", what)


@tool(timeout=timedelta(minutes=10))  # a lost worker is noticed by its heartbeats alone
async def charge(ctx: ToolContext[None], what: str) -> str:
    """Charge something. It may not be repeated."""
    return await effect(ctx, "charge", what)


@tool(requires_approval=True)
async def wire(ctx: ToolContext[None], what: str, amount: int) -> str:
    """Wire money. It may not be repeated, and waits for a person."""
    return await effect(ctx, "wire", what, amount=amount)


@tool(read_only=True)
async def glance(ctx: ToolContext[None], what: str) -> str:
    """A tool that only another build has."""
    return await effect(ctx, "glance", what)


def make() -> AgentWorker:
    """The worker that the environment describes."""
    limits.RUN_EVENTS = int(os.environ.get(RUN_EVENTS, limits.RUN_EVENTS))
    build = os.environ.get(BUILD, "1")
    short = RequestOptions(max_output_tokens=200)
    clerk = Agent(
        name=CLERK,
        model=f"stub:{CLERK}",
        instructions=f"Do as told, as of build {build}.",
        tools=[look, book, charge, wire, *([glance] if build != "1" else [])],
        delegates=[Delegate(SCOUT, budget=Budget(usd=SCOUT_USD), inherit=False)],
        max_iterations=30,
        options=short,
        on_loop="ignore",
    )
    scout = Agent(
        name=SCOUT,
        model=f"stub:{SCOUT}",
        description="Looks around.",
        instructions=f"Look, as of build {build}.",
        tools=[look],
        max_iterations="unlimited",
        on_exhausted="finish",
        options=short,
        on_loop="ignore",
    )
    provider = OpenAIChat(base_url=os.environ[MODEL], api_key_env=None, name="stub")
    price = Price(input=witness.PRICE[0], output=witness.PRICE[1])
    return AgentWorker(
        Registry([clerk, scout]), providers={"stub": provider}, prices={"stub:*": price}
    )
