"""The recorded events of a turn and its live output, in one order."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from datetime import datetime
from typing import Protocol

from perdure import errors
from perdure.clients.reading.cursors import Cursor
from perdure.clients.reading.events import CaughtUp, Event
from perdure.clients.reading.feed import Feed
from perdure.clients.reading.live_output import Ear, Heard, HeartbeatDetails
from perdure.clients.reading.live_text import Piece, Speech
from perdure.clients.reading.tool_progress import RunningTools, ToolProgress

LiveItem = Event | Piece | ToolProgress | CaughtUp

_EVERY_S = 0.5
_SOON_S = (0.03, 0.06, *(0.1 for _ in range(20)))
"""The pauses before the first polls of a model call, whose first heartbeat names the way to its
worker. A provider takes longer to say its first word."""
_TOOLS_EVERY_S = 1.0


class Below(Protocol):
    """Follows the turns below a turn."""

    def see_old(self, event: Event) -> None:
        """Note an event that the consumer has."""

    def begin(self) -> None:
        """Note that the events after this are new."""

    def catch_up(self) -> None:
        """Note that the events after this are of now."""

    async def see(self, event: Event) -> None:
        """Note a new event, before the consumer gets it."""


async def live_items(
    feed: Feed,
    after: Cursor | None = None,
    *,
    only_words: bool = False,
    since: datetime | None = None,
    below: Below | None = None,
) -> AsyncGenerator[LiveItem, None]:
    """Yield the events of a turn and its live output, until the turn is over.

    A text comes before the event that records it.

    Args:
        feed: The feed of the turn.
        after: The position of a cursor, from `Feed.place`; None for the beginning.
        only_words: Whether to leave out the progress of tools and `CaughtUp`, which need additional
            requests to the server.
        since: Leaves out what was recorded until then.
        below: Follows the turns below.

    Raises:
        TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        InvalidRequestError: The cursor is beyond the end of the history.
    """
    async with contextlib.AsyncExitStack() as held:
        await held.enter_async_context(feed.joined())  # it reads while its end is asked for
        end = None if only_words else await feed.end()
        if end and after and after.run == end.run and after.event > end.event:
            raise errors.InvalidRequestError(
                "the cursor is beyond the end of the turn's history, so it is not one of its events"
            )
        listener = _Listener(feed.ear, tools=not only_words)
        news = _News(feed, after, since, below)
        watching = feed.ticking(until=end, pause_s=lambda: listener.pause_s)
        async for event in await held.enter_async_context(contextlib.aclosing(watching)):
            if event is None:
                for item in await listener.listen():
                    yield item
                continue
            is_new = await news.see(event)
            for item in listener.see(event):  # the listener sees the old events, too
                if is_new:
                    yield item


class _News:
    """Tells the events that are new from those that the consumer has."""

    def __init__(
        self, feed: Feed, after: Cursor | None, since: datetime | None, below: Below | None
    ) -> None:
        self._feed = feed
        self._after = after
        self._since = since
        self._below = below
        self._has_begun = after is None and since is None

    async def see(self, event: Event | CaughtUp) -> bool:
        """Return whether an event is new."""
        if not self._has_begun and self._is_first(event):
            self._has_begun = True
            if self._below is not None:
                self._below.begin()
        if self._below is not None:
            await self._tell(self._below, event)
        return self._has_begun

    async def _tell(self, below: Below, event: Event | CaughtUp) -> None:
        if isinstance(event, CaughtUp):
            below.catch_up()
        elif self._has_begun:
            await below.see(event)
        else:
            below.see_old(event)

    def _is_first(self, event: Event | CaughtUp) -> bool:
        if isinstance(event, CaughtUp):
            return True
        if self._since is not None:
            return event.at > self._since
        return self._feed.is_after(event, self._after)


class _Listener:
    """Tracks which live output to expect, from the recorded events."""

    def __init__(self, ear: Ear, *, tools: bool) -> None:
        self._ear = ear
        self._speech = Speech()
        self._tools = RunningTools()
        self._hears_tools = tools
        self._polls = 0

    @property
    def pause_s(self) -> float | None:
        """The seconds until the next poll of live output; None if none is expected."""
        if self._speech.key is not None:
            is_new = self._polls < len(_SOON_S) and not self._ear.has_heard_of(self._speech.key)
            return _SOON_S[self._polls] if is_new else _EVERY_S
        return _TOOLS_EVERY_S if self._hears_tools and self._tools.is_on else None

    def see(self, event: Event | CaughtUp) -> Iterator[LiveItem]:
        """Yield the consequences of an event for the live output, and the event itself."""
        if isinstance(event, Event):
            self._polls = 0
            self._tools.see(event)
            yield from self._speech.see(event.fact)
        yield event

    async def listen(self) -> list[LiveItem]:
        """Return what follows from the live output now."""
        within_s = (self.pause_s or _EVERY_S) / 2
        self._polls += 1
        output = await self._ear.listen(within_s)
        return [item for heard in output for item in self._hear(heard)]

    def _hear(self, heard: Heard | HeartbeatDetails) -> Iterator[LiveItem]:
        if isinstance(heard, Heard):
            yield from self._speech.hear(heard)
        elif self._hears_tools:
            yield from self._tools.hear(heard)
