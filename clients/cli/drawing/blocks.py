"""What a list command prints while more is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

T = TypeVar("T")

_GATHER_S = 0.1
"""How long values that arrive one by one are gathered, so that a table has few blocks."""


async def blocks(values: AsyncIterator[T]) -> AsyncGenerator[list[T], None]:
    """Yield values in blocks, in their order, soon after each of them arrives.

    Reading goes on while a block is used.

    Raises:
        Exception: What `values` raises, after all values before it.
    """
    pending: list[T] = []
    arrived = asyncio.Event()

    async def read() -> None:
        async for value in values:
            pending.append(value)
            arrived.set()

    reading = asyncio.create_task(read())
    reading.add_done_callback(lambda _: arrived.set())
    try:
        is_over = False
        while not is_over:
            await arrived.wait()
            arrived.clear()
            await asyncio.wait({reading}, timeout=_GATHER_S)
            is_over = reading.done()
            block, pending[:] = pending[:], []
            if block:
                yield block
        await reading
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
