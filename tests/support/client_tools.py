"""Agents that take tools of their clients, and the tools."""

import asyncio
from typing import Any

from perdure import Agent, ClientTool, tool
from perdure.clients import ClientCall, Turn

from .spending import SOON_S

LOCATE = ClientTool(
    name="locate",
    description="Where the user is.",
    parameters={"type": "object", "properties": {"precise": {"type": "boolean"}}},
)
CONFIRM = ClientTool(name="confirm", description="Have the user confirm.")
LOOKED: list[str] = []


@tool
def look(at: str) -> str:
    """Look at something."""
    LOOKED.append(at)
    return f"saw {at}"


def guide(**fields: Any) -> Agent:
    """An agent that takes tools of its clients."""
    given = {"name": "guide", "model": "scripted:guide", "tools": [look], "takes_tools": True}
    return Agent(**{**given, **fields})


async def until_calls(turn: Turn[Any], number: int = 1) -> tuple[ClientCall, ...]:
    """The calls of a turn that wait for its client, once there are so many."""
    async with asyncio.timeout(SOON_S):
        while True:
            waiting = await turn.client_calls()
            if len(waiting) >= number:
                return waiting
            await asyncio.sleep(0.05)
