"""The recorded events of a turn and its live output, in one order."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator

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


async def live_items(
    feed: Feed, after: Cursor | None = None, *, only_words: bool = False
) -> AsyncGenerator[LiveItem, None]:
    """Yield the events of a turn and its live output, until the turn is over.

    A text comes before the event that records it.

    Args:
        feed: The feed of the turn.
        after: The position of a cursor, from `Feed.place`; None for the beginning.
        only_words: Whether to leave out the progress of tools and `CaughtUp`, which need additional
            requests to the server.

    Raises:
        TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        InvalidRequestError: The cursor is beyond the end of the history.
    """
    end = None if only_words else await feed.end()
    if end and after and after.run == end.run and after.event > end.event:
        raise errors.InvalidRequestError(
            "the cursor is beyond the end of the turn's history, so it is not one of its events"
        )
    listener, is_new = _Listener(feed.ear, tools=not only_words), after is None
    watching = feed.ticking(until=end, pause_s=lambda: listener.pause_s)
    async with contextlib.aclosing(watching) as events:
        async for event in events:
            if event is None:
                for item in await listener.listen():
                    yield item
                continue
            is_new = is_new or isinstance(event, CaughtUp) or feed.is_after(event, after)
            for item in listener.see(event):  # the listener sees the old events, too
                if is_new:
                    yield item


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
