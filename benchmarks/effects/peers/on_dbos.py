"""The jobs on DBOS, with pydantic-ai's `DBOSDurability`, on SQLite.

- `defaults`: tools are steps, which are not repeated; an error of one ends the run.
- Other settings: the tool that makes effects is a function of the workflow around a step with
  retries, and its last error is what the model reads.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from dbos import DBOS, DBOSConfig, SetWorkflowID
from dbos import error as errors
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.durable_exec.dbos import DBOSDurability

from benchmarks.effects.peers import jobs
from benchmarks.effects.peers.jobs import (
    ATTEMPTS,
    FIRST_PAUSE_S,
    WRITE_TOOL,
    Job,
    failure,
    job_of,
    may_repeat,
)
from benchmarks.effects.peers.pydantic_ai_model import JobModel


def _job() -> Job:
    return job_of(str(DBOS.workflow_id))


@DBOS.step()
async def write(records: str) -> str:
    """Make the effects."""
    return await _job().write(records)


@DBOS.step()
async def find(records: str) -> str:
    """Read back which effects were made."""
    return await _job().find(records)


@DBOS.step(
    retries_allowed=True,
    max_attempts=ATTEMPTS,
    interval_seconds=FIRST_PAUSE_S,
    should_retry=lambda error: may_repeat(error),
)
async def write_by_key(records: str, key: str) -> str:
    """Make the effects, with a key that is the same for all attempts."""
    return await _job().write(records, key)


async def told(ctx: RunContext[None], records: str) -> str:
    """Make the effects, and return an error as a text."""
    try:
        if _job().setting.sends_key:
            return str(await write_by_key(records, f"{DBOS.workflow_id}/{ctx.tool_call_id}"))
        return str(await write(records))
    except errors.DBOSMaxStepRetriesExceeded as error:
        last: BaseException = error.errors[-1]
    except Exception as error:  # noqa: BLE001 - the model reads it
        last = error
    return failure(type(last).__name__, str(last))


DEFAULTS = Agent(JobModel(), name="defaults", tools=[write, find], capabilities=[DBOSDurability()])
TOLD = Agent(
    JobModel(),
    name="told",
    tools=[Tool(told, name=WRITE_TOOL), find],
    capabilities=[DBOSDurability()],
)


@DBOS.workflow()
async def answer(name: str) -> str:
    """A run of the agent with the setting of its job."""
    agent = DEFAULTS if job_of(name).setting is jobs.DEFAULTS else TOLD
    return str((await agent.run(name)).output)


class Turns:
    """Workflows of one process."""

    async def run(self, turn_id: str, task: str) -> str:
        with SetWorkflowID(turn_id):
            return str(await answer(task))

    async def again(self, turn_id: str) -> str:
        """Launching has continued it. This waits for it."""
        return str(await (await DBOS.retrieve_workflow_async(turn_id)).get_result())

    async def recover(self) -> list[str]:
        """Return nothing: launching has continued all."""
        return []


@contextlib.asynccontextmanager
async def opened(url: str, variant: str) -> AsyncIterator[Turns]:
    """Workflows that are stored at `url`."""
    DBOS(config=DBOSConfig(name="effects", system_database_url=url, log_level="CRITICAL"))
    await asyncio.to_thread(DBOS.launch)
    yield Turns()
    DBOS.destroy()
