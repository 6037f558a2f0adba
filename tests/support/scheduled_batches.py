"""The batches that a schedule has started."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from perdure import errors
from perdure.clients import AgentClient, Batch

from .scheduling import SOON_S


async def existing(client: AgentClient, batch_id: str) -> Batch[Any]:
    """A batch, once the server has started it."""
    async with asyncio.timeout(SOON_S):
        while True:
            with contextlib.suppress(errors.BatchNotFoundError):
                await client.batch(batch_id).status()
                return client.batch(batch_id)
            await asyncio.sleep(0.05)
