"""Text of a model beside a margin."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from perdure.clients.cli.drawing.margin import Margin
from perdure.text import exact


def written(*pieces: str) -> str:
    """What is printed for these pieces, on 20 columns."""
    out = io.StringIO()
    text = Margin(out)
    for piece in pieces:
        text.write(piece)
    text.end()
    return out.getvalue()


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["one two three four five"], "  one two three\n  four five\n"),
        (["on", "e t", "wo\n\n", "  three"], "  one two\n\n    three\n"),
        (["x" * 40], f"  {'x' * 17}\n  {'x' * 17}\n  {'x' * 6}\n"),
        (["漢字" * 5], "  漢字漢字漢字漢字\n  漢字\n"),
        (["a\x1b[2J\r> b"], "  a\\u001b[2J > b\n"),
        (["", ""], ""),
    ],
)
def test_lines_begin_after_the_margin_and_end_before_the_edge(
    pieces: list[str], shown: str
) -> None:
    """Between words where that is possible; empty lines and indents are kept."""
    assert written(*pieces) == shown


@pytest.mark.accepts("P35")
@given(st.lists(st.text("ab >\n\t漢\x1b\r", max_size=30), max_size=8))
def test_no_text_reaches_the_left_edge(pieces: list[str]) -> None:
    """However it is cut in pieces, which changes nothing."""
    lines = written(*pieces).split("\n")

    assert written("".join(pieces)).split("\n") == lines
    assert all(line.startswith("  ") for line in lines if line)
    assert all(cell_len(line) < 20 for line in lines)
    assert all(exact(line) == line for line in lines)
