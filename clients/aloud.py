"""A turn that tells what its model and its tools say on the way to its events."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from perdure.clients.events import CaughtUp, Event
from perdure.clients.speech import Said
from perdure.clients.tool_progress import ToolProgress
from perdure.clients.turn import Turn


class Aloud:
    """A turn to be followed by its events. `say` is called with what is said before each of them.

    Attributes:
        id: The turn's id.
    """

    def __init__(self, turn: Turn[Any], say: Callable[[Said | ToolProgress], None]) -> None:
        self.id = turn.id
        self._turn = turn
        self._say = say

    async def events(self) -> AsyncIterator[Event]:
        """The turn's events, to its end."""
        async with contextlib.aclosing(self._turn.live()) as telling:
            async for one in telling:
                if isinstance(one, Event):
                    yield one
                elif not isinstance(one, CaughtUp):
                    self._say(one)
