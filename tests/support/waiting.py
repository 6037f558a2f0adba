"""What the memo and the list show of a turn that waits."""

import asyncio
from typing import Any

from perdure.clients import AgentClient, Turn
from perdure.values.states import State

from .spending import SOON_S


async def listed(client: AgentClient, turn: Turn, wanted: State, **filters: Any) -> None:
    """Wait until a turn is listed in this state; Temporal's list lags."""
    async with asyncio.timeout(SOON_S):
        while True:
            async for entry in client.turns(**filters):
                if (entry.id, entry.state) == (turn.id, wanted):
                    return
            await asyncio.sleep(0.1)


async def memo_of(client: AgentClient, turn: Turn) -> dict[str, Any]:
    return dict(await (await client.temporal.get_workflow_handle(turn.id).describe()).memo())
