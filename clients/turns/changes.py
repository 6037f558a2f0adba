"""What happens in a turn, event by event, and whether it needs a person now."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from perdure.clients.reading.events import Event
from perdure.clients.reading.feed import Feed
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
    state, is_new = TurnState(), False
    async with contextlib.aclosing(feed.watch(until=await feed.end())) as watching:
        async for item in watching:
            event = item if isinstance(item, Event) else None
            state = state if event is None else event.onto(state)
            is_new = is_new or event is None
            needs_person = is_new and fold(feed.unfolded, state).needs_person
            yield Change(event, state, is_new, needs_person)
