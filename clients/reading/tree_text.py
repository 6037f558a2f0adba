"""The live output of a turn, with the text of the turns below it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from perdure import errors
from perdure.clients.reading.cursors import Cursor
from perdure.clients.reading.events import VERSION, Event
from perdure.clients.reading.feed import Feed
from perdure.clients.reading.live_events import LiveItem, live_items
from perdure.clients.reading.live_text import Piece, TextBegins, TextVoid
from perdure.clients.reading.merged import Merged
from perdure.turn.facts import ChildEnded, ChildScheduled, TurnStarted
from perdure.turn.keys import ChildKey

Find = Callable[[str], Awaitable[Feed]]
"""Finds the feed of a turn."""

_NOT_YET_S = 0.1
_GIVEN_UP_S = 5.0
"""The time to wait for a turn that is in the history of the turn above it, and cannot be read yet.

One that could not be started can never be read.
"""


@dataclass(frozen=True, slots=True)
class TurnText:
    """A piece of the text of a turn, or a mark of that text, where several turns are followed.

    Attributes:
        turn_id: The id of the turn.
        agent: The name of its agent.
        piece: The text, or the mark.
    """

    turn_id: str
    agent: str
    piece: Piece

    def to_json(self) -> dict[str, JsonValue]:
        """Return the piece as JSON values."""
        said: dict[str, JsonValue] = (
            {"v": VERSION, "kind": "text", "text": self.piece}
            if isinstance(self.piece, str)
            else self.piece.to_json()
        )
        return {**said, "turn": self.turn_id, "agent": self.agent}


Item = LiveItem | TurnText


async def with_delegates(
    find: Find,
    feed: Feed,
    after: Cursor | None = None,
    *,
    only_words: bool = False,
    since: datetime | None = None,
) -> AsyncGenerator[Item, None]:
    """Yield what `live_items` yields, and the text of the turns below, until the turn is over.

    The text of a turn below comes before the event of its end.

    Args:
        find: Finds the feeds of the turns below.
        feed: The feed of the turn.
        after: As of `live_items`. Of the turns below, text that was recorded before is left out.
        only_words: As of `live_items`.
        since: As of `live_items`.

    Raises:
        PerdureError: As `live_items` does.
    """
    merged = Merged[Item]()
    below = _Delegates(find, merged, since)
    own = live_items(feed, after, only_words=only_words, since=since, below=below)
    async with contextlib.aclosing(merged.items(own)) as items:
        async for item in items:
            yield item


async def all_text(
    find: Find, feed: Feed, turn_id: str, since: datetime | None = None
) -> AsyncGenerator[TurnText, None]:
    """Yield the text of a turn and of those below it, each piece with its turn.

    Args:
        find: As of `with_delegates`.
        feed: The feed of the turn.
        turn_id: Its id.
        since: As of `live_items`.

    Raises:
        PerdureError: As `live_items` does.
    """
    agent = ""
    items = with_delegates(find, feed, only_words=True, since=since)
    async with contextlib.aclosing(items):
        async for item in items:
            match item:
                case TurnText():
                    yield item
                case str() | TextBegins() | TextVoid():
                    yield TurnText(turn_id, agent, item)
                case Event(fact=TurnStarted(request=request)):
                    agent = request.agent


class _Delegates:
    """The turns below a turn, which are followed while they run."""

    def __init__(self, find: Find, merged: Merged[Item], since: datetime | None) -> None:
        self._find = find
        self._merged = merged
        self._since = since
        self._running: dict[ChildKey, ChildScheduled] = {}

    def see_old(self, event: Event) -> None:
        """Note an event that the consumer has."""
        self._since = event.at
        match event.fact:
            case ChildScheduled(key=key) as child:
                self._running[key] = child
            case ChildEnded(key=key):
                self._running.pop(key, None)

    def begin(self) -> None:
        """Follow the turns that ran after the last old event."""
        for child in self._running.values():
            self._follow(child)

    async def see(self, event: Event) -> None:
        """Follow a turn that begins with a new event; wait for the last text of one that ends."""
        match event.fact:
            case ChildScheduled() as child:
                self._follow(child)
            case ChildEnded(key=key, began=False):
                self._merged.drop(str(key))
            case ChildEnded(key=key):
                await self._merged.over(str(key))

    def _follow(self, child: ChildScheduled) -> None:
        self._merged.add(str(child.key), self._said(child))

    async def _said(self, child: ChildScheduled) -> AsyncGenerator[Item, None]:
        feed = await self._found(child.turn_id)
        items = all_text(self._find, feed, child.turn_id, self._since)
        async with contextlib.aclosing(items):
            async for item in items:
                yield item

    async def _found(self, turn_id: str) -> Feed:
        """Return the feed of a turn that may be about to begin.

        Raises:
            TurnNotFoundError: It has not begun in time.
        """
        given_up_at = asyncio.get_running_loop().time() + _GIVEN_UP_S
        while True:
            try:
                return await self._find(turn_id)
            except errors.TurnNotFoundError:
                if asyncio.get_running_loop().time() > given_up_at:
                    raise
                await asyncio.sleep(_NOT_YET_S)
