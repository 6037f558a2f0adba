"""Cursors: positions in the history of a turn, as text."""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

from perdure import errors
from perdure.text import one_line

_PLACE = re.compile(
    r"(?:(?P<first>[^/:]+)/)?(?P<run>[^/:]+):(?P<event>[1-9][0-9]{0,8})(?P<within>\+?)"
)


class Cursor(NamedTuple):
    """A position in a history.

    Attributes:
        first: The id of the turn's first run.
        run: The id of the run of the event.
        event: Temporal's number of the event in that run.
        is_within: Whether another fact of the same event follows: a local call and its result are
            one event of Temporal.
    """

    first: str
    run: str
    event: int
    is_within: bool = False

    @property
    def place(self) -> tuple[int, bool]:
        """The position in the run, to compare it with others."""
        return self.event, not self.is_within

    def __str__(self) -> str:
        place = f"{self.run}:{self.event}{'+' if self.is_within else ''}"
        text = place if self.run == self.first else f"{self.first}/{place}"
        return base64.urlsafe_b64encode(text.encode()).decode()


def read(text: str) -> Cursor:
    """Return the cursor with this text.

    Raises:
        InvalidRequestError: It is not a cursor.
    """
    try:
        found = _PLACE.fullmatch(base64.urlsafe_b64decode(text.encode()).decode())
    except (ValueError, binascii.Error):
        found = None
    if found is None:
        raise errors.InvalidRequestError(f"{one_line(text, 100)!r} is not a cursor of turn events")
    first, run = found["first"] or found["run"], found["run"]
    return Cursor(first, run, int(found["event"]), is_within=bool(found["within"]))
