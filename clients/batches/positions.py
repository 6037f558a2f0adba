"""The cursors of results: how far each part of a batch was read."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from perdure import errors
from perdure.clients.reading.cursors import StoredPosition

_DIGITS = 12


class ResultPosition(StoredPosition):
    """A position in the results of a batch.

    The parts of the round before `part` were read whole, and of a later part the number of results
    in `seen`. `batch` is the beginning of the digest of its tasks.
    """

    subject: ClassVar[str] = "a batch's results"

    batch: str
    round: int = Field(default=1, ge=1)
    part: int = Field(default=1, ge=1)
    seen: dict[int, int] = {}

    @classmethod
    def begin(cls, digest: str) -> ResultPosition:
        """Return the beginning of the results of a batch, by the digest of its tasks."""
        return cls(batch=digest[:_DIGITS])


def position_of(cursor: str | None, digest: str) -> ResultPosition:
    """Return the position of a cursor; without a cursor, the beginning.

    Raises:
        StaleCursorError: The cursor belongs to another batch.
        InvalidRequestError: The value is not a cursor.
    """
    start = ResultPosition.begin(digest)
    if cursor is None:
        return start
    position = ResultPosition.of(cursor)
    if position.batch != start.batch:
        raise errors.StaleCursorError(
            "the cursor belongs to another batch; read the results from the beginning"
        )
    return position
