"""The table of turns: aligned columns, for any content."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from perdure import Outcome
from perdure.clients import TurnEntry
from perdure.clients.cli import table
from perdure.temporal.search_attributes import State

NOW = datetime(2030, 1, 2, 12, tzinfo=UTC)


class Terminal(io.StringIO):
    """An output stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def entry(turn_id: str, task: str, **fields: object) -> TurnEntry:
    given = {
        "agent": "adder",
        "state": State.ENDED,
        "started_at": NOW - timedelta(minutes=2),
        **fields,
    }
    return TurnEntry.model_validate({"id": turn_id, "run_id": "r", "task": task, **given})


def shown(*entries: TurnEntry) -> list[str]:
    out = io.StringIO()
    table.show(entries, out=out, now=NOW)
    return out.getvalue().splitlines()


def test_columns_stand_under_each_other() -> None:
    """East Asian characters take two columns, numbers are right-aligned, and a dash is an unknown
    value.
    """
    lines = shown(
        entry("sum-1", "2 + 3?", outcome=Outcome.COMPLETED, steps=12, spent=Decimal("0.0123")),
        entry("請求", "Add", agent="accountant", state=State.RUNNING, started_at=NOW),
    )

    assert lines == [
        "ID     AGENT       STATE      STEPS    SPENT  STARTED    TASK",
        "sum-1  adder       completed     12  $0.0123  2 min ago  2 + 3?",
        "請求   accountant  running        –        –  just now   Add",
    ]


def test_text_of_a_task_does_not_move_the_cursor() -> None:
    """A task is untrusted text; its escape sequences are printed escaped."""
    lines = shown(entry("sum-1", "red \x1b[31m and \x07 bell"))

    assert lines[1].endswith(r"red \u001b[31m and \u0007 bell")


def test_terminal_is_not_outgrown_by_a_long_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task is cut at the end of the line; ids never are, because users copy them."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    table.show([entry("sum-1", "word " * 30)], out=out, now=NOW)

    assert [len(line) for line in out.getvalue().splitlines()][1] == 80
    assert out.getvalue().endswith("…\n")


def test_states_have_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Green is success, red is failure, yellow needs attention, cyan is running."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    states = [
        {"outcome": "completed"},
        {"outcome": "failed"},
        {"state": "waiting"},
        {"state": "running"},
    ]
    table.show([entry("x", "", **fields) for fields in states], out=out, now=NOW)
    colours = [line.partition("\x1b[")[2][:2] for line in out.getvalue().splitlines()[1:]]

    assert colours == ["32", "31", "33", "36"]


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (timedelta(seconds=-5), "just now"),
        (timedelta(seconds=59), "59 s ago"),
        (timedelta(minutes=59, seconds=59), "59 min ago"),
        (timedelta(hours=23), "23 h ago"),
        (timedelta(days=40), "40 d ago"),
    ],
)
def test_age_is_told_in_its_largest_unit(age: timedelta, words: str) -> None:
    """Clock skew gives no negative ages."""
    assert table.ago(age) == words
