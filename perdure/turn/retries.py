"""Retries of failed attempts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from perdure import errors, limits
from perdure.errors import PerdureError
from perdure.turn.facts import CallFailed

RETRY_DELAY = timedelta(seconds=1)


def retry_delay(failures: Sequence[CallFailed]) -> timedelta:
    """Return the delay before the next attempt of a call that failed so; zero for the first.

    Raises:
        PerdureError: The last attempt's own error, if another attempt would not help.
    """
    if not failures or repeats_lost(failures):
        return timedelta()
    error = errors.from_info(failures[-1].error)
    if not may_pass(failures):
        raise error
    return pause_after(error)


def repeats_lost(failures: Sequence[CallFailed]) -> bool:
    """Return whether the last attempt was lost with its worker and is repeated at once."""
    return failures[-1].lost and sum(failure.lost for failure in failures) < limits.LOST_ATTEMPTS


def may_pass(failures: Sequence[CallFailed]) -> bool:
    """Return whether the last of these failures of a call is retried after a pause."""
    last = failures[-1]
    failed = sum(not failure.lost for failure in failures)
    return (
        not last.lost
        and errors.from_info(last.error).transient
        and failed <= limits.TRANSIENT_RETRIES
    )


def pause_after(error: PerdureError) -> timedelta:
    """Return the pause after a transient error.

    This is the pause that the provider asks for, up to a limit, or else `RETRY_DELAY`.
    """
    return timedelta(seconds=asked_pause_s(error)) or RETRY_DELAY


def asked_pause_s(error: PerdureError, longest: timedelta = limits.RETRY_AFTER) -> float:
    """Return the pause that a provider asked for, in seconds, at most `longest`; 0 without it."""
    seconds = error.context.get("retry_after_s")
    if not isinstance(seconds, int | float) or not seconds > 0:
        return 0.0
    return min(float(seconds), longest.total_seconds())
