"""A moment in the life of a turn: absolute, or relative to its start."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter

from perdure import validation
from perdure.validation import Must

Moment = timedelta | datetime
"""A moment, as the time after the start of a turn or as a date with its time zone."""

UNITS = (
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("min", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
)
"""The units of durations in words, the largest first."""

_PERIOD: TypeAdapter[timedelta] = TypeAdapter(timedelta)
_WORDS = (
    f"a timedelta, longer than zero and at most {validation.LONGEST.days} days, or a datetime with"
    " a time zone; in JSON, such as 'PT2H' or '2030-12-01T18:00:00+01:00'"
)


def _read(value: Any) -> Moment:
    """Return a moment; text is an ISO 8601 duration or date."""
    if isinstance(value, str):
        is_period = value.startswith("P")
        value = _PERIOD.validate_python(value) if is_period else datetime.fromisoformat(value)
    if isinstance(value, timedelta) and timedelta() < value <= validation.LONGEST:
        return value
    if isinstance(value, datetime) and value.utcoffset() is not None:
        with suppress(OverflowError):  # a date at the end of the calendar has no date in UTC
            return value.astimezone(UTC)
    raise ValueError(_WORDS)


AMoment = Annotated[timedelta | datetime, BeforeValidator(_read), Must(_WORDS)]
"""A moment as an argument or in JSON, where it is an ISO 8601 duration or date."""


def absolute(moment: Moment | None, start: datetime) -> datetime | None:
    """Return the moment as a date, for a turn that was started at `start`; None for None."""
    return start + moment if isinstance(moment, timedelta) else moment


def period_in_words(period: timedelta) -> str:
    """Return a duration in its two largest units, down to seconds: `2 h 5 min`, `12 s`."""
    units = [(name, length) for name, length in UNITS if period >= length][:2]
    parts = []
    for name, length in units:
        parts.append(f"{period // length} {name}")
        period %= length
    return " ".join(part for part in parts if not part.startswith("0 ")) or "0 s"


def in_words(moment: datetime) -> str:
    """Return a date in UTC, to the second."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
