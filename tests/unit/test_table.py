"""The table of turns: aligned columns, for any content."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TextIO

import pytest
from rich.text import Text

from perdure import Outcome
from perdure.clients import TurnEntry
from perdure.clients.cli.drawing import table, turns
from perdure.clients.cli.drawing.blocks import blocks
from perdure.values.states import State

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
    blocks_of_turns(out)(*entries)
    return out.getvalue().splitlines()


def blocks_of_turns(out: TextIO) -> Callable[..., None]:
    """A function that prints entries as the next block of a table."""
    printed = table.Blocks(turns.LEFT_OUT, out)
    return lambda *entries: printed.draw([turns.row(entry, NOW) for entry in entries])


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


@pytest.mark.accepts("G8")
def test_no_column_is_hidden_on_a_terminal_that_is_too_narrow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The arguments of a call that waits are seen beside a long id, whatever wraps."""
    monkeypatch.setenv("COLUMNS", "40")
    row = {"TURN": "a" * 30, "CALL": "call_1_1", "TOOL": "refund", "ARGUMENTS": '{"euros": 3000}'}
    out = Terminal()
    table.draw([{name: Text(value) for name, value in row.items()}], (), out)

    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert "3000" in "".join(lines[1:])
    assert sum(line.count("a") for line in lines[1:]) == 31
    assert max(map(len, lines)) <= 40


def test_text_of_a_task_does_not_move_the_cursor() -> None:
    """A task is untrusted text; its escape sequences are printed escaped."""
    lines = shown(entry("sum-1", "red \x1b[31m and \x07 bell"))

    assert lines[1].endswith(r"red \u001b[31m and \u0007 bell")


def test_terminal_is_not_outgrown_by_a_long_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task is cut at the end of the line; ids never are, because users copy them."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    blocks_of_turns(out)(entry("sum-1", "word " * 30))

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
    blocks_of_turns(out)(*(entry("x", "", **fields) for fields in states))
    colours = [line.partition("\x1b[")[2][:2] for line in out.getvalue().splitlines()[1:]]

    assert colours == ["32", "31", "33", "36"]


def test_later_blocks_stand_under_the_first() -> None:
    """The header is printed once, and a longer id widens its column from there on."""
    out = io.StringIO()
    show = blocks_of_turns(out)
    show(entry("sum-10", "2 + 3?"))
    show(entry("sum-1", "3 + 4?"), entry("sum-2000", "5?", agent="accountant"))
    show(entry("sum-3", "4 + 5?"))

    assert out.getvalue().splitlines() == [
        "ID      AGENT  STATE  STEPS  SPENT  STARTED    TASK",
        "sum-10  adder  ended      –      –  2 min ago  2 + 3?",
        "sum-1     adder       ended      –      –  2 min ago  3 + 4?",
        "sum-2000  accountant  ended      –      –  2 min ago  5?",
        "sum-3     adder       ended      –      –  2 min ago  4 + 5?",
    ]


def test_later_block_drops_columns_before_it_cuts_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a narrow terminal."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    show = blocks_of_turns(out)
    show(entry("sum-1", "2 + 3?"))
    show(entry("a-long-id-of-36-columns-0123456789ab", "3 + 4?"))

    assert [line.split()[0] for line in out.getvalue().splitlines()] == [
        "ID",
        "sum-1",
        "a-long-id-of-36-columns-0123456789ab",
    ]


async def test_blocks_have_all_values_before_an_error() -> None:
    """In their order, and then the error is raised."""

    async def values() -> AsyncIterator[int]:
        for number in range(3):
            yield number
            await asyncio.sleep(0)
        raise ValueError("no more")

    read: list[int] = []

    async def read_all() -> None:
        async for block in blocks(values()):
            read.extend(block)

    with pytest.raises(ValueError, match="no more"):
        await read_all()

    assert read == [0, 1, 2]


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
