"""The job on DBOS: pydantic-ai's agent with its capability `DBOSDurability`, run in a DBOS
workflow.

- Model calls become steps; a tool with effects is made one by `@DBOS.step()`, as both
  documentations show.
- The database is PostgreSQL, which its documentation names for production, or SQLite, which is the
  default.
- The variant `plain` is the loop by hand, of DBOS steps alone: what DBOS itself costs.
- `executor_id` is set where a test runs two processes on one database, as its documentation asks
  for.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability

from benchmarks.job import PROMPT, next_call
from benchmarks.peers.effects import effect
from benchmarks.peers.with_pydantic_ai import NO_LIMIT, JobModel


@DBOS.step()
async def fetch(number: int, size: int) -> str:
    """Fetch so many bytes."""
    return effect(number, size)


AGENT = Agent(
    JobModel(), name="job", system_prompt=PROMPT, tools=[fetch], capabilities=[DBOSDurability()]
)


@DBOS.workflow()
async def job(task: str) -> str:
    """The job."""
    return str((await AGENT.run(task, usage_limits=NO_LIMIT)).output)


@DBOS.step()
async def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    asked = sum(message["role"] == "assistant" for message in messages)
    arguments = await next_call(str(messages[1]["content"]), asked)
    if arguments is None:
        return {"role": "assistant", "content": "done"}
    return {
        "role": "assistant",
        "calls": [{"id": f"call_{asked}", "name": "fetch", "arguments": arguments}],
    }


@DBOS.workflow()
async def plain(task: str) -> str:
    """The same, written by hand."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": PROMPT},
        {"role": "user", "content": task},
    ]
    while True:
        messages.append(answer := await ask(messages))
        if not answer.get("calls"):
            return str(answer["content"])
        messages += [
            {
                "role": "tool",
                "call_id": call["id"],
                "content": await fetch(**json.loads(call["arguments"])),
            }
            for call in answer["calls"]
        ]


class Turns:
    """Workflows of one process."""

    def __init__(self, workflow: Any) -> None:
        self._workflow = workflow

    async def run(self, turn_id: str, task: str) -> object:
        with SetWorkflowID(turn_id):
            return await self._workflow(task)

    async def again(self, turn_id: str) -> object:
        """Launching resumes everything that was running. This waits for it."""
        return await (await DBOS.retrieve_workflow_async(turn_id)).get_result()


@asynccontextmanager
async def opened(url: str, variant: str) -> AsyncIterator[Turns]:
    """An agent whose workflows are stored at `url`."""
    config = DBOSConfig(name="job", system_database_url=url, log_level="WARNING")
    if executor := os.environ.get("JOB_EXECUTOR"):
        config["executor_id"] = executor
    DBOS(config=config)
    DBOS.launch()
    yield Turns(plain if variant == "plain" else job)
    DBOS.destroy()
