"""Turns as `perdure list` prints them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime

from rich.text import Text

from perdure.agents.versions import address
from perdure.clients import AgentClient
from perdure.clients.cli.drawing.listing import EntryTable
from perdure.clients.cli.drawing.progress import COLOURS, agents
from perdure.clients.cli.drawing.table import ago
from perdure.clients.turns.entries import TurnEntry
from perdure.clients.turns.status_reader import look
from perdure.errors import PerdureError
from perdure.text import harmless, money, word
from perdure.values.reports import Outcome
from perdure.values.states import State

LEFT_OUT = ("SPENT", "STEPS", "STARTED", "AGENT", "TASK")
"""The columns to drop first on a narrow terminal; ids are kept, because they are copied."""
_AT_ONCE = 10
"""The number of histories that are read at the same time."""


def entry_table(client: AgentClient, entries: AsyncIterator[TurnEntry]) -> EntryTable[TurnEntry]:
    """Return a table of turns, with steps and cost so far of those that are not over."""
    reads = asyncio.Semaphore(_AT_ONCE)

    async def update(block: Sequence[TurnEntry]) -> Sequence[TurnEntry]:
        return await asyncio.gather(*(_so_far(client, entry, reads) for entry in block))

    return EntryTable(entries, row, LEFT_OUT, update)


async def _so_far(client: AgentClient, entry: TurnEntry, reads: asyncio.Semaphore) -> TurnEntry:
    """Return an entry; for a turn that is not over, with steps and cost from its history."""
    if entry.state is State.ENDED or entry.error is not None:
        return entry
    with contextlib.suppress(PerdureError):  # the list shows it all the same
        async with reads:
            status = await look(client.temporal, entry.id, entry.run_id)
        return entry.model_copy(update={"steps": status.steps, "spent": status.spent.usd})
    return entry


def row(entry: TurnEntry, now: datetime) -> Mapping[str, Text]:
    """Return the row of a turn in the table."""
    text = entry.task or (entry.error.message if entry.error else "")
    agent = address(entry.agent, entry.version)
    last = agent if entry.last_agent == entry.agent else entry.last_agent
    return {
        "ID": Text(word(entry.id)),
        "AGENT": Text(agents(agent, last) or "–"),
        "STATE": _state(entry),
        "STEPS": Text("–" if entry.steps is None else str(entry.steps)),
        "SPENT": Text("–" if entry.spent is None else money(entry.spent)),
        "STARTED": Text(ago(now - entry.started_at)),
        "TASK": Text(harmless(text), no_wrap=True, overflow="ellipsis"),
    }


def _state(entry: TurnEntry) -> Text:
    state = Text((entry.outcome or entry.state).value, _style(entry))
    unknown = (f", {entry.unsettled} unknown", "yellow") if entry.unsettled else ""
    return Text.assemble(state, unknown)


def _style(entry: TurnEntry) -> str:
    if entry.state != State.ENDED:
        return "cyan" if entry.state == State.RUNNING else "yellow"
    return COLOURS.get(entry.outcome or Outcome.FAILED, "red")
