"""How activities and workflows end badly: our errors as Temporal failures, and back.

One failure of Temporal holds one error of ours: its type is the error's code, its first detail the
`ErrorInfo` (of an activity) or the `Summary` with it (of a turn).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from pydantic import ValidationError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, FailureError

from perdure import errors
from perdure.errors import ErrorInfo, PerdureError
from perdure.temporal.payloads import pack
from perdure.text import described
from perdure.turn.wire import Summary

WORKER_SHUTDOWN = "PERDURE_WORKER_SHUTDOWN"
NOT_REGISTERED = "NotFoundError"
"""The SDK's type for an activity that the worker does not have."""
_NOT_ENCODED = "Failed building exception result"
"""How the SDK's failure begins where a codec could not encode that of the activity."""


def of_activity(error: PerdureError) -> ApplicationError:
    """The failure of an activity. It is expected, so the SDK logs no stack trace."""
    return ApplicationError(
        error.message,
        pack(error.info()),
        type=error.code,
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,
    )


@contextlib.contextmanager
def typed() -> Iterator[None]:
    """Whatever an activity raises leaves it as a failure that holds an error of ours.

    A cancel passes.
    """
    try:
        yield
    except (FailureError, asyncio.CancelledError):
        raise
    except PerdureError as error:
        raise of_activity(error) from None
    except Exception as error:
        raise of_activity(PerdureError(described(error))) from error


def of_turn(error: PerdureError, summary: Summary) -> ApplicationError:
    """The failure of a turn."""
    return ApplicationError(
        error.message,
        pack(summary),
        type=error.code,
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,
    )


def error_in(failure: BaseException) -> ErrorInfo:
    """The error of ours in an activity's failure.

    Anything else becomes a `PerdureError` that quotes it.
    """
    if isinstance(failure, ApplicationError) and failure.details:
        try:
            return ErrorInfo.model_validate(failure.details[0], extra="ignore")
        except ValidationError:
            pass
    name = (
        failure.type
        if isinstance(failure, ApplicationError) and failure.type
        else type(failure).__name__
    )
    return errors.PerdureError(f"{name}: {failure}").info()


def is_by_operator(failure: BaseException) -> bool:
    """Whether `temporal activity fail` made this failure.

    Those of Perdure have a type, and the one without a type of the SDK has fixed words.
    """
    return (
        isinstance(failure, ApplicationError)
        and not failure.type
        and not failure.message.startswith(_NOT_ENCODED)
    )


def summary_in(failure: BaseException) -> Summary | None:
    """The summary in a turn's failure."""
    if not isinstance(failure, ApplicationError) or not failure.details:
        return None
    try:
        return Summary.model_validate(failure.details[0], extra="ignore")
    except ValidationError:
        return None
