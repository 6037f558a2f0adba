"""The events that the history of a turn has now."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from perdure.clients.reading.events import Event
from perdure.clients.turns.handle import Turn


async def past_events(turn: Turn[Any]) -> AsyncGenerator[Event, None]:
    """Yield the events of a turn up to now.

    Raises:
        TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        PayloadDecodeError: This process lacks the codec or the key of the turn.
    """
    async with contextlib.aclosing(turn.changes()) as changing:
        async for change in changing:
            if change.event is None:
                return
            yield change.event
