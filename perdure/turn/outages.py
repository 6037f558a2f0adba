"""Outages of providers: the pauses between the rounds of a chain, and when to give up. Pure.

A round asks each model of the chain that may answer. If none did, and a model was unavailable, the
turn waits and begins another round. The pauses double up to a limit. In an outage of more than half
an hour, they keep growing, to a sixtieth of it: six hours are about 240 rounds and 2,900 events, a
week is 470 rounds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from perdure import errors, limits, validation
from perdure.errors import PerdureError
from perdure.turn import circuit_breaker
from perdure.values.model_retry import PinnedRetry

ATTEMPTS = "attempts"
"""The context key of an error for the number of attempts before the turn gave up."""

_SHARE = 60
_JITTER = 4
_MOST_DOUBLINGS = 32
_QUIET_PAUSES = 2
_OTHERS_FAULT = (400, 422)
"""The statuses of a server whose model wrote invalid output (`tool_use_failed`)."""


@dataclass(frozen=True, slots=True)
class Outage:
    """The failed calls of the open step, by the clock of the turn.

    `lasted` is the time since the first failure, `time_left` the rest of the turn's time, and
    `until_deadline` the time until its deadline; both are None without a limit. `asked_s` has the
    remaining seconds of the pauses that providers asked for, by model. `turn_id` makes the pauses
    differ between turns that fail at the same moment.
    """

    lasted: timedelta = timedelta()
    time_left: timedelta | None = None
    asked_s: Mapping[str, float] = field(default_factory=dict)
    turn_id: str = ""
    until_deadline: timedelta | None = None


NO_OUTAGE = Outage()


def is_away(error: PerdureError) -> bool:
    """Return whether the provider is unavailable or overloaded, rather than the model at fault."""
    is_nonsense = (
        isinstance(error, errors.LLMUnavailableError)
        and error.context.get("status") in _OTHERS_FAULT
    )
    return isinstance(error, errors.LLMError) and error.transient and not is_nonsense


def pause(policy: PinnedRetry, number: int, outage: Outage, asked_s: float = 0.0) -> timedelta:
    """Return the pause before another attempt, the first being number 1.

    `asked_s` is the pause that the provider asks for. The first pause is that or `initial_s`; a
    later pause is the longer of that and the backoff.
    """
    growth = policy.coefficient ** min(number - 1, _MOST_DOUBLINGS)
    backoff = max(
        min(policy.initial_s * growth, policy.maximum_s), outage.lasted.total_seconds() / _SHARE
    )
    jitter = _chance(outage.turn_id, number) / _JITTER
    asked_s = min(asked_s, validation.LONGEST.total_seconds())
    if asked_s and (number == 1 or asked_s >= backoff):
        return timedelta(seconds=asked_s + min(asked_s, backoff) * jitter)
    return timedelta(seconds=backoff * (1 - jitter))


def is_limit(policy: PinnedRetry, asked_s: float, attempts: int) -> bool:
    """Return whether the turn waits for the end of a provider's limit, outside of its time.

    `asked_s` is the pause that the provider asks for, and `attempts` the number of failed attempts
    since the last answer, which bounds the number of such waits.
    """
    is_far = asked_s > limits.RETRY_AFTER.total_seconds()
    return policy.waits_for_limits and is_far and attempts <= limits.LIMIT_ATTEMPTS


def is_told(number: int, delay: timedelta) -> bool:
    """Return whether a pause is a wait that appears in the list and the events.

    This is so from the third pause on, and for any long pause.
    """
    return number > _QUIET_PAUSES or circuit_breaker.is_long(delay.total_seconds())


def lasts_too_long(policy: PinnedRetry, delay: timedelta, outage: Outage) -> bool:
    """Return whether the attempt after a pause would come too late."""
    return (
        is_over_elapsed(policy, delay, outage)
        or is_over_time(delay, outage)
        or is_past_deadline(delay, outage)
    )


def given_up(
    error: PerdureError, policy: PinnedRetry, delay: timedelta, outage: Outage, attempts: int
) -> PerdureError:
    """Return the error of a turn that gives up before a pause.

    This is the last error, with the number of attempts and their duration. If the deadline or the
    time budget ends the turn, it is a `TurnTimeoutError` or a `TurnBudgetExceededError` whose cause
    is the last error.
    """
    tried = "once" if attempts == 1 else f"{attempts} times in {_words(outage.lasted)}"
    message = (
        f"{error.message}; it was tried {tried}, and the next attempt, in {_words(delay)}, would"
        " come "
    )
    context = {
        **error.context,
        ATTEMPTS: attempts,
        "failing_for_s": round(outage.lasted.total_seconds(), 3),
    }
    if is_over_elapsed(policy, delay, outage):
        limit = _words(timedelta(seconds=policy.elapsed_s))
        message += (
            f"later than {limit} after the first failure, which is all that its ModelRetryPolicy"
            " allows"
        )
        return type(error)(message, severity=error.severity, context=context)
    raised: PerdureError
    if is_past_deadline(delay, outage):
        message += "after the deadline of the turn; go on after the end with turn.resume()"
        raised = errors.TurnTimeoutError(message, context={ATTEMPTS: attempts})
        raised.__cause__ = error
        return raised
    assert outage.time_left is not None
    message += (
        f"after the time of the turn is up, of which {_words(outage.time_left)} are left; raise the"
        " budget"
    )
    raised = errors.TurnBudgetExceededError(
        message, context={ATTEMPTS: attempts, "dimension": "time"}
    )
    raised.__cause__ = error
    return raised


def is_over_elapsed(policy: PinnedRetry, delay: timedelta, outage: Outage) -> bool:
    """Return whether the policy does not allow another attempt after this pause."""
    has_limit = outage.time_left is None or not policy.unless_timed
    return has_limit and outage.lasted.total_seconds() + delay.total_seconds() > policy.elapsed_s


def is_over_time(delay: timedelta, outage: Outage) -> bool:
    """Return whether the time of the turn ends before this pause does."""
    return outage.time_left is not None and delay >= outage.time_left


def is_past_deadline(delay: timedelta, outage: Outage) -> bool:
    """Return whether the turn ends at its deadline before this pause does."""
    return outage.until_deadline is not None and delay >= outage.until_deadline


def _chance(turn_id: str, number: int) -> float:
    """Return a number from 0 to 1 that is the same in a replay."""
    digest = hashlib.sha256(f"{turn_id}/{number}".encode(errors="replace")).digest()
    return int.from_bytes(digest[:4]) / 2**32


def _words(time: timedelta) -> str:
    seconds = max(time.total_seconds(), 0)
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{round(seconds / unit, 1):g} {name}"
    return f"{round(seconds, 1):g} s"
