"""Cron expressions of five fields, as ranges of numbers. Pure.

They are parsed here and not by the server, so that a mistake is refused before anything exists, and
so that they mean what they mean to cron: if both the day of the month and the day of the week are
restricted, a day that matches either of them matches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import NamedTuple

from perdure import errors, validation
from perdure.text import one_line

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAYS_IN = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SUNDAY = 7
_PART = re.compile(r"(?P<all>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?")


class Field(NamedTuple):
    """A field of a cron expression.

    `*` is from its `least` to its `most` number. `names` are the names of the numbers from `least`.
    `largest` is the largest number that may be written.
    """

    name: str
    least: int
    most: int
    largest: int
    names: tuple[str, ...] = ()


_FIELDS = (
    Field("minute", 0, 59, 59),
    Field("hour", 0, 23, 23),
    Field("day of the month", 1, 31, 31),
    Field("month", 1, 12, 12, _MONTHS),
    Field("day of the week", 0, 6, _SUNDAY, _WEEKDAYS),
)


class Range(NamedTuple):
    """Every `step`-th number from `first` to `last`, both included."""

    first: int
    last: int
    step: int = 1

    @property
    def numbers(self) -> range:
        """The numbers."""
        return range(self.first, self.last + 1, self.step)


Ranges = tuple[Range, ...]

EVERY_DAY = (Range(1, 31),)
EVERY_WEEKDAY = (Range(0, 6),)


class Days(NamedTuple):
    """Days that match both in their month and in their week. 0 is Sunday."""

    of_month: Ranges
    of_week: Ranges


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression.

    Attributes:
        text: The expression, with single spaces.
        minutes: The minutes, from 0 to 59.
        hours: The hours, from 0 to 23.
        months: The months, from 1 to 12.
        days: The days of the month and of the week; a day matches if one of the two does.
    """

    text: str
    minutes: Ranges
    hours: Ranges
    months: Ranges
    days: tuple[Days, ...]

    def matches(self, at: datetime) -> bool:
        """Return whether a local time is one of the expression's."""
        weekday = at.isoweekday() % _SUNDAY
        return (
            _is_in(at.minute, self.minutes)
            and _is_in(at.hour, self.hours)
            and _is_in(at.month, self.months)
            and any(
                _is_in(at.day, day.of_month) and _is_in(weekday, day.of_week) for day in self.days
            )
        )


def parse(text: str) -> Cron:
    """Parse a cron expression.

    Raises:
        InvalidRequestError: It is not a cron expression; the message names the field. Or its times
            never come.
    """
    parts = text.split()
    if len(parts) != len(_FIELDS):
        names = ", ".join(field.name for field in _FIELDS)
        raise _refused(text, f"it has {len(parts)} fields, and not five: {names}")
    minutes, hours, of_month, months, of_week = (
        _ranges(text, field, part) for field, part in zip(_FIELDS, parts, strict=True)
    )
    of_week = _from_sunday(of_week)
    days: tuple[Days, ...] = (Days(of_month, of_week),)
    if not parts[2].startswith("*") and not parts[4].startswith("*"):
        days = (Days(of_month, EVERY_WEEKDAY), Days(EVERY_DAY, of_week))
    elif not any(_exists(*day) for day in product(_numbers(months), _numbers(of_month))):
        raise _refused(text, "there is no such day in these months")
    return Cron(" ".join(parts), minutes, hours, months, days)


def _ranges(text: str, field: Field, field_text: str) -> Ranges:
    return tuple(_range(text, field, part) for part in field_text.split(","))


def _range(text: str, field: Field, part: str) -> Range:
    """Parse one of `*`, `5`, `5-9`, `MON`, `MON-FRI`, and all but single values with `/step`."""
    span, slash, steps = part.partition("/")
    match = _PART.fullmatch(span)
    is_one = match is None or not (match["all"] or match["last"])
    if match is None or (slash and (is_one or not _is_number(steps) or not int(steps))):
        raise _refused(text, f"the {field.name} {part!r} is not a number, a range or a step")
    step = int(steps) if slash else 1
    if match["all"]:
        return Range(field.least, field.most, step)
    first = _number(text, field, match["first"])
    last = first if match["last"] is None else _number(text, field, match["last"])
    if last < first:
        raise _refused(text, f"the {field.name} {part!r} ends before it begins")
    return Range(first, last, step)


def _number(text: str, field: Field, value: str) -> int:
    if value.upper() in field.names:
        return field.least + field.names.index(value.upper())
    if not _is_number(value) or not field.least <= int(value) <= field.largest:
        names = f" or {', '.join(field.names)}" if field.names else ""
        raise _refused(
            text, f"the {field.name} {value!r} is not one of {field.least}-{field.largest}{names}"
        )
    return int(value)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len("59")


def _from_sunday(ranges: Ranges) -> Ranges:
    """Return days of the week with 0 for Sunday only, which may be 7 too."""
    if all(item.last < _SUNDAY for item in ranges):
        return ranges
    return tuple(Range(day, day) for day in sorted({item % _SUNDAY for item in _numbers(ranges)}))


def _is_in(number: int, ranges: Ranges) -> bool:
    return any(number in range_.numbers for range_ in ranges)


def _numbers(ranges: Ranges) -> list[int]:
    return [number for range_ in ranges for number in range_.numbers]


def _exists(month: int, day: int) -> bool:
    return day <= _DAYS_IN[month - 1]


def _refused(text: str, why: str) -> errors.InvalidRequestError:
    return errors.InvalidRequestError(
        f"the cron expression {validation.shown(text)} is not valid: {one_line(why, 300)}; write"
        " it like '0 7 * * 1-5'"
    )
