"""The results of a batch as CSV."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pytest

from perdure import Outcome, errors
from perdure.clients import BatchResult, TaskState
from perdure.clients.cli.drawing.csv_rows import COLUMNS, CsvRows, cell


def result(**fields: Any) -> BatchResult[Any]:
    """A result with an answer."""
    known = {"id": "1", "turn_id": "b/1", "state": TaskState.DONE, "outcome": Outcome.COMPLETED}
    return BatchResult(**{**known, **fields})


@pytest.mark.accepts("B25")
@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n=1"])
def test_cell_that_looks_like_a_formula_is_text(text: str) -> None:
    """It begins with an apostrophe."""
    assert cell(text) == f"'{text}"


@pytest.mark.accepts("B25")
def test_row_is_read_back_as_it_was_written() -> None:
    """Quotes, commas and line breaks stay in their cell; values of a type are JSON."""
    out = io.StringIO(newline="")
    rows = CsvRows(out)
    rows.write(result(output='a "quoted", line\r\nbreak', cost=Decimal("1E-7")))
    rows.write(result(output={"days": 3, "who": "=Jo"}))
    failed = errors.LLMRefusedError("=no").info()
    rows.write(result(state=TaskState.FAILED, outcome=Outcome.FAILED, error=failed))
    out.seek(0)
    names, first, second, third = csv.reader(out)

    assert tuple(names) == COLUMNS
    assert first[:6] == [
        "1",
        "b/1",
        "done",
        "completed",
        'a "quoted", line\r\nbreak',
        "0.0000001",
    ]
    assert second[4:] == ['{"days":3,"who":"=Jo"}', "", "", ""]
    assert third[2:] == ["failed", "failed", "", "", "LLM_REFUSED", "'=no"]
