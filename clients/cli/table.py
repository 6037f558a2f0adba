"""Turns as a table in the terminal, and other tables in its style."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TextIO

from rich.table import Table
from rich.text import Text

from perdure.clients.cli.amounts import UNITS
from perdure.clients.cli.progress import COLOURS, agents
from perdure.clients.cli.screen import Screen, lines_of, put
from perdure.clients.entries import TurnEntry
from perdure.temporal.search_attributes import State
from perdure.text import harmless, word
from perdure.values.reports import Outcome

_HEADER = ("ID", "AGENT", "STATE", "STEPS", "SPENT", "STARTED", "TASK")
_TO_THE_RIGHT = {"STEPS", "SPENT"}
_LEFT_OUT = ("SPENT", "STEPS", "STARTED", "AGENT", "TASK")
"""The columns to drop first on a narrow terminal; ids are kept, because they are copied."""
_GAP = 2
_LEAST_TASK = 12


def show(
    entries: Sequence[TurnEntry], *, out: TextIO | None = None, now: datetime | None = None
) -> None:
    """Print a line for each turn.

    On a terminal, columns are left out and tasks are cut so that a line fits; elsewhere not.
    """
    draw([_row(entry, now or datetime.now(UTC)) for entry in entries], _LEFT_OUT, out or sys.stdout)


def draw(rows: Sequence[Mapping[str, Text]], left_out: Sequence[str], out: TextIO) -> None:
    """Print rows by their columns, of which `left_out` are dropped first on a narrow terminal.

    The column `TASK` is cut so that a line fits.
    """
    names = _fitting(rows, left_out, Screen(out).width)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(
            name, justify="right" if name in _TO_THE_RIGHT else "left", no_wrap=name != "TASK"
        )
    for row in rows:
        table.add_row(*(row[name] for name in names))
    for line in lines_of(table, out):
        put(line, out)


def _fitting(
    rows: Sequence[Mapping[str, Text]], left_out: Sequence[str], columns: int
) -> list[str]:
    """Return the columns that fit on the terminal."""
    widths = {name: max(len(name), *(row[name].cell_len for row in rows)) for name in rows[0]}
    if "TASK" in widths:
        widths["TASK"] = min(widths["TASK"], _LEAST_TASK)
    for name in left_out:
        if sum(widths.values()) + _GAP * (len(widths) - 1) > columns:
            del widths[name]
    return list(widths)


def ago(age: timedelta) -> str:
    """Format an age in its largest unit."""
    for unit, length in UNITS:
        if age >= length:
            return f"{age // length} {unit} ago"
    return "just now"


def _row(entry: TurnEntry, now: datetime) -> dict[str, Text]:
    cells = (
        Text(word(entry.id)),
        Text(agents(entry.agent, entry.last_agent) or "–"),
        Text((entry.outcome or entry.state).value, _style(entry)),
        Text("–" if entry.steps is None else str(entry.steps)),
        Text("–" if entry.spent is None else f"${entry.spent:.4f}"),
        Text(ago(now - entry.started_at)),
        Text(
            harmless(entry.error.message if entry.error else entry.task),
            no_wrap=True,
            overflow="ellipsis",
        ),
    )
    return dict(zip(_HEADER, cells, strict=True))


def _style(entry: TurnEntry) -> str:
    if entry.state != State.ENDED:
        return "cyan" if entry.state == State.RUNNING else "yellow"
    return COLOURS.get(entry.outcome or Outcome.FAILED, "red")
