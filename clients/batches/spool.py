"""The tasks of a batch in a temporary file, while they are read, checked and uploaded.

A batch may have more tasks than memory holds. The file also finds ids that are used twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from perdure.values.batch_items import BatchItem

_TABLE = "CREATE TABLE items (place INTEGER PRIMARY KEY, line INTEGER, id TEXT UNIQUE, item TEXT)"
_ROWS = 100


class Spool:
    """An ordered collection of tasks on disk, which is deleted at the end of the block."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("")  # a temporary file of SQLite
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute(_TABLE)
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, item: BatchItem, line: int = 0) -> None:
        """Add a task. `line` is where it was read.

        Raises:
            KeyError: Its id is taken.
            ValueError: It is no JSON.
        """
        row = (self.count + 1, line, item.id, item.model_dump_json(exclude_defaults=True))
        try:
            self._file.execute("INSERT INTO items VALUES (?, ?, ?, ?)", row)
        except sqlite3.IntegrityError:
            raise KeyError(item.id) from None
        self.count += 1

    def line_of(self, item_id: str) -> int:
        """Return where the task with an id was read."""
        row = self._file.execute("SELECT line FROM items WHERE id = ?", (item_id,)).fetchone()
        return int(row[0])

    def __iter__(self) -> Iterator[BatchItem]:
        """Yield the tasks in their order."""
        return self._rows("SELECT item FROM items ORDER BY place")

    def by_id(self) -> Iterator[BatchItem]:
        """Yield the tasks in the order of their ids, however they were added."""
        return self._rows("SELECT item FROM items ORDER BY id")

    def _rows(self, query: str) -> Iterator[BatchItem]:
        cursor = self._file.execute(query)
        while rows := cursor.fetchmany(_ROWS):
            yield from (BatchItem.model_validate_json(row[0]) for row in rows)
