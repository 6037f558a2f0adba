"""Who has done what, as `perdure audit` prints it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime

from rich.text import Text

from perdure.clients.auditing.entries import AuditEntry
from perdure.clients.cli.drawing.listing import EntryTable
from perdure.text import harmless, word

_LEFT_OUT = ("DETAIL", "VIA")
"""The columns to drop first on a narrow terminal."""


def entry_table(entries: AsyncIterator[AuditEntry]) -> EntryTable[AuditEntry]:
    """Return a table of what was done."""
    return EntryTable(entries, _row, _LEFT_OUT)


def _row(entry: AuditEntry, _: datetime) -> Mapping[str, Text]:
    by = harmless(entry.by) if entry.by else "–"
    if entry.on_behalf_of:
        by = f"for {harmless(entry.on_behalf_of)}"
    detail = Text(entry.problem, "red") if entry.problem else Text(harmless(entry.detail))
    return {
        "TIME": Text(f"{entry.time:%Y-%m-%d %H:%M:%S}"),
        "ACT": Text(harmless(entry.act)),
        "ON": Text(f"{entry.kind} {word(entry.id)}"),
        "BY": Text(by),
        "VIA": Text(harmless(entry.via or "–")),
        "DETAIL": detail,
    }
