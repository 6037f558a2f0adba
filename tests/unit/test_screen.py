"""Drawing on a terminal."""

from __future__ import annotations

import contextlib
import io

import pytest
from rich.text import Text

from perdure.clients.cli.drawing.screen import Live, cut, fail, put, shown, wrapped

RED, PLAIN = "\x1b[31m", "\x1b[0m"


class Screen(io.StringIO):
    """A terminal that keeps its output."""

    def isatty(self) -> bool:
        return True


def test_line_is_cut_where_the_terminal_ends() -> None:
    """By display width: Chinese characters take two columns, accents none."""
    lines = {
        ("abc", 3): "abc",
        ("abcd", 3): "ab…",
        ("漢字漢字", 5): "漢字…",
        ("e\u0301e\u0301e\u0301", 2): "e\u0301…",
    }

    assert {given: cut(Text(given[0]), given[1]).plain for given in lines} == lines


@pytest.mark.parametrize(
    ("line", "columns", "indent", "seen"),
    [
        ("one two three", "8", 2, "one two\n  three"),
        ("one two three", "20", 2, "one two three"),
        ("one two x", "7", 2, "one two\n  x"),
        ("a-very-long-word", "8", 2, "a-very-l\n  ong-wo\n  rd"),
        ("漢字 漢字", "5", 0, "漢字\n漢字"),
    ],
)
def test_line_is_broken_between_words(
    monkeypatch: pytest.MonkeyPatch, line: str, columns: str, indent: int, seen: str
) -> None:
    """Further lines are indented; only a word longer than a line is broken. In a pipe, lines are
    not broken.
    """
    monkeypatch.setenv("COLUMNS", columns)

    assert wrapped(Text(line), Screen(), indent).plain == seen
    assert wrapped(Text(line), io.StringIO(), indent).plain == line


@pytest.mark.accepts("G7")
def test_error_has_one_line_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal wraps it between words; further lines of the message are always indented."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    screen, pipe = Screen(), io.StringIO()
    for out in (screen, pipe):
        with contextlib.redirect_stderr(out):
            fail("perdure", "one two three four\nperdure: forged\x1b[2J\rperdure: again")

    assert screen.getvalue().splitlines() == [
        "perdure: one two",
        "  three four",
        "  perdure:",
        "  forged\\u001b[2J",
        "  perdure: again",
    ]
    assert pipe.getvalue().splitlines() == [
        "perdure: one two three four",
        "  perdure: forged\\u001b[2J",
        "  perdure: again",
    ]


def test_more_lines_than_the_terminal_is_high_are_drawn_from_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that they can be erased: the cursor cannot go above the top."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "5")
    screen = Screen()
    live = Live(screen)
    live.draw([Text(f"line {number}") for number in range(10)])
    live.erase()

    assert screen.getvalue().split("\n")[:4] == [
        "… 7 more lines above",
        "line 7",
        "line 8",
        "line 9",
    ]
    assert screen.getvalue().endswith("\r\x1b[4A\x1b[J")


def test_elsewhere_nothing_is_drawn() -> None:
    """Except for the last lines."""
    out = io.StringIO()
    live = Live(out)
    live.draw([Text("one")])
    live.last([Text("two")])
    assert out.getvalue() == "two\n"


@pytest.mark.parametrize(
    ("environment", "on_a_terminal", "in_a_pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": ""}, True, False),
        ({"NO_COLOR": "0"}, False, False),
        ({"TERM": "dumb"}, False, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
    ids=str,
)
def test_colours_are_where_they_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    on_a_terminal: bool,
    in_a_pipe: bool,
) -> None:
    """NO_COLOR overrides everything else; FORCE_COLOR turns colours on if the output is not known
    to be a terminal.
    """
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    screen, pipe = Screen(), io.StringIO()
    put(Text("x", "red"), screen)
    put(Text("x", "red"), pipe)

    assert (screen.getvalue(), pipe.getvalue()) == tuple(
        f"{RED}x{PLAIN}\n" if coloured else "x\n" for coloured in (on_a_terminal, in_a_pipe)
    )


def test_text_of_anybody_cannot_drive_a_terminal() -> None:
    """Lines and tabs are kept; in a pipe the text is unchanged, because a program may need it."""
    text = "one\n\ttwo \x1b[2J\x07\u202e 漢字"

    assert shown(text, Screen()) == "one\n\ttwo \\u001b[2J\\u0007\\u202e 漢字"
    assert shown(text, io.StringIO()) == text


def test_what_did_not_change_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would only flicker."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Screen()
    live = Live(screen)
    live.draw([Text("one")])
    live.draw([Text("one")])

    assert screen.getvalue() == "one\n"


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("NO_COLOR", "1")])
def test_without_escape_sequences_one_line_is_drawn(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """The last one, overwritten in place, and erased at the end."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "8")
    monkeypatch.setenv(name, value)
    screen = Screen()
    live = Live(screen)
    live.draw([Text("one"), Text("two")])
    live.draw([Text("one"), Text("three and more")])
    live.erase()

    assert screen.getvalue() == "two\r       \rthree …\r       \r"


def test_lines_that_a_narrower_terminal_has_wrapped_are_taken_away_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two rows for a line of one and a half rows."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("LINES", "5")
    monkeypatch.setenv("COLUMNS", "20")
    screen = Screen()
    live = Live(screen)
    live.draw([Text("x" * 15)])
    monkeypatch.setenv("COLUMNS", "10")
    live.erase()

    assert screen.getvalue().endswith("\r\x1b[2A\x1b[J")
