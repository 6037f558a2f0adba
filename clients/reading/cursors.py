"""Cursors: positions in the history of a turn, and in a list, as text."""

from __future__ import annotations

import hashlib
import re
from typing import ClassVar, NamedTuple, Self

from pydantic import ValidationError

from perdure.base import Wire
from perdure.temporal.access import cursor_of, no_cursor, position_in

_PLACE = re.compile(
    r"(?:(?P<first>[^/:]+)/)?(?P<run>[^/:]+):(?P<event>[1-9][0-9]{0,8})(?P<within>\+?)"
)
_DIGEST_BYTES = 8
_OF_LISTS = "a list with these filters; begin with its first page"


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
        position = f"{self.run}:{self.event}{'+' if self.is_within else ''}"
        text = position if self.run == self.first else f"{self.first}/{position}"
        return cursor_of(text.encode())


class StoredPosition(Wire):
    """A position whose cursor has all of its fields. `subject` is what it belongs to, for errors.

    Anybody can read and make such a cursor, so its fields are validated.
    """

    subject: ClassVar[str]

    @classmethod
    def of(cls, cursor: str) -> Self:
        """Return the position of a cursor.

        Raises:
            InvalidRequestError: The value is not a cursor.
        """
        try:
            return cls.model_validate_json(position_in(cursor, cls.subject))
        except ValidationError:
            raise no_cursor(cursor, cls.subject) from None

    def cursor(self) -> str:
        """Return the position as a cursor."""
        return cursor_of(self.model_dump_json().encode())


def read(text: str, subject: str = "turn events") -> Cursor:
    """Return the cursor with this text, of `subject`.

    Raises:
        InvalidRequestError: It is not a cursor.
    """
    match = _PLACE.fullmatch(position_in(text, subject).decode(errors="replace"))
    if match is None:
        raise no_cursor(text, subject)
    first, run = match["first"] or match["run"], match["run"]
    return Cursor(first, run, int(match["event"]), is_within=bool(match["within"]))


def of_token(token: bytes, query: str) -> str | None:
    """Return the cursor of the next page of a list; None without a token.

    Args:
        token: Temporal's token of the next page.
        query: The filter of the list, in Temporal's words.
    """
    return cursor_of(_digest(token, query) + token) if token else None


def token_in(cursor: str | None, query: str) -> bytes:
    """Return Temporal's token from the cursor of a page; empty without a cursor.

    Raises:
        InvalidRequestError: It is not a cursor of a list with this filter.
    """
    if cursor is None:
        return b""
    position = position_in(cursor, _OF_LISTS)
    digest, token = position[:_DIGEST_BYTES], position[_DIGEST_BYTES:]
    if not token or digest != _digest(token, query):
        raise no_cursor(cursor, _OF_LISTS)
    return token


def _digest(token: bytes, query: str) -> bytes:
    """Return a checksum, which finds mistakes; anybody can compute it."""
    return hashlib.sha256(query.encode() + b"\n" + token).digest()[:_DIGEST_BYTES]
