"""Audits of tests: what was done since a moment, once Temporal lists it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.clients import AgentClient, AuditEntry

from .spending import SOON_S


def lately() -> datetime:
    """A moment before the test; the server has the same clock."""
    return datetime.now(UTC) - timedelta(seconds=1)


async def audited(
    client: AgentClient,
    since: datetime,
    acts: Collection[str] = (),
    *,
    ids: Collection[str] = (),
    **filters: Any,
) -> list[AuditEntry]:
    """What was done, once it has these acts, and acts on these ids: Temporal's list lags."""
    async with asyncio.timeout(SOON_S):
        while True:
            entries = [entry async for entry in client.audit(since, **filters)]
            found = {entry.act for entry in entries}, {entry.id for entry in entries}
            if found[0].issuperset(acts) and found[1].issuperset(ids):
                return entries
            await asyncio.sleep(0.1)


def brief(entry: AuditEntry) -> tuple[str, str, str | None, str | None]:
    """What was done, to what, by whom and through what."""
    return entry.act, entry.id, entry.by, entry.via
