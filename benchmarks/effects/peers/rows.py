"""The rows of other frameworks, each measured in a process of its own."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Sequence

from benchmarks.effects.behaviours import Behaviour
from benchmarks.effects.grading import Graded
from benchmarks.effects.peers.jobs import NO_END, SETTINGS, many
from benchmarks.effects.templates import cases

MODULES = {
    "pydantic-ai": "on_pydantic_ai",
    "openai-agents": "on_openai_agents",
    "langgraph": "on_langgraph",
    "dbos": "on_dbos",
}
"""The frameworks, and their modules."""
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
    name, setting = ROWS[row]
    module = importlib.import_module(f"{__package__}.{name}")
    async with module.opened(setting, address) as runs:
        return await many(runs, setting, behaviours, [*cases()])


def ends(row: Sequence[Graded], behaviours: Sequence[Behaviour]) -> dict[str, list[int]]:
    """How many episodes of each behaviour were stopped, and how many ended with an error."""
    claims = [[one.claim for one in row if one.behaviour is each] for each in behaviours]
    said = {"done", "not done", "unknown", NO_END}
    return {
        "no end": [one.count(NO_END) for one in claims],
        "error": [sum(claim not in said for claim in one) for one in claims],
    }
