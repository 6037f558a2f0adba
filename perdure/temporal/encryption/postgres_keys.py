"""Data keys in a database of PostgreSQL, which the machines of an installation share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

from perdure import errors
from perdure.temporal.encryption.sql_keys import SqlCursor, SqlKeys

_PATIENCE_S = 5


class PostgresKeys(SqlKeys):
    """A store in a table of a database.

    A key that is destroyed stays in the log and the backups of the database as long as these are
    kept; only who also has a key of the environment could unwrap it.
    """

    blob = "BYTEA"
    place = "%s"

    def __init__(self, address: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise errors.ConfigurationError(
                "keys of data subjects in PostgreSQL need the extra: pip install"
                " 'perdure[postgres]'"
            ) from None
        parts = urlsplit(address)
        super().__init__(f"the database {parts.path.lstrip('/')!r} at {parts.hostname}")
        self._address = address
        self._connect = psycopg.connect

    @contextlib.contextmanager
    def connected(self) -> Iterator[SqlCursor]:
        """Connect, and commit at the end of the block."""
        with self._connect(self._address, connect_timeout=_PATIENCE_S) as connection:
            yield connection.cursor()

    def purge(self) -> None:
        """Have the database write the tables anew, without earlier versions of their rows."""
        with self._connect(
            self._address, connect_timeout=_PATIENCE_S, autocommit=True
        ) as connection:
            connection.execute("VACUUM FULL perdure_subject_keys, perdure_subject_secrets")
