"""Converts Perdure's errors to Temporal failures and back.

A failure holds one error: its type is the error's code, and its first detail is the `ErrorInfo`
(for an activity) or the `Summary` that contains it (for a turn).
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

NOT_REGISTERED = "NotFoundError"
"""The SDK's failure type for an activity that the worker does not have."""
NOT_LOCAL = "PERDURE_NOT_LOCAL"
"""The failure type of a local call that has to be an ordinary activity."""
NOT_FINISHED = "PERDURE_NOT_FINISHED"
"""The failure type of a poll that found no result."""
_NOT_ENCODED = "Failed building exception result"
"""The beginning of the SDK's failure if a codec could not encode the activity's own."""
Final = type[PerdureError] | tuple[type[PerdureError], ...]
"""Errors of an activity that another attempt would not change."""
UNREADABLE: Final = (errors.TurnNotFoundError, errors.TooLargeError)
"""Those of reading a history: it is gone, or what is read does not fit into another one.

All others pass: the server is away, the worker lacks a key, or has a bug that is mended.
"""
RUN_ENDS = "PERDURE_RUN_ENDS"
"""The failure type of an update to a run that is about to go on in a new one."""


def of_activity(error: PerdureError, *, is_final: bool = True) -> ApplicationError:
    """Return the failure of an activity, which is not tried again if it `is_final`.

    It is benign, so the SDK logs no stack trace.
    """
    return ApplicationError(
        error.message,
        pack(error.info()),
        type=error.code,
        non_retryable=is_final,
        category=ApplicationErrorCategory.BENIGN,
    )


def not_local(why: str) -> ApplicationError:
    """Return the failure of a local call that has to be an ordinary activity."""
    return ApplicationError(
        why, type=NOT_LOCAL, non_retryable=True, category=ApplicationErrorCategory.BENIGN
    )


@contextlib.contextmanager
def typed(final: Final = PerdureError) -> Iterator[None]:
    """Convert exceptions of an activity into failures that hold an `ErrorInfo`.

    Cancellations are passed on. Errors that are not `final` are tried again if the workflow allows
    it. An exception of another class is a bug of a workflow, and final: exceptions of activities
    are `PerdureError` already.
    """
    try:
        yield
    except (FailureError, asyncio.CancelledError):
        raise
    except PerdureError as error:
        raise of_activity(error, is_final=isinstance(error, final)) from None
    except Exception as error:
        raise of_activity(PerdureError(described(error))) from error


def of_turn(error: PerdureError, summary: Summary) -> ApplicationError:
    """Return the failure of a turn."""
    return ApplicationError(
        error.message,
        pack(summary),
        type=error.code,
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,
    )


def run_ends() -> ApplicationError:
    """Return the refusal of an update to a run that is about to go on in a new one.

    A refusal is not in history. The next run takes in the same update.
    """
    return ApplicationError(
        "the workflow is about to go on in a new run; send the update again, with the same id",
        type=RUN_ENDS,
        category=ApplicationErrorCategory.BENIGN,
    )


def error_in(failure: BaseException) -> ErrorInfo:
    """Return the error in an activity's failure; others become a `PerdureError` with their text."""
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
    """Return whether a failure comes from `temporal activity fail`.

    Perdure's failures have a type, and the SDK's only failure without a type has a fixed message.
    """
    return (
        isinstance(failure, ApplicationError)
        and not failure.type
        and not failure.message.startswith(_NOT_ENCODED)
    )


def summary_in(failure: BaseException) -> Summary | None:
    """Return the summary in a turn's failure, if there is one."""
    if not isinstance(failure, ApplicationError) or not failure.details:
        return None
    try:
        return Summary.model_validate(failure.details[0], extra="ignore")
    except ValidationError:
        return None
