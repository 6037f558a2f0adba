"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TextIO

from rich.table import Table
from rich.text import Text

from perdure.clients.cli.drawing.screen import Screen, lines_of, put
from perdure.values.moments import UNITS

_TO_THE_RIGHT = {"STEPS", "SPENT", "DONE", "FAILED"}
_GAP = 2
_LEAST = {"TASK": 12, "ARGUMENTS": 30}
"""The widths down to which columns shrink on a narrow terminal: a task is cut, arguments wrap."""


def draw(rows: Sequence[Mapping[str, Text]], left_out: Sequence[str], out: TextIO) -> None:
    """Print rows by their columns, as `Blocks` does."""
    Blocks(left_out, out).draw(rows)


class Blocks:
    """Prints the rows of a table in blocks, while more are read.

    The columns `left_out` are dropped first on a narrow terminal, the column `TASK` is cut so that
    a line fits, and the column `ARGUMENTS` wraps. If it has no room even so, all columns wrap.
    Columns are as wide as the first block needs; a later block with a wider value widens them.
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
        fits = self._needed() <= Screen(self._out).width or "ARGUMENTS" not in self._widths
        for name, width in self._widths.items():
            is_whole = fits and name not in _LEAST
            table.add_column(
                name,
                justify="right" if name in _TO_THE_RIGHT else "left",
                no_wrap=is_whole,
                min_width=width if is_whole else None,
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
            if self._needed() > Screen(self._out).width:
                self._widths.pop(name, None)

    def _needed(self) -> int:
        return sum(self._widths.values()) + _GAP * (len(self._widths) - 1)


def ago(age: timedelta) -> str:
    """Format an age in its largest unit."""
    for unit, length in UNITS:
        if age >= length:
            return f"{age // length} {unit} ago"
    return "just now"
