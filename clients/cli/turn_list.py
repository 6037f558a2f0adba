"""`perdure list`: turns are printed while more are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.clients import AgentClient
from perdure.clients.cli import json_lines
from perdure.clients.cli.blocks import blocks
from perdure.clients.cli.screen import note
from perdure.clients.cli.table import Turns


async def show_turns(
    client: AgentClient, filters: Mapping[str, Any], limit: int, *, as_json: bool
) -> None:
    """Print up to `limit` turns that match the filters, as a table or as lines of JSON."""
    found, table = 0, Turns()
    listed = client.list(**filters, limit=limit + 1 if limit > 0 else limit)
    async for block in blocks(listed):
        shown = block[: limit - found]
        found += len(block)
        if as_json:
            for entry in shown:
                json_lines.tell(entry)
        elif shown:
            table.show(shown)
    if not as_json and not found:
        note("there is no such turn" if any(filters.values()) else "there is no turn yet")
    if found > limit:
        note(f"there are more than these {limit}; --limit shows them")
