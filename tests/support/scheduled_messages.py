"""The turns that read the messages of a schedule."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from perdure import errors
from perdure.clients import Session

from .spending import SOON_S


async def turn_with(session: Session, message_id: str, within_s: float = SOON_S) -> Any:
    """The turn that was given a message, once the session exists and has got it."""
    async with asyncio.timeout(within_s):
        while True:
            with contextlib.suppress(errors.SessionNotFoundError):
                return await session.turn_of(message_id)
            await asyncio.sleep(0.05)
