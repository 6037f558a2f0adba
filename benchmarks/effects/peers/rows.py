"""The rows of other frameworks, each measured in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import Any

from benchmarks.effects.behaviours import Behaviour
from benchmarks.effects.grading import Graded
from benchmarks.effects.peers import temporal
from benchmarks.effects.peers.jobs import NO_END, SETTINGS, Runs, many
from benchmarks.effects.templates import cases

MODULES = {
    "pydantic-ai": f"{__package__}.on_pydantic_ai",
    "openai-agents": f"{__package__}.on_openai_agents",
    "langgraph": f"{__package__}.on_langgraph",
    "dbos": f"{__package__}.on_dbos",
}
"""The frameworks, and their modules."""
ON_TEMPORAL = ("pydantic-ai", "openai-agents")
ROWS = {
    f"{name}, {setting.name}": (module, setting)
    for name, module in MODULES.items()
    for setting in SETTINGS
}
PACKAGES = (
    "pydantic-ai-slim",
    "openai-agents",
    "temporalio-openai-agents",
    "langchain",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "dbos",
)


ENDLESS = ("pydantic-ai, defaults", "openai-agents, defaults")
"""Rows whose models see no error, so that all behaviours are the same, and one is measured."""


def behaviours_of(row: str) -> tuple[Behaviour, ...]:
    """The behaviours that are measured."""
    return (Behaviour.BLIND,) if row in ENDLESS else (*Behaviour,)


def measured(row: str, behaviours: Sequence[Behaviour], address: str) -> list[Graded]:
    """All episodes of a row with some behaviours, in a process of their own."""
    return asyncio.run(_measured(row, behaviours, address))


async def _measured(row: str, behaviours: Sequence[Behaviour], address: str) -> list[Graded]:
    logging.disable()  # every error of a tool is wanted
    module, setting = ROWS[row]
    async with _opened(importlib.import_module(module), setting.slug, address) as runs:
        return await many(runs, setting, behaviours, [*cases()])


@contextlib.asynccontextmanager
async def _opened(system: Any, variant: str, address: str) -> AsyncIterator[Runs]:
    """What runs jobs in this process: a worker, or a library with a database of its own."""
    if hasattr(system, "worker"):
        async with temporal.opened(system, variant, address) as runs:
            yield runs
        return
    with tempfile.TemporaryDirectory() as folder:
        async with system.opened(f"sqlite:///{folder}/jobs.db", variant) as turns:
            yield lambda name: turns.run(name, name)


def ends(row: Sequence[Graded], behaviours: Sequence[Behaviour]) -> dict[str, list[int]]:
    """How many episodes of each behaviour were stopped, and how many ended with an error."""
    claims = [[one.claim for one in row if one.behaviour is each] for each in behaviours]
    said = {"done", "not done", "unknown", NO_END}
    return {
        "no end": [one.count(NO_END) for one in claims],
        "error": [sum(claim not in said for claim in one) for one in claims],
    }
