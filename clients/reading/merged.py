"""One iterator over the items of several, in the order in which they come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

from perdure.errors import PerdureError

V = TypeVar("V")

_AHEAD = 100
"""The most items that wait for the consumer; then their sources wait."""


class Merged(Generic[V]):
    """The items of one iterator, and of others that are added while it is iterated.

    It is over with the first one, which ends by itself only when it has waited for the others.
    """

    def __init__(self) -> None:
        self._items: asyncio.Queue[V] = asyncio.Queue(_AHEAD)
        self._others: dict[str, asyncio.Task[None]] = {}

    def add(self, name: str, items: AsyncGenerator[V, None]) -> None:
        """Add an iterator. One that fails is over: it says only what comes beside the first."""
        self._others[name] = asyncio.create_task(self._add(items))

    async def over(self, name: str) -> None:
        """Wait until an iterator that was added is over, if there is one of this name."""
        other = self._others.pop(name, None)
        if other is not None:
            await asyncio.wait({other})

    def drop(self, name: str) -> None:
        """Yield nothing more of an iterator that was added, if there is one of this name."""
        other = self._others.get(name)
        if other is not None:
            other.cancel()

    async def items(self, first: AsyncGenerator[V, None]) -> AsyncGenerator[V, None]:
        """Yield the items of the first iterator, and of those that are added to it.

        Raises:
            Exception: What the first one raises.
        """
        pumping = asyncio.create_task(self._pump(first))
        coming = asyncio.create_task(self._items.get())
        try:
            while True:
                await asyncio.wait({coming, pumping}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    pumping.result()
                    return
                yield coming.result()
                coming = asyncio.create_task(self._items.get())
        finally:
            tasks = {coming, pumping, *self._others.values()}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _add(self, items: AsyncGenerator[V, None]) -> None:
        with contextlib.suppress(PerdureError):
            await self._pump(items)

    async def _pump(self, items: AsyncGenerator[V, None]) -> None:
        async with contextlib.aclosing(items):
            async for item in items:
                await self._items.put(item)
