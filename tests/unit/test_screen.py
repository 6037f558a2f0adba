"""What is drawn on a terminal."""

from __future__ import annotations

import io

import pytest

from perdure.clients.screen import Live, cut, width

RED, PLAIN = "\x1b[31m", "\x1b[0m"


class Screen(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("line", "columns", "seen"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("漢字漢字", 5, "漢字"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301e\u0301"),
        (f"{RED}abcd{PLAIN}", 3, f"{RED}abc{PLAIN}"),
        (f"{RED}ab{PLAIN}cd", 3, f"{RED}ab{PLAIN}c"),
        (f"{RED}abc{PLAIN}", 3, f"{RED}abc{PLAIN}"),
    ],
)
def test_line_is_cut_where_the_terminal_ends(line: str, columns: int, seen: str) -> None:
    """By what is seen: colours take no room, and letters of Chinese twice as much; no colour runs on."""
    assert cut(line, columns) == seen
    assert width(seen.replace(RED, "").replace(PLAIN, "")) <= columns


def test_more_lines_than_the_terminal_is_high_are_drawn_from_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they can be taken away again: the cursor cannot go above the top."""
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "5")
    screen = Screen()
    live = Live(screen)
    live.draw([f"line {number}" for number in range(10)])
    live.erase()

    assert screen.getvalue().split("\n")[:4] == ["… 7 more lines above", "line 7", "line 8", "line 9"]
    assert screen.getvalue().endswith("\x1b[4A\x1b[J")


def test_elsewhere_nothing_is_drawn() -> None:
    """But for the last lines."""
    out = io.StringIO()
    live = Live(out)
    live.draw(["one"])
    live.last(["two"])
    assert out.getvalue() == "two\n"
