"""Logs exceptions of user code with their tracebacks.

History and models get only their messages. The text is built here rather than by a formatter, so
that secrets are removed from it and it cannot forge log lines, whatever formatter is in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator

from temporalio.exceptions import FailureError

from perdure.agents.tracebacks import place_of, raised, traceback_of
from perdure.errors import PerdureError
from perdure.temporal import secrets
from perdure.temporal.encryption import hiding
from perdure.text import harmless, one_line

VARIABLE = "PERDURE_LOG_TRACEBACKS"
_MESSAGE_CHARACTERS = 2_000
_BELOW = "  "
_NOT_TOLD = f"with encryption, its message is logged only if {VARIABLE} is 1"

logger = logging.getLogger("perdure")


def log_raised(message: str, error: BaseException, *, level: int = logging.ERROR) -> None:
    """Log `message` with the traceback of `error`, unless `PERDURE_LOG_TRACEBACKS` is 0.

    With encryption, both are left out unless it is 1.
    """
    if hiding.encrypts() and os.environ.get(VARIABLE) != "1":
        place = place_of(error) or "user code"
        log_with_trace(f"{type(error).__name__} at {place}; {_NOT_TOLD}", "", level=level)
        return
    try:
        trace = traceback_of(error)
    except Exception as broken:  # noqa: BLE001 - an attribute or a __str__ of the user's exception is broken
        trace = f"{type(error).__name__}: its traceback cannot be written ({type(broken).__name__})"
    log_with_trace(message, trace, level=level)


def log_with_trace(message: str, trace: str, *, level: int) -> None:
    """Log one line, followed by `trace` if there is one, unless `PERDURE_LOG_TRACEBACKS` is 0."""
    if not logger.isEnabledFor(level):
        return
    hidden = secrets.known()
    line = one_line(secrets.without(message, hidden), _MESSAGE_CHARACTERS)
    record = logger.makeRecord(logger.name, level, __file__, 0, line, (), None)
    if trace and os.environ.get(VARIABLE) != "0":
        first, *more = secrets.without(trace, hidden).splitlines()
        record.exc_text = "\n".join(
            [harmless(first), *(_BELOW + harmless(line_below) for line_below in more)]
        )
    logger.handle(record)


@contextlib.contextmanager
def logged() -> Iterator[None]:
    """Log an unexpected exception of an activity.

    It is re-raised as a `PerdureError` that names its type and place.
    """
    try:
        yield
    except (FailureError, asyncio.CancelledError):
        raise
    except PerdureError as error:
        log_cause(error)
        raise
    except Exception as error:
        failed = PerdureError(raised(error))
        log_raised(failed.message, error)
        raise failed from error


def log_cause(error: PerdureError) -> None:
    """Log the exception of user code that caused an error, if user code caused it."""
    cause = error.__cause__
    while cause is not None and not place_of(cause):
        cause = cause.__cause__
    if cause is not None:
        log_raised(error.message, cause)
