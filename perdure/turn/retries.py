"""When an attempt that failed is made again. Pure."""

from __future__ import annotations

from datetime import timedelta

from perdure import errors, limits
from perdure.errors import PerdureError
from perdure.turn.state import TurnState

RETRY_DELAY = timedelta(seconds=1)


def retry_delay(state: TurnState) -> timedelta:
    """How long to wait before the next attempt of the same thing; zero for a first one.

    Raises:
        PerdureError: The last attempt's own error, where another attempt would not help.
    """
    failures = state.attempts.unpardoned
    if not failures:
        return timedelta()
    last = failures[-1]
    error = errors.from_info(last.error)
    lost = sum(failure.lost for failure in failures)
    if last.lost and lost < limits.LOST_ATTEMPTS:
        return timedelta()
    if last.lost or not error.transient or len(failures) - lost > limits.TRANSIENT_RETRIES:
        raise error
    return pause_after(error)


def pause_after(error: PerdureError) -> timedelta:
    """How long to wait after an error that may pass.

    As long as the provider asks, as far as we go along with that.
    """
    return timedelta(seconds=asked_pause_s(error)) or RETRY_DELAY


def asked_pause_s(error: PerdureError, most: timedelta = limits.RETRY_AFTER) -> float:
    """The pause that a provider asked for, in seconds, at most `most`; 0 where it asked for none."""
    seconds = error.context.get("retry_after_s")
    if not isinstance(seconds, int | float) or not seconds > 0:
        return 0.0
    return min(float(seconds), most.total_seconds())
