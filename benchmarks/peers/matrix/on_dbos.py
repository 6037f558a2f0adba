"""The job on DBOS, with pydantic-ai's `DBOSDurability`, on SQLite.

- `defaults`: tools are steps, and send no key.
- `best`: tools send the id of the call as a key.

In both, the process that takes over has the executor id of the one that was killed, which is the
default, and continues its workflows when it starts.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dbos import DBOS, DBOSConfig, SetWorkflowID
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from benchmarks.peers.matrix.tools import CLERK, MODEL, PROMPT, effect


@DBOS.step()
async def look(what: str) -> str:
    """Look at something."""
    return await asyncio.to_thread(effect, str(DBOS.workflow_id), "look", what)


@DBOS.step()
async def book(what: str) -> str:
    """Book something."""
    return await asyncio.to_thread(effect, str(DBOS.workflow_id), "book", what)


@DBOS.step()
async def charge(what: str) -> str:
    """Charge something."""
    return await asyncio.to_thread(effect, str(DBOS.workflow_id), "charge", what)


@DBOS.step()
async def book_by_key(ctx: RunContext[None], what: str) -> str:
    """Book something."""
    key = ctx.tool_call_id or ""
    return await asyncio.to_thread(effect, str(DBOS.workflow_id), "book", what, key)


def model() -> OpenAIChatModel:
    provider = OpenAIProvider(base_url=os.environ[MODEL], api_key="none")
    return OpenAIChatModel(CLERK, provider=provider)


AGENT = Agent(
    model(),
    name="clerk_defaults",
    instructions=PROMPT,
    tools=[look, book, charge],
    capabilities=[DBOSDurability()],
)
BEST_AGENT = Agent(
    model(),
    name="clerk_best",
    instructions=PROMPT,
    tools=[look, Tool(book_by_key, name="book"), charge],
    capabilities=[DBOSDurability()],
)


@DBOS.workflow()
async def defaults(task: str) -> str:
    """The job with defaults."""
    return str((await AGENT.run(task)).output)


@DBOS.workflow()
async def best(task: str) -> str:
    """The job with keys."""
    return str((await BEST_AGENT.run(task)).output)


class Turns:
    """Workflows of one process."""

    def __init__(self, variant: str) -> None:
        self._workflow = best if variant == "best" else defaults

    async def run(self, turn_id: str, task: str) -> str:
        with SetWorkflowID(turn_id):
            return str(await self._workflow(task))

    async def again(self, turn_id: str) -> str:
        """Launching has continued it. This waits for it."""
        return str(await (await DBOS.retrieve_workflow_async(turn_id)).get_result())

    async def recover(self) -> list[str]:
        """Return nothing: launching has continued all."""
        return []


@asynccontextmanager
async def opened(url: str, variant: str) -> AsyncIterator[Turns]:
    """Workflows that are stored at `url`."""
    DBOS(config=DBOSConfig(name="clerk", system_database_url=url, log_level="WARNING"))
    DBOS.launch()
    yield Turns(variant)
    DBOS.destroy()
