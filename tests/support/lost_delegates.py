"""What the parent of a lost delegate finds of it."""

import asyncio
import contextlib

from perdure import errors
from perdure.clients import AgentClient, Turn

from .spending import SOON_S


async def found(client: AgentClient, turn_id: str) -> Turn:
    """A turn whose start a parent has requested."""
    async with asyncio.timeout(SOON_S):
        while True:
            with contextlib.suppress(errors.TurnNotFoundError):
                await client.turn(turn_id).first_run()
                return client.turn(turn_id)
            await asyncio.sleep(0.05)
