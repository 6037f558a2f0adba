"""The journal of the demo: what the librarian's worker was really asked to do, outside of Temporal.

Every model call and tool call writes a line before it begins, so that the demo can kill the worker
in the middle and show what ran again.
"""

from __future__ import annotations

import asyncio
import functools
import os
from dataclasses import replace
from pathlib import Path

from temporalio import activity

from perdure.activities.provider import Heard, ModelRequest, Provider, listen
from perdure.activities.providers import defaults
from perdure.agents.agent import Agent
from perdure.agents.tools import Tool, Toolbox
from perdure.values.answers import ModelAnswer
from perdure.worker.agent_worker import AgentWorker


class Journal:
    """A file outside of Temporal that records what was really done, one line each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, line: str) -> None:
        """Append a line and flush it to disk."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())


class _JournaledModel:
    """A provider that writes a line and waits before each call, so that it can be killed."""

    def __init__(self, inner: Provider, journal: Journal) -> None:
        self._inner = inner
        self._journal = journal

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        await self._begin()
        return await self._inner.complete(request)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        await self._begin()
        return await listen(self._inner, request, heard)

    async def close(self) -> None:
        await self._inner.close()

    async def _begin(self) -> None:
        self._journal.write(activity.info().activity_id)
        await asyncio.sleep(1.0)


def journaled(worker: AgentWorker, agent: Agent, journal: Journal) -> AgentWorker:
    """Return the worker with an agent whose model calls and tool calls write to the journal."""
    providers: dict[str, Provider] = {**defaults(), **worker.providers}
    boxes = [
        replace(box, tools=[_with_journal(item, journal) for item in box.tools])
        for box in agent.toolboxes
        if isinstance(box, Toolbox)
    ]
    return replace(
        worker,
        agents=replace(agent, toolboxes=boxes),
        providers={
            name: _JournaledModel(provider, journal) for name, provider in providers.items()
        },
    )


def _with_journal(item: Tool, journal: Journal) -> Tool:
    @functools.wraps(item.function)
    def function(**arguments: object) -> object:
        journal.write(activity.info().activity_id)
        return item.function(**arguments)

    return Tool(function, name=item.name, timeout=item.timeout, read_only=item.read_only)
