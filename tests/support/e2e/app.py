"""The agent of the crash tests.

Its worker is a separate process: `python -m perdure worker tests.support.e2e.app:make`.

Every tool records its call in the journal, a file that outlives the process, before it does
anything else.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from perdure import Agent, Tool, ToolContext, tool
from perdure.activities.providers import OpenAIChat
from perdure.toolboxes import waiting
from perdure.worker import AgentWorker

AGENT = "clerk"
JAMMED_S = 60.0


def note(ctx: ToolContext[Any], what: str) -> None:
    """Record the call durably: the line is there even if the process is killed right after it."""
    line = {"what": what, "attempt": ctx.attempt, "key": ctx.idempotency_key, "pid": os.getpid()}
    with Path(os.environ["E2E_JOURNAL"]).open("a", encoding="utf-8") as journal:
        journal.write(json.dumps(line) + "\n")
        journal.flush()
        os.fsync(journal.fileno())


@tool(idempotent=True, timeout=timedelta(seconds=90))
async def fetch(ctx: ToolContext[None], what: str, first_s: float = 0) -> str:
    """May run again.

    Its first attempt takes `first_s` seconds, and blocks the tool loop in a turn labelled `jam`.
    """
    note(ctx, what)
    if ctx.attempt == 1 and "jam" in ctx.labels:
        time.sleep(JAMMED_S)  # noqa: ASYNC251 - it is a tool that behaves badly
    await asyncio.sleep(first_s if ctx.attempt == 1 else 0)
    return f"{what} by attempt {ctx.attempt}"


@tool
async def charge(ctx: ToolContext[None], what: str, takes_s: float = 0) -> str:
    """May not run again. Takes `takes_s` seconds, or as long as the turn's label says."""
    note(ctx, what)
    await asyncio.sleep(float(ctx.labels.get("takes_s", takes_s)))
    return f"{what} by attempt {ctx.attempt}"


def find_in_journal(ctx: ToolContext[None], what: str) -> str | None:
    """Read the journal, which is all that the service knows."""
    lines = Path(os.environ["E2E_JOURNAL"]).read_text(encoding="utf-8").splitlines()
    bought = [json.loads(line) for line in lines]
    return f"bought {what}" if any(line["what"] == what for line in bought) else None


def find_given_back(ctx: ToolContext[None], what: str) -> str | None:
    """Read the journal for what was taken back."""
    return find_in_journal(ctx, f"back {what}")


@tool(effect=["what"], verify=find_given_back)
async def give_back(ctx: ToolContext[None], what: str) -> str:
    """Takes back what was bought. Its answer takes as long as the turn's label says."""
    note(ctx, f"back {what}")
    await asyncio.sleep(float(ctx.labels.get("takes_s", 0)))
    return f"gave {what} back"


@tool(effect=["what"], verify=find_in_journal, undo=give_back)
async def buy(ctx: ToolContext[None], what: str, first_s: float = 0) -> str:
    """May not happen twice, and can be looked up. Its answer takes `first_s` seconds."""
    note(ctx, what)
    await asyncio.sleep(first_s)
    return f"{what} by attempt {ctx.attempt}"


@tool(effect=["what"])
async def post(ctx: ToolContext[None], what: str, first_s: float = 0) -> str:
    """May not happen twice, and nobody can look it up. Its answer takes `first_s` seconds."""
    note(ctx, what)
    await asyncio.sleep(first_s)
    return f"{what} by attempt {ctx.attempt}"


@tool(idempotent=True)
async def die(ctx: ToolContext[None], what: str) -> str:
    """Takes its worker along, as a crash in a C library does."""
    note(ctx, what)
    os._exit(7)


@tool
def die_once(ctx: ToolContext[None], what: str) -> str:
    """Takes its worker along, and may not run again."""
    note(ctx, what)
    os._exit(7)


@tool
def leave(ctx: ToolContext[None], what: str) -> str:
    """Asks the interpreter to exit."""
    note(ctx, what)
    sys.exit(3)


@tool(idempotent=True)
async def keep(ctx: ToolContext[None], what: str, first_s: float = 0) -> str:
    """Writes into the shared state, and may run again. Its first attempt takes `first_s` s."""
    ctx.change_shared_state({what: ctx.attempt})
    note(ctx, what)
    await asyncio.sleep(first_s if ctx.attempt == 1 else 0)
    return f"{what}: {ctx.shared_state}"


@tool
async def keep_once(ctx: ToolContext[None], what: str, first_s: float = 0) -> str:
    """Writes into the shared state, and may not run again. Takes `first_s` seconds."""
    ctx.change_shared_state({what: ctx.attempt})
    note(ctx, what)
    await asyncio.sleep(first_s)
    return what


TOOLS: tuple[Tool, ...] = (fetch, charge, buy, post, die, die_once, leave)


def make(tools: Iterable[Tool] = TOOLS, **fields: Any) -> AgentWorker:
    """The worker that the environment describes, and an agent with these tools and fields."""
    provider = OpenAIChat(base_url=os.environ["E2E_PROVIDER"], api_key_env=None, name="stub")
    agent = Agent(
        name=AGENT,
        model="stub:clerk",
        instructions="Do as told.",
        tools=tools,
        **fields,
    )
    return AgentWorker(agent, providers={"stub": provider})


def make_taking() -> AgentWorker:
    """The same worker; its agent takes tools of its clients."""
    return make(takes_tools=True)


def make_keeping() -> AgentWorker:
    """The same worker; the tools of its agent write into the shared state."""
    return make((keep, keep_once))


def make_waiting() -> AgentWorker:
    """The same worker; its agent waits, beside other calls."""
    return make(toolboxes=[waiting()], parallel_tools=True)


def make_pausing() -> AgentWorker:
    """The same worker; its agent pauses at its limit of one iteration."""
    return make(on_exhausted="pause", max_iterations=1)
