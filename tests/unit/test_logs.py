"""The worker's log as lines of JSON."""

import io
import json
import logging
import re
import sys
from decimal import Decimal

import pytest

from perdure.worker.logs import JsonLines, Lines, configure


def raw(message: str, *args: object, **options: object) -> str:
    """The line of a record."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("mine")
    logger.addHandler(handler)
    logger.error(message, *args, **options)  # type: ignore[arg-type]
    logger.removeHandler(handler)
    assert out.getvalue().endswith("\n")
    return out.getvalue()[:-1]


def written(message: str, **options: object) -> dict[str, object]:
    """The same line, parsed."""
    line = raw(message, **options)
    assert len(line.splitlines()) == 1
    return dict(json.loads(line))


def test_record_of_a_turn_has_its_fields_beside_the_line() -> None:
    """An amount is text, so no digit is lost; an unknown value is null."""
    line = written(
        "llm_call …",
        extra={
            "perdure": {
                "event": "llm_call",
                "cost_usd": Decimal("0.10"),
                "duration_ms": None,
                "tool": "a\nb",
            }
        },
    )

    assert list(line) == [
        "time",
        "level",
        "logger",
        "message",
        "event",
        "cost_usd",
        "duration_ms",
        "tool",
    ]
    assert list(line.values())[1:] == [
        "error",
        "mine",
        "llm_call …",
        "llm_call",
        "0.10",
        None,
        "a\nb",
    ]


def test_line_of_json_moves_no_cursor() -> None:
    """JSON escapes only half of the characters that control a terminal; parsing restores all of
    them, and harmless ones are not escaped.
    """
    evil = "\x1b[2J\x9b2J\x7f\u2028\u202e größe 👍"
    line = raw("said: %s", evil, extra={"perdure": {f"label.{evil}": evil}})

    assert line.isprintable()
    assert "größe 👍" in line
    assert list(json.loads(line).items())[3:] == [
        ("message", f"said: {evil}"),
        (f"label.{evil}", evil),
    ]


def test_record_with_an_exception_is_one_line() -> None:
    """It has the stack trace as text."""
    try:
        raise ValueError("no")
    except ValueError:
        line = written("it failed", exc_info=True)

    assert str(line["exception"]).startswith("Traceback (most recent call last):\n")
    assert str(line["exception"]).endswith("\nValueError: no")


@pytest.mark.accepts("G7", "O20")
def test_only_the_first_line_of_a_record_can_pass_for_one() -> None:
    """A message or an exception with quoted text is indented below it, with every control character
    escaped.
    """
    forged = "\nturn_completed event_id=FORGED\r\x1b[2J\u2028tool_call \U000e0041"
    try:
        raise ValueError(forged)
    except ValueError:
        record = logging.LogRecord(
            "mine", logging.ERROR, __file__, 1, "the policy raised %s", (forged,), sys.exc_info()
        )
    first, *more = Lines().format(record).split("\n")

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ERROR   the policy raised ", first)
    assert "    turn_completed event_id=FORGED" in more
    assert "    \\u001b[2J" in more
    assert [line for line in more if not line.startswith("    ") or not line.isprintable()] == []


@pytest.mark.accepts("G7")
@pytest.mark.parametrize(
    ("style", "written"),
    [("lines", "said\n    turn_completed\n"), ("json", "said\\nturn_completed")],
)
def test_format_of_the_worker_escapes(style: str, written: str) -> None:
    """This applies to both formats of a worker."""
    root, out = logging.getLogger(), io.StringIO()
    handlers, level, own = root.handlers, root.level, logging.getLogger("perdure").level
    root.handlers = []
    try:
        configure(style, out)
        logging.getLogger("mine").warning("said\nturn_completed")
    finally:
        root.handlers = handlers
        root.setLevel(level)
        logging.getLogger("perdure").setLevel(own)

    assert written in out.getvalue()
