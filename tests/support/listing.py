"""Lists of turns, on servers with and without search attributes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

from perdure.clients import AgentClient, TurnEntry
from perdure.values.approvals import PendingApproval
from perdure.values.states import State
from perdure.worker.dev.server import DevServer


@contextlib.asynccontextmanager
async def bare_server(**options: Any) -> AsyncIterator[str]:
    """The address of a server whose namespace lacks Perdure's search attributes."""
    async with DevServer(
        folder=None, port=0, ui=False, **{"search_attributes": {}, **options}
    ) as server:
        yield server.address.address


async def listed(client: AgentClient, **wanted: Any) -> list[str]:
    """The ids of the turns found, sorted."""
    return sorted([entry.id async for entry in client.turns(**wanted)])


async def eventually_listed(client: AgentClient, ids: Iterable[str], **wanted: Any) -> None:
    """Wait until the list has these turns, because Temporal writes it asynchronously."""
    deadline, expected = time.monotonic() + 60, sorted(ids)
    while (found := await listed(client, **wanted)) != expected:
        assert time.monotonic() < deadline, f"{wanted} finds {found} instead of {expected}"
        await asyncio.sleep(0.1)


async def many_listed(client: AgentClient, count: int, **wanted: Any) -> list[str]:
    """The ids of the turns found, once there are so many."""
    async with asyncio.timeout(60):
        while len(found := await listed(client, **wanted)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return found


async def entry_of(
    client: AgentClient, turn_id: str, *, in_state: State | None = None, **wanted: Any
) -> TurnEntry:
    """The entry of a turn, once it is listed, in this state if one is given."""
    deadline = time.monotonic() + 60
    while True:
        async for entry in client.turns(**wanted):
            if entry.id == turn_id and in_state in (None, entry.state):
                return entry
        assert time.monotonic() < deadline, f"{turn_id} is not listed"
        await asyncio.sleep(0.1)


async def listed_calls(client: AgentClient, turn_id: str) -> list[PendingApproval]:
    """The calls of a turn on the list of what waits for people, once it is there."""
    async with asyncio.timeout(60):
        while True:
            waiting = client.pending_approvals()
            if calls := [one async for entry, one in waiting if entry.id == turn_id]:
                return calls
            await asyncio.sleep(0.1)
