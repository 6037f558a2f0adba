"""Helpers that wait until the server shows a change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure.clients import Turn
from perdure.events import WaitBegan

T = TypeVar("T")


async def until(look: Callable[[], Awaitable[T | None]], what: str) -> T:
    """Poll until a value is there."""
    deadline = time.monotonic() + 60
    while not (found := await look()):
        assert time.monotonic() < deadline, f"not within 60 s: {what}"
        await asyncio.sleep(0.05)
    return found


async def begins_to_wait(turn: Turn) -> None:
    """Wait until a turn waits for a person."""
    async with asyncio.timeout(60):
        async for event in turn.events():
            if isinstance(event.fact, WaitBegan):
                return
    raise AssertionError(f"{turn.id} is over, and did not wait")
