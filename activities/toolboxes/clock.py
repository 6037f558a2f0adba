"""The toolbox that returns the current time in a time zone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from perdure import errors
from perdure.agents.tools import Toolbox, tool
from perdure.base import Value
from perdure.text import one_line


class Moment(Value):
    """A moment: `time` in ISO 8601 with the offset from UTC, `zone` as an IANA name."""

    time: str
    weekday: str
    zone: str


def _utc_now() -> datetime:
    return datetime.now(UTC)


def clock(zone: str = "UTC", *, now: Callable[[], datetime] = _utc_now) -> Toolbox:
    """Return a toolbox named "clock" with the tool `now`.

    Args:
        zone: The default time zone, by its IANA name; a model may ask for another.
        now: Returns the current time, with its zone.

    Raises:
        ConfigurationError: `zone` is unknown on this machine.
    """
    try:
        _zone(zone)
    except ValueError as error:
        raise errors.ConfigurationError(f"clock: {error}") from None

    @tool(name="now", read_only=True)
    def tell(time_zone: str = zone) -> Moment:
        """Tell the date and the time of now.

        Args:
            time_zone: A name of the IANA database, such as Europe/Berlin.
        """
        moment = now().astimezone(_zone(time_zone))
        return Moment(
            time=moment.isoformat(timespec="seconds"), weekday=f"{moment:%A}", zone=time_zone
        )

    return Toolbox("clock", [tell])


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    if name not in _names():
        raise ValueError(
            f"there is no time zone {one_line(name, 60)!r}; use a name such as Europe/Berlin,"
            " America/New_York or UTC"
        )
    return ZoneInfo(name)


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(available_timezones())
