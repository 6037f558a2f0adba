"""What happens in a turn, event by event, and whether it needs a person now."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from perdure.clients.reading.events import CaughtUp, Event
from perdure.clients.reading.feed import Feed
from perdure.clients.reading.live_events import LiveItem, live_items
from perdure.clients.reading.live_text import Piece, TextBegins, TextVoid
from perdure.clients.reading.tree_text import Find, TurnText, with_delegates
from perdure.turn.fold import fold
from perdure.turn.state import TurnState


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a turn.

    Attributes:
        event: The event; None for the moment after the events that history had at the beginning.
        state: The state of the turn after the event.
        is_new: Whether this is that moment or later. The waits of the past are in history, too, so
            an older state says nothing about now.
        needs_person: Whether the turn, or a turn below it, waits for a person now.
    """

    event: Event | None
    state: TurnState
    is_new: bool
    needs_person: bool


async def changes(feed: Feed) -> AsyncGenerator[Change, None]:
    """Yield the changes of a turn from its beginning, until it is over.

    Raises:
        TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        PayloadDecodeError: This process lacks the codec or the key of the turn.
    """
    async with (
        feed.joined(),  # it reads while its end is asked for
        contextlib.aclosing(feed.watch(until=await feed.end())) as watching,
        contextlib.aclosing(_changes(feed, watching)) as changing,
    ):
        async for change in changing:
            if isinstance(change, Change):
                yield change


async def changes_and_text(
    feed: Feed, find: Find | None = None
) -> AsyncGenerator[Change | Piece | TurnText, None]:
    """Yield the changes of a turn and the text of its model in one order, until it is over.

    Args:
        feed: The feed of the turn.
        find: Finds the feeds of the turns below that run, whose text is yielded as well; None to
            leave it out.

    Raises:
        PerdureError: As `changes` does.
    """
    async with (
        contextlib.aclosing(_items(feed, find)) as items,
        contextlib.aclosing(_changes(feed, items)) as changing,
    ):
        async for change in changing:
            yield change


def _items(feed: Feed, find: Find | None) -> AsyncGenerator[LiveItem | TurnText, None]:
    return live_items(feed) if find is None else with_delegates(find, feed, only_running=True)


async def _changes(
    feed: Feed, items: AsyncIterator[LiveItem | TurnText]
) -> AsyncGenerator[Change | Piece | TurnText, None]:
    state, is_new = TurnState(), False
    async for item in items:
        if isinstance(item, str | TextBegins | TextVoid | TurnText):
            yield item
        elif isinstance(item, Event | CaughtUp):
            event = item if isinstance(item, Event) else None
            state = state if event is None else event.onto(state)
            is_new = is_new or event is None
            needs_person = is_new and fold(feed.unfolded, state).needs_person
            yield Change(event, state, is_new, needs_person)
