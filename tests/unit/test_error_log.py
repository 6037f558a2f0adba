"""Exceptions of the user's code in the worker's log."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from perdure.activities.error_log import log_raised
from perdure.worker.logs import JsonLines, Lines

SECRET = "sk-live-4f9a8b7c6d"
FORGED = "\n2026-01-01T00:00:00.000Z INFO    turn_completed agent=forged\x1b[2J"


@pytest.fixture(params=[Lines, JsonLines, logging.Formatter])
def out(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """The log in each format, and with a formatter of the user's."""
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(request.param())
    logging.getLogger("perdure").addHandler(handler)
    yield handler.stream
    logging.getLogger("perdure").removeHandler(handler)


def log() -> None:
    """Log an exception that quotes a secret and a line that looks like a log line."""
    try:
        raise ValueError(f"no {SECRET}{FORGED}")
    except ValueError as error:
        log_raised(f"the tool 'pay' raised {error}", error)


@pytest.mark.accepts("O20", "G7")
def test_traceback_is_logged_without_secrets_and_forges_no_line(
    out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even with the exception's own message, for every formatter."""
    monkeypatch.setenv("SHOP_API_KEY", SECRET)
    log()
    written = out.getvalue()

    assert SECRET not in written
    assert "ValueError: no [SHOP_API_KEY]" in written
    assert "test_error_log.py" in written
    assert "\x1b" not in written
    assert [line for line in written.splitlines() if line.startswith("2026-01-01")] == []
    if written.startswith("{"):
        [line] = written.splitlines()
        assert json.loads(line)["exception"].startswith("Traceback (most recent call last):\n")


@pytest.mark.accepts("O20")
def test_tracebacks_can_be_left_out(out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line itself is kept."""
    monkeypatch.setenv("PERDURE_LOG_TRACEBACKS", "0")
    log()

    assert "Traceback" not in out.getvalue()
    assert "the tool 'pay' raised no sk-live" in out.getvalue()


class BrokenError(Exception):
    """An exception whose `__str__` raises."""

    def __str__(self) -> str:
        raise RuntimeError


def test_exception_that_cannot_be_written_is_logged_all_the_same(out: io.StringIO) -> None:
    """With its class."""
    try:
        raise BrokenError
    except BrokenError as error:
        log_raised("the tool 'pay' failed", error)

    assert "BrokenError" in out.getvalue()
