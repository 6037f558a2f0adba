"""The results of a batch as rows of CSV (RFC 4180).

A spreadsheet runs a cell that begins like a formula, and what a model says is data: such a cell
begins with an apostrophe.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any, TextIO

from pydantic_core import to_json

from perdure.clients.batches.status import BatchResult
from perdure.clients.cli.drawing.screen import shown

COLUMNS = ("id", "turn_id", "state", "outcome", "output", "cost_usd", "error_code", "error")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class CsvRows:
    """Writes a row for each result, after one with the names of the columns."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._line_end = "\n" if out.isatty() else "\r\n"
        self._write(COLUMNS)

    def write(self, result: BatchResult[Any]) -> None:
        """Write the row of a result at once."""
        self._write(map(cell, _values(result)))

    def _write(self, cells: Iterable[str]) -> None:
        line = io.StringIO(newline="")
        csv.writer(line, lineterminator=self._line_end).writerow(cells)
        self._out.write(shown(line.getvalue(), self._out))
        self._out.flush()


def cell(text: str) -> str:
    """Return the text of a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.lstrip(" \n").startswith(_FORMULA) else text


def _values(result: BatchResult[Any]) -> tuple[str, ...]:
    output, error = result.output, result.error
    if not isinstance(output, str):
        output = "" if output is None else to_json(output).decode()
    return (
        result.id,
        result.turn_id,
        result.state.value,
        result.outcome.value if result.outcome else "",
        output,
        "" if result.cost is None else f"{result.cost:f}",
        error.code if error else "",
        error.message if error else "",
    )
