"""A turn that also reports live text and tool progress while its events are iterated."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from perdure.clients.reading.events import CaughtUp, Event
from perdure.clients.reading.live_text import Piece
from perdure.clients.reading.tool_progress import ToolProgress
from perdure.clients.reading.tree_text import TurnText
from perdure.clients.turns.handle import Turn


class Aloud:
    """A turn whose events can be followed. `say` gets the text and progress between the events.

    `say_below`, if it is given, gets the text of the turns below that run.

    Attributes:
        id: The turn's id.
    """

    def __init__(
        self,
        turn: Turn[Any],
        say: Callable[[Piece | ToolProgress], None],
        say_below: Callable[[TurnText], None] | None = None,
    ) -> None:
        self.id = turn.id
        self._turn = turn
        self._say = say
        self._say_below = say_below

    async def events(self) -> AsyncIterator[Event]:
        """Yield the turn's events until it is over."""
        live = self._turn.live(delegates="running" if self._say_below else False)
        async with contextlib.aclosing(live) as telling:
            async for item in telling:
                match item:
                    case Event():
                        yield item
                    case CaughtUp():
                        pass
                    case TurnText():
                        if self._say_below is not None:
                            self._say_below(item)
                    case _:
                        self._say(item)
