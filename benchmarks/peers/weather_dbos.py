"""The agent of `benchmarks.peers.interruptions` on DBOS: pydantic-ai's agent with `DBOSDurability`,
on SQLite.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dbos import DBOS, DBOSConfig
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability

from benchmarks.peers import with_dbos
from benchmarks.peers.weather import INSTRUCTIONS, weather

AGENT = Agent(
    "openai:gpt-5",
    name="weather",
    instructions=INSTRUCTIONS,
    tools=[DBOS.step()(weather())],
    capabilities=[DBOSDurability()],
)


@DBOS.workflow()
async def ask(task: str) -> str:
    """A run of the agent."""
    return str((await AGENT.run(task)).output)


class Turns(with_dbos.Turns):
    """Workflows; one that failed is forked from the step that failed."""

    def __init__(self) -> None:
        super().__init__(ask)
        self._failed: set[str] = set()

    async def run(self, turn_id: str, task: str) -> object:
        try:
            return await super().run(turn_id, task)
        except Exception:
            self._failed.add(turn_id)
            raise

    async def again(self, turn_id: str) -> object:
        if turn_id not in self._failed:
            return await super().again(turn_id)
        steps = await DBOS.list_workflow_steps_async(turn_id)
        failed = next(step["function_id"] for step in steps if step["error"] is not None)
        return await (await DBOS.fork_workflow_async(turn_id, failed)).get_result()


@asynccontextmanager
async def opened(url: str, variant: str) -> AsyncIterator[Turns]:
    """An agent whose workflows are stored at `url`."""
    DBOS(config=DBOSConfig(name="weather", system_database_url=url, log_level="WARNING"))
    DBOS.launch()
    yield Turns()
    DBOS.destroy()
