"""A file with a line of JSON for each result of a batch, which can be completed later.

Each line has the cursor of its result, so the last whole line says where to read on. A line that
was cut off when the process was killed is removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError
from pydantic_core import to_json

from perdure import errors
from perdure.base import Wire
from perdure.clients.batches.positions import ResultPosition
from perdure.clients.batches.status import BatchResult, TaskState

_PAGE_BYTES = 64 * 1024
_BEGINNING = b'{"id":"'
"""The beginning of every line; a file may end anywhere in its first one."""


class _ResultLine(Wire):
    """The part of a line that is read again."""

    state: TaskState
    cursor: str


class ResultFile:
    """A file of results.

    Attributes:
        cursor: The cursor of the last result in it; None for a new file.
    """

    def __init__(self, path: Path, current_round: int) -> None:
        """Open the file.

        `current_round` is the batch's. Lines of tasks that an earlier round left without an answer
        are removed, because their results come again.

        Raises:
            InvalidRequestError: It cannot be opened, or has other content.
        """
        self._path = path
        try:
            self._check()
            self._remove_torn_line()
            last = self._last()
            self.cursor = last.cursor if last else None
            if last is not None and ResultPosition.of(last.cursor).round < current_round:
                self._keep_answers()
            self._file = path.open("ab")
        except OSError as error:
            raise errors.InvalidRequestError(
                f"{path} cannot be written: {error.strerror or error}"
            ) from None
        except ValidationError:
            raise errors.InvalidRequestError(
                f"{path} has something else than results of a batch; name another file"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, result: BatchResult[Any]) -> None:
        """Add a result."""
        self._file.write(to_json(result) + b"\n")
        self._file.flush()

    def _check(self) -> None:
        """Refuse a file that does not begin with a result.

        Raises:
            ValidationError: It does not.
        """
        first = next(self._lines(), b"")
        if first.endswith(b"\n") or not first.startswith(_BEGINNING[: len(first)]):
            _ResultLine.model_validate_json(first)

    def _remove_torn_line(self) -> None:
        """Remove what follows the last line break."""
        if not self._path.exists():
            return
        with self._path.open("r+b") as file:
            end = file.seek(0, os.SEEK_END)
            while end > 0:
                start = max(end - _PAGE_BYTES, 0)
                file.seek(start)
                at = file.read(end - start).rfind(b"\n")
                if at >= 0:
                    file.truncate(start + at + 1)
                    return
                end = start
            file.truncate(0)

    def _last(self) -> _ResultLine | None:
        last = None
        for line in self._lines():
            last = line
        return None if last is None else _ResultLine.model_validate_json(last)

    def _lines(self) -> Iterator[bytes]:
        if self._path.exists():
            with self._path.open("rb") as file:
                yield from file

    def _keep_answers(self) -> None:
        """Remove the lines of tasks without an answer."""
        replacement = self._path.with_name(f"{self._path.name}.new")
        with replacement.open("wb") as file:
            for line in self._lines():
                if _ResultLine.model_validate_json(line).state == TaskState.DONE:
                    file.write(line)
        replacement.replace(self._path)
