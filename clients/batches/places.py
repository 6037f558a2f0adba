"""The cursors of results: how far each part of a batch was read."""

from __future__ import annotations

from pydantic import Field, ValidationError

from perdure import errors
from perdure.base import Wire
from perdure.temporal.access import cursor_of, no_cursor, position_in

_DIGITS = 12
_OF_RESULTS = "a batch's results"


class Place(Wire):
    """A place in the results of a batch.

    The parts of the round before `part` were read whole, and of a later part the number of results
    in `seen`. `batch` is the beginning of the digest of its tasks.
    """

    batch: str
    round: int = Field(default=1, ge=1)
    part: int = Field(default=1, ge=1)
    seen: dict[int, int] = {}

    @classmethod
    def begin(cls, digest: str) -> Place:
        """Return the beginning of the results of a batch, by the digest of its tasks."""
        return cls(batch=digest[:_DIGITS])

    @classmethod
    def of(cls, cursor: str) -> Place:
        """Return the place of a cursor.

        Raises:
            InvalidRequestError: The value is not a cursor.
        """
        try:
            return cls.model_validate_json(position_in(cursor, _OF_RESULTS))
        except ValidationError:
            raise no_cursor(cursor, _OF_RESULTS) from None

    def cursor(self) -> str:
        """Return the place as a cursor."""
        return cursor_of(self.model_dump_json().encode())


def place_of(cursor: str | None, digest: str) -> Place:
    """Return the place of a cursor; without a cursor, the beginning.

    Raises:
        StaleCursorError: The cursor belongs to another batch.
        InvalidRequestError: The value is not a cursor.
    """
    start = Place.begin(digest)
    if cursor is None:
        return start
    position = Place.of(cursor)
    if position.batch != start.batch:
        raise errors.StaleCursorError(
            "the cursor belongs to another batch; read the results from the beginning"
        )
    return position
