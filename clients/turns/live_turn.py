"""A turn that also reports live text and tool progress while its events are iterated."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from perdure.clients.reading.events import CaughtUp, Event
from perdure.clients.reading.live_text import Piece
from perdure.clients.reading.tool_progress import ToolProgress
from perdure.clients.turns.handle import Turn


class Aloud:
    """A turn whose events can be followed. `say` gets the text and progress between the events.

    Attributes:
        id: The turn's id.
    """

    def __init__(self, turn: Turn[Any], say: Callable[[Piece | ToolProgress], None]) -> None:
        self.id = turn.id
        self._turn = turn
        self._say = say

    async def events(self) -> AsyncIterator[Event]:
        """Yield the turn's events until it is over."""
        async with contextlib.aclosing(self._turn.live()) as telling:
            async for item in telling:
                if isinstance(item, Event):
                    yield item
                elif not isinstance(item, CaughtUp):
                    self._say(item)
