"""Data keys in a file of SQLite, for processes that share a disk."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator

from perdure.temporal.encryption.sql_keys import SqlCursor, SqlKeys

_PATIENCE_S = 5.0
_MODE = 0o600


class SqliteKeys(SqlKeys):
    """A store in a file, which is made with its first use.

    A key that is destroyed is overwritten in the file, and there is no write-ahead log that could
    still have it.
    """

    blob = "BLOB"
    place = "?"

    def __init__(self, path: str) -> None:
        super().__init__(f"the file {path}")
        self._path = path

    @contextlib.contextmanager
    def connected(self) -> Iterator[SqlCursor]:
        """Connect, and commit at the end of the block."""
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, _MODE))
        connection = sqlite3.connect(self._path, timeout=_PATIENCE_S)
        try:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA secure_delete = ON")
            with connection:
                yield connection.cursor()
        finally:
            connection.close()
