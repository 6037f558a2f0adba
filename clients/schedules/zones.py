"""IANA time zones, from the machine's database."""

from __future__ import annotations

import difflib
import functools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from perdure import errors, validation

_BEFORE = timedelta(days=5 * 365)
_AFTER = timedelta(days=20 * 365)
_STRIDE = timedelta(days=7)
"""A time zone keeps each of its offsets for longer than this."""


def zone(name: str) -> ZoneInfo:
    """Return the time zone of this name.

    Raises:
        InvalidRequestError: There is no such time zone.
        ConfigurationError: This machine has no time zone database.
    """
    known = _known()
    if not known:
        raise errors.ConfigurationError(
            "this machine has no time zone database, which schedules need: install the package"
            " tzdata"
        )
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise errors.InvalidRequestError(
            f"there is no time zone {validation.shown(name)}; give its IANA name, such as"
            f" 'Europe/Berlin' or 'UTC'{hint}"
        )
    return ZoneInfo(name)


@functools.cache
def _known() -> frozenset[str]:
    return frozenset(available_timezones())


def offsets(name: str, now: datetime) -> tuple[tuple[int, int], ...]:
    """Return the offsets of a time zone, as `ScheduledBy.offsets` has them.

    They cover the slots of the next 20 years, and of backfills for the last five.
    """
    time_zone = zone(name)
    at, end = now - _BEFORE, now + _AFTER
    changes = [(int(at.timestamp()), _offset(time_zone, at))]
    while at < end:
        following = at + _STRIDE
        if _offset(time_zone, following) != changes[-1][1]:
            change = _change(time_zone, int(at.timestamp()), int(following.timestamp()))
            changes.append((change, _offset(time_zone, datetime.fromtimestamp(change, UTC))))
        at = following
    return tuple(changes)


def _change(time_zone: ZoneInfo, before: int, after: int) -> int:
    """Return the first second with another offset than `before` has."""
    old = _offset(time_zone, datetime.fromtimestamp(before, UTC))
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(time_zone, datetime.fromtimestamp(middle, UTC)) == old:
            before = middle
        else:
            after = middle
    return after


def _offset(time_zone: ZoneInfo, at: datetime) -> int:
    offset = at.astimezone(time_zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())
