"""`perdure list`: turns are printed while more are read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from perdure.clients import AgentClient
from perdure.clients.cli.drawing import json_lines
from perdure.clients.cli.drawing.blocks import blocks
from perdure.clients.cli.drawing.screen import note
from perdure.clients.cli.drawing.table import Turns
from perdure.clients.turns.entries import TurnEntry
from perdure.clients.turns.status_reader import look
from perdure.errors import PerdureError
from perdure.temporal.search_attributes import State

_AT_ONCE = 10
"""The number of histories that are read at the same time."""


async def show_turns(
    client: AgentClient, filters: Mapping[str, Any], limit: int, *, as_json: bool
) -> None:
    """Print up to `limit` turns that match the filters, as a table or as lines of JSON."""
    found, table, places = 0, Turns(), asyncio.Semaphore(_AT_ONCE)
    listed = client.list(**filters, limit=limit + 1 if limit > 0 else limit)
    async for block in blocks(listed):
        shown = block[: limit - found]
        found += len(block)
        if as_json:
            for entry in shown:
                json_lines.tell(entry)
        elif shown:
            table.show(await asyncio.gather(*(_so_far(client, one, places) for one in shown)))
    if not as_json and not found:
        note("there is no such turn" if any(filters.values()) else "there is no turn yet")
    if found > limit:
        note(f"there are more than these {limit}; --limit shows them")


async def _so_far(client: AgentClient, entry: TurnEntry, places: asyncio.Semaphore) -> TurnEntry:
    """Return an entry; for a turn that is not over, with steps and cost from its history."""
    if entry.state is State.ENDED or entry.error is not None:
        return entry
    with contextlib.suppress(PerdureError):  # the list shows it all the same
        async with places:
            status = await look(client.temporal, entry.id, entry.run_id)
        return entry.model_copy(update={"steps": status.steps, "spent": status.spent.usd})
    return entry
