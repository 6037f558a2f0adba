"""The live output of a turn, with the text of the turns below it.

The text of a turn below is told as `withheld` has it: an answer that is checked, or has a type,
when it is recorded as passed, and nothing of the turns that worked for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
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
from perdure.turn import withheld
from perdure.turn.facts import ChildEnded, ChildScheduled, ModelAnswered, TurnEnded
from perdure.turn.keys import ChildKey, ModelKey
from perdure.turn.state import TurnState

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
    only_running: bool = False,
) -> AsyncGenerator[Item, None]:
    """Yield what `live_items` yields, and the text of the turns below, until the turn is over.

    The text of a turn below comes before the event of its end.

    Args:
        find: Finds the feeds of the turns below.
        feed: The feed of the turn.
        after: As of `live_items`. Of the turns below, text that was recorded before is left out.
        only_words: As of `live_items`.
        only_running: Whether to leave out the turns below that are over when it begins, or with
            `after` at that position, and those that are not live. Their histories are not read. It
            needs `CaughtUp`.

    Raises:
        PerdureError: As `live_items` does.
    """
    delegates = _Delegates(find, only_running=only_running)
    async with contextlib.aclosing(delegates.items(feed, after, only_words)) as items:
        async for item in items:
            yield item


async def all_text(
    find: Find,
    feed: Feed,
    turn_id: str,
    since: datetime | None = None,
    checks: Checks | None = None,
) -> AsyncGenerator[TurnText, None]:
    """Yield the text of a turn and of those below it, each piece with its turn.

    Args:
        find: As of `with_delegates`.
        feed: The feed of the turn.
        turn_id: Its id.
        since: Leaves out what was recorded until then.
        checks: The checks that text has to pass, in a turn below another; None to tell all of it.

    Raises:
        PerdureError: As `live_items` does.
    """
    delegates = _Delegates(find, since, checks)
    async with contextlib.aclosing(delegates.items(feed, None, only_words=True)) as items:
        async for item in items:
            match item:
                case TurnText():
                    yield item
                case str() | TextBegins() | TextVoid():
                    yield TurnText(turn_id, delegates.agent, item)


class Checks:
    """What the checks of a turn below another let pass of its text."""

    def __init__(self) -> None:
        self._state = TurnState()
        self._untold: ModelKey | None = None

    @property
    def hold(self) -> bool:
        """Whether text has to wait until it is recorded as passed."""
        return not withheld.may_stream(self._state)

    def see(self, event: Event) -> None:
        """Take in the next event of the turn, before what follows from it."""
        self._state = event.onto(self._state)
        if isinstance(event.fact, ModelAnswered):
            self._untold = None if event.text else event.fact.key

    async def passed(self, items: AsyncGenerator[LiveItem, None]) -> AsyncGenerator[LiveItem, None]:
        """Yield the live output of the turn, without text that has not passed."""
        async with contextlib.aclosing(items):
            async for item in items:
                if isinstance(item, Event) and self.hold:
                    for piece in self._recorded(item):
                        yield piece
                if isinstance(item, Event) or not self.hold:
                    yield item

    def _recorded(self, event: Event) -> Iterator[Piece]:
        """Yield the text that an event records as passed."""
        match event.fact:
            case ModelAnswered(key=key) if event.text:
                yield from (TextBegins(key.step, key.attempt), event.text)
            case TurnEnded() if event.text and self._untold is not None:
                yield from (TextBegins(self._untold.step, self._untold.attempt), event.text)


class _Delegates:
    """The turns below a turn, which are followed while they run.

    Attributes:
        agent: The name of the agent of the turn itself.
    """

    def __init__(
        self,
        find: Find,
        since: datetime | None = None,
        checks: Checks | None = None,
        *,
        only_running: bool = False,
    ) -> None:
        """Follow nothing yet. The arguments are those of `all_text` and `with_delegates`."""
        self.agent = ""
        self._find = find
        self._merged = Merged[Item]()
        self._since = since
        self._checks = checks
        self._only_live = self._waits = only_running
        self._running: dict[ChildKey, ChildScheduled] = {}

    async def items(
        self, feed: Feed, after: Cursor | None, only_words: bool
    ) -> AsyncGenerator[Item, None]:
        """Yield the live output of the turn with this feed, and the text of those below."""
        own = live_items(feed, after, only_words=only_words, since=self._since, below=self)
        passed = own if self._checks is None else self._checks.passed(own)
        async with contextlib.aclosing(self._merged.items(passed)) as items:
            async for item in items:
                yield item

    def see_old(self, event: Event) -> None:
        """Note an event that the consumer has."""
        self._note(event)
        self._since = event.at
        match event.fact:
            case ChildScheduled(key=key) as child:
                self._running[key] = child
            case ChildEnded(key=key):
                self._running.pop(key, None)

    def _note(self, event: Event) -> None:
        self.agent = event.agent
        if self._checks is not None:
            self._checks.see(event)

    def begin(self) -> None:
        """Follow the turns that ran after the last old event."""
        self._waits = False
        for child in self._running.values():
            self._follow(child)

    def catch_up(self) -> None:
        """Follow the turns that run, if that has waited until now."""
        if self._waits:
            self.begin()

    async def see(self, event: Event) -> None:
        """Follow a turn that begins with a new event; wait for the last text of one that ends."""
        if self._waits:
            self.see_old(event)
            return
        self._note(event)
        match event.fact:
            case ChildScheduled() as child:
                self._follow(child)
            case ChildEnded(key=key, began=False):
                self._merged.drop(str(key))
            case ChildEnded(key=key):
                await self._merged.over(str(key))

    def _follow(self, child: ChildScheduled) -> None:
        if self._checks is not None and self._checks.hold:
            return  # the answer is made of what it says
        if self._only_live and not child.request.live:
            return
        self._merged.add(str(child.key), self._said(child))

    async def _said(self, child: ChildScheduled) -> AsyncGenerator[Item, None]:
        feed = await self._found(child.turn_id)
        items = all_text(self._find, feed, child.turn_id, self._since, Checks())
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
