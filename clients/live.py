"""What is recorded of a turn, and what is said in it meanwhile, in one order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

from perdure import errors
from perdure.clients.ear import Heard, Noted
from perdure.clients.events import CaughtUp, Event
from perdure.clients.feed import Feed
from perdure.clients.speech import Said, Speech
from perdure.clients.tool_progress import RunningTools, ToolProgress

Told = Event | Said | ToolProgress | CaughtUp

_EVERY_S = 0.5
_TOOLS_EVERY_S = 1.0


async def told(
    feed: Feed, after: int = 0, *, only_words: bool = False
) -> AsyncGenerator[Told, None]:
    """What is recorded of a turn and what is said in it, to its end.

    A text comes before the event that records it.

    Args:
        feed: The turn's.
        after: What `Feed.place` says of a cursor.
        only_words: Whether neither the progress of tools nor `CaughtUp` is wanted: both cost looks
            at the server.

    Raises:
        TurnNotFoundError: Temporal does not have the turn, or not any more.
        InvalidRequestError: The cursor is beyond the end of the history.
    """
    length = None if only_words else await feed.length()
    if length is not None and after > length:
        raise errors.InvalidRequestError(
            "the cursor is beyond the end of the turn's history, so it is not one of its events"
        )
    listener, events = _Listener(tools=not only_words), feed.watch(length=length)
    coming = asyncio.create_task(_next(events))
    try:
        while True:
            await asyncio.wait({coming}, timeout=listener.pause_s)
            if not coming.done():
                for heard in await feed.ear.listen():
                    for one in listener.hear(heard):
                        yield one
                continue
            event = coming.result()
            if event is None:
                return
            for one in listener.see(event) if isinstance(event, Event) else (event,):
                if not isinstance(event, Event) or feed.place(event.cursor) > after:
                    yield one
            coming = asyncio.create_task(_next(events))
    finally:
        coming.cancel()
        await asyncio.wait({coming})
        await events.aclose()


async def _next(events: AsyncIterator[Event | CaughtUp]) -> Event | CaughtUp | None:
    return await anext(events, None)


class _Listener:
    """Knows what may be heard, from what is recorded."""

    def __init__(self, *, tools: bool) -> None:
        self._speech = Speech()
        self._tools = RunningTools()
        self._hears_tools = tools

    @property
    def pause_s(self) -> float | None:
        """How long to wait before listening again; None where there is nothing to hear."""
        if self._speech.is_on:
            return _EVERY_S
        return _TOOLS_EVERY_S if self._hears_tools and self._tools.is_on else None

    def see(self, event: Event) -> Iterator[Told]:
        """What follows from an event, and the event."""
        self._tools.see(event)
        yield from self._speech.see(event.fact)
        yield event

    def hear(self, heard: Heard | Noted) -> Iterator[Told]:
        """What is new in it."""
        if isinstance(heard, Heard):
            yield from self._speech.hear(heard)
        elif self._hears_tools:
            yield from self._tools.hear(heard)
