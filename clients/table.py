"""Turns as a table in the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TextIO

from perdure.activities.search import State
from perdure.clients.entries import TurnEntry
from perdure.clients.screen import Paint, width
from perdure.reports import Outcome
from perdure.text import harmless

_GAP = "  "
_HEADER = ("ID", "AGENT", "STATE", "STEPS", "SPENT", "STARTED", "TASK")
_TO_THE_RIGHT = {"STEPS", "SPENT"}
_UNITS = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1)), ("s", timedelta(seconds=1)))
_LEAST_TASK = 20


def show(entries: Sequence[TurnEntry], *, out: TextIO = sys.stdout, now: datetime | None = None) -> None:
    """Print a line for each turn. On a terminal a task is cut where the line ends; elsewhere nothing is."""
    paint = Paint(out)
    rows = [_row(entry, now or datetime.now(UTC)) for entry in entries]
    widths = [max(width(cell) for cell in column) for column in zip(_HEADER, *rows, strict=True)]
    if out.isatty():
        used = sum(widths[:-1]) + len(_GAP) * len(widths[:-1])
        widths[-1] = min(widths[-1], max(_LEAST_TASK, shutil.get_terminal_size().columns - used))
    print(paint("dim", _line(_HEADER, widths)), file=out)
    for entry, row in zip(entries, rows, strict=True):
        cells = list(_aligned(row, widths))
        cells[2] = paint(_style(entry), cells[2])
        print(_GAP.join(cells).rstrip(), file=out)


def ago(age: timedelta) -> str:
    """How long ago, in its largest unit."""
    for unit, length in _UNITS:
        if age >= length:
            return f"{age // length} {unit} ago"
    return "just now"


def _row(entry: TurnEntry, now: datetime) -> tuple[str, ...]:
    cells = (
        entry.id,
        entry.agent or "–",
        (entry.outcome or entry.state).value,
        "–" if entry.steps is None else str(entry.steps),
        "–" if entry.spent is None else f"${entry.spent:.4f}",
        ago(now - entry.started_at),
        entry.task,
    )
    return tuple(harmless(cell) for cell in cells)


def _style(entry: TurnEntry) -> str:
    if entry.state != State.ENDED:
        return "cyan" if entry.state == State.RUNNING else "yellow"
    return {Outcome.COMPLETED: "green", Outcome.TRUNCATED: "yellow", Outcome.CANCELLED: "yellow"}.get(entry.outcome or Outcome.FAILED, "red")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(_aligned(cells, widths)).rstrip()


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [_fitted(cell, columns, to_the_right=name in _TO_THE_RIGHT) for name, cell, columns in zip(_HEADER, cells, widths, strict=True)]


def _fitted(cell: str, columns: int, *, to_the_right: bool) -> str:
    if width(cell) > columns:
        while width(cell) > columns - 1:
            cell = cell[:-1]
        cell += "…"
    space = " " * (columns - width(cell))
    return space + cell if to_the_right else cell + space
