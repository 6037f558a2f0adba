"""Turns as a table in the terminal, and other tables in its style."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TextIO

from rich.table import Table
from rich.text import Text

from perdure.clients.cli.drawing.amounts import UNITS
from perdure.clients.cli.drawing.progress import COLOURS, agents
from perdure.clients.cli.drawing.screen import Screen, lines_of, put
from perdure.clients.turns.entries import TurnEntry
from perdure.temporal.search_attributes import State
from perdure.text import harmless, money, word
from perdure.values.reports import Outcome

_HEADER = ("ID", "AGENT", "STATE", "STEPS", "SPENT", "STARTED", "TASK")
_TO_THE_RIGHT = {"STEPS", "SPENT"}
_LEFT_OUT = ("SPENT", "STEPS", "STARTED", "AGENT", "TASK")
"""The columns to drop first on a narrow terminal; ids are kept, because they are copied."""
_GAP = 2
_LEAST = {"TASK": 12, "ARGUMENTS": 30}
"""The widths down to which columns shrink on a narrow terminal: a task is cut, arguments wrap."""


class Turns:
    """Prints turns in blocks, with a line for each turn.

    On a terminal, columns are left out and tasks are cut so that a line fits; elsewhere not.
    """

    def __init__(self, *, out: TextIO | None = None, now: datetime | None = None) -> None:
        self._table = Blocks(_LEFT_OUT, out or sys.stdout)
        self._now = now

    def show(self, entries: Sequence[TurnEntry]) -> None:
        """Print at least one turn, the first time with a header."""
        now = self._now or datetime.now(UTC)
        self._table.draw([_row(entry, now) for entry in entries])


def draw(rows: Sequence[Mapping[str, Text]], left_out: Sequence[str], out: TextIO) -> None:
    """Print rows by their columns, as `Blocks` does."""
    Blocks(left_out, out).draw(rows)


class Blocks:
    """Prints the rows of a table in blocks, while more are read.

    The columns `left_out` are dropped first on a narrow terminal, the column `TASK` is cut so that
    a line fits, and the column `ARGUMENTS` wraps. Columns are as wide as the first block needs; a
    later block with a wider value widens them.
    """

    def __init__(self, left_out: Sequence[str], out: TextIO) -> None:
        self._left_out = left_out
        self._out = out
        self._widths: dict[str, int] = {}

    def draw(self, rows: Sequence[Mapping[str, Text]]) -> None:
        """Print at least one row, the first time with a header."""
        is_first = not self._widths
        self._fit(rows)
        table = Table(
            box=None,
            padding=(0, _GAP, 0, 0),
            pad_edge=False,
            header_style="dim",
            show_header=is_first,
        )
        for name, width in self._widths.items():
            table.add_column(
                name,
                justify="right" if name in _TO_THE_RIGHT else "left",
                no_wrap=name not in _LEAST,
                min_width=None if name in _LEAST else width,
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(row[name] for name in self._widths))
        for line in lines_of(table, self._out):
            put(line, self._out)

    def _fit(self, rows: Sequence[Mapping[str, Text]]) -> None:
        """Set the columns that fit on the terminal, and their widths."""
        widths = self._widths or {name: len(name) for name in rows[0]}
        self._widths = {
            name: max(width, *(row[name].cell_len for row in rows))
            for name, width in widths.items()
        }
        for name in _LEAST.keys() & widths:
            self._widths[name] = min(self._widths[name], _LEAST[name])
        for name in self._left_out:
            needed = sum(self._widths.values()) + _GAP * (len(self._widths) - 1)
            if needed > Screen(self._out).width:
                self._widths.pop(name, None)


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
        Text("–" if entry.spent is None else money(entry.spent)),
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
