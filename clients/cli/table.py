"""Turns as a table in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TextIO

from perdure.clients.cli.amounts import UNITS
from perdure.clients.cli.progress import COLOURS
from perdure.clients.cli.screen import Paint, columns_of, put
from perdure.clients.cli.widths import cut, width
from perdure.clients.entries import TurnEntry
from perdure.temporal.search_attributes import State
from perdure.text import harmless, word
from perdure.values.reports import Outcome

_GAP = "  "
_HEADER = ("ID", "AGENT", "STATE", "STEPS", "SPENT", "STARTED", "TASK")
_TO_THE_RIGHT = {"STEPS", "SPENT"}
_LEFT_OUT = ("SPENT", "STEPS", "STARTED", "AGENT", "TASK")
"""What goes first where the terminal is too narrow; ids never do, because one copies them."""
_LEAST_TASK = 12


def show(
    entries: Sequence[TurnEntry], *, out: TextIO | None = None, now: datetime | None = None
) -> None:
    """Print a line for each turn.

    On a terminal columns are left out and a task is cut so that a line fits; elsewhere nothing is.
    """
    out = out or sys.stdout
    paint = Paint(out)
    rows = [_row(entry, now or datetime.now(UTC)) for entry in entries]
    widths = {
        name: max(width(row[name]) for row in (dict(zip(_HEADER, _HEADER, strict=True)), *rows))
        for name in _HEADER
    }
    widths = _fitting(widths, columns_of(out))
    put(
        paint(
            "dim",
            _GAP.join(_fitted(name, name, columns) for name, columns in widths.items()).rstrip(),
        ),
        out,
    )
    for entry, row in zip(entries, rows, strict=True):
        cells = {name: _fitted(row[name], name, columns) for name, columns in widths.items()}
        put(
            _GAP.join(
                paint(_style(entry), cell) if name == "STATE" else cell
                for name, cell in cells.items()
            ).rstrip(),
            out,
        )


def _fitting(widths: dict[str, int], columns: int | None) -> dict[str, int]:
    """The columns that a terminal has room for, and how wide they are."""
    if columns is None:
        return widths
    kept = {**widths, "TASK": min(widths["TASK"], _LEAST_TASK)}
    for name in _LEFT_OUT:
        if _total(kept) > columns:
            del kept[name]
    if "TASK" in kept:
        kept["TASK"] = min(widths["TASK"], kept["TASK"] + columns - _total(kept))
    return kept


def _total(widths: dict[str, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def ago(age: timedelta) -> str:
    """How long ago, in its largest unit."""
    for unit, length in UNITS:
        if age >= length:
            return f"{age // length} {unit} ago"
    return "just now"


def _row(entry: TurnEntry, now: datetime) -> dict[str, str]:
    cells = (
        word(entry.id),
        word(entry.agent) if entry.agent else "–",
        (entry.outcome or entry.state).value,
        "–" if entry.steps is None else str(entry.steps),
        "–" if entry.spent is None else f"${entry.spent:.4f}",
        ago(now - entry.started_at),
        entry.error.message if entry.error else entry.task,
    )
    return {name: harmless(cell) for name, cell in zip(_HEADER, cells, strict=True)}


def _style(entry: TurnEntry) -> str:
    if entry.state != State.ENDED:
        return "cyan" if entry.state == State.RUNNING else "yellow"
    return COLOURS.get(entry.outcome or Outcome.FAILED, "red")


def _fitted(cell: str, name: str, columns: int) -> str:
    cell = cut(cell, columns)
    space = " " * (columns - width(cell))
    return space + cell if name in _TO_THE_RIGHT else cell + space
