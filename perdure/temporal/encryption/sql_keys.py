"""Data keys and secrets in tables of a database, as SQLite and PostgreSQL have them."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Protocol

from perdure.temporal.encryption.key_stores import KeyState, StoredKey, StoredSecret

_TABLE = """
CREATE TABLE IF NOT EXISTS perdure_subject_keys (
    id TEXT PRIMARY KEY,
    subject TEXT NOT NULL,
    master TEXT NOT NULL,
    wrapped {blob} NOT NULL,
    state TEXT NOT NULL,
    created_at TEXT NOT NULL,
    erased_at TEXT
)
"""
_ONE_KEY = """
CREATE UNIQUE INDEX IF NOT EXISTS perdure_subject_keys_in_use
ON perdure_subject_keys (subject) WHERE state <> 'erased'
"""
_SECRETS = """
CREATE TABLE IF NOT EXISTS perdure_subject_secrets (
    subject TEXT NOT NULL,
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    sealed {blob} NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (subject, name)
)
"""
_COLUMNS = "id, subject, master, wrapped, state, created_at, erased_at"
_SELECT = f"SELECT {_COLUMNS} FROM perdure_subject_keys"  # noqa: S608 - no values


class SqlCursor(Protocol):
    """The part of a cursor of Python's database interface that is used."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Any:
        """Execute a statement."""

    def fetchall(self) -> list[Any]:
        """Return the rows of the last statement."""


class SqlKeys(ABC):
    """A store in a database. Subclasses connect to it.

    Attributes:
        name: What errors call it.
    """

    blob: str
    place: str

    def __init__(self, name: str) -> None:
        self.name = name
        self._is_set_up = False

    @abstractmethod
    def connected(self) -> AbstractContextManager[SqlCursor]:
        """Connect, and commit at the end of the block."""

    def purge(self) -> None:  # noqa: B027 - SQLite overwrites at once
        """Overwrite what the database still has of rows that were changed."""

    def check(self) -> None:
        """Do nothing if the store answers."""
        self._rows("SELECT 1")

    def get(self, key: str) -> StoredKey | None:
        """Return a key by its id; None if the store has never had it."""
        rows = self._rows(f"{_SELECT} WHERE id = ?", key)
        return _key(rows[0]) if rows else None

    def of_subject(self, subject: str) -> list[StoredKey]:
        """Return all keys of a subject, the oldest first, erased keys included."""
        rows = self._rows(f"{_SELECT} WHERE subject = ? ORDER BY created_at, id", subject)
        return [_key(row) for row in rows]

    def in_use(self, after: str, limit: int) -> list[StoredKey]:
        """Return at most so many keys that are not erased, after an id and in the order of ids."""
        rows = self._rows(
            f"{_SELECT} WHERE id > ? AND state <> 'erased' ORDER BY id LIMIT ?", after, limit
        )
        return [_key(row) for row in rows]

    def add(self, key: StoredKey) -> StoredKey:
        """Store a key, unless the subject has a key that is not erased. Returns that of the two."""
        with self._ready() as cursor:
            cursor.execute(
                self._of(
                    f"INSERT INTO perdure_subject_keys ({_COLUMNS})"  # noqa: S608 - no values
                    " VALUES (?, ?, ?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING"
                ),
                (
                    *(key.id, key.subject, key.master, key.wrapped, key.state.value),
                    key.created_at.isoformat(),
                ),
            )
            cursor.execute(
                self._of(f"{_SELECT} WHERE subject = ? AND state <> 'erased'"), (key.subject,)
            )
            [row] = cursor.fetchall()
        return _key(row)

    def wrap_again(self, key: str, master: str, wrapped: bytes) -> None:
        """Replace the wrapping of a key, unless it is erased meanwhile."""
        self._rows(
            "UPDATE perdure_subject_keys SET master = ?, wrapped = ?"
            " WHERE id = ? AND state <> 'erased' RETURNING id",
            *(master, wrapped, key),
        )

    def begin_erasure(self, subject: str) -> None:
        """Set the active key of a subject to `erasing`."""
        self._rows(
            "UPDATE perdure_subject_keys SET state = 'erasing'"
            " WHERE subject = ? AND state = 'active' RETURNING id",
            subject,
        )

    def destroy(self, subject: str, at: datetime) -> None:
        """Destroy the keys of a subject so that they cannot be restored, and keep their ids."""
        self._rows(
            "UPDATE perdure_subject_keys SET state = 'erased', master = '', wrapped = ?,"
            " erased_at = ? WHERE subject = ? AND state <> 'erased' RETURNING id",
            *(b"", at.isoformat(), subject),
        )
        self._rows("DELETE FROM perdure_subject_secrets WHERE subject = ? RETURNING name", subject)
        self.purge()

    def secret(self, subject: str, name: str) -> StoredSecret | None:
        """Return a secret; None if there is none."""
        rows = self._rows(
            "SELECT key, sealed, version FROM perdure_subject_secrets"
            " WHERE subject = ? AND name = ?",
            *(subject, name),
        )
        if not rows:
            return None
        [(key, sealed, version)] = rows
        return StoredSecret(
            subject=subject, name=name, key=key, sealed=bytes(sealed), version=version
        )

    def put_secret(self, secret: StoredSecret, replaces: int | None) -> bool:
        """Store a secret instead of that of a version; with None, if there is none of the name.

        Returns False, and stores nothing, if that does not hold.
        """
        if replaces is None:
            return bool(
                self._rows(
                    "INSERT INTO perdure_subject_secrets (subject, name, key, sealed, version)"
                    " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING version",
                    *(secret.subject, secret.name, secret.key, secret.sealed, secret.version),
                )
            )
        return bool(
            self._rows(
                "UPDATE perdure_subject_secrets SET key = ?, sealed = ?, version = ?"
                " WHERE subject = ? AND name = ? AND version = ? RETURNING version",
                *(secret.key, secret.sealed, secret.version),
                *(secret.subject, secret.name, replaces),
            )
        )

    def drop_secret(self, subject: str, name: str) -> None:
        """Destroy a secret, if there is one."""
        self._rows(
            "DELETE FROM perdure_subject_secrets WHERE subject = ? AND name = ? RETURNING name",
            *(subject, name),
        )

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        with self._ready() as cursor:
            cursor.execute(self._of(statement), values)
            return cursor.fetchall()

    @contextlib.contextmanager
    def _ready(self) -> Iterator[SqlCursor]:
        with self.connected() as cursor:
            if not self._is_set_up:
                cursor.execute(_TABLE.format(blob=self.blob))
                cursor.execute(_ONE_KEY)
                cursor.execute(_SECRETS.format(blob=self.blob))
                self._is_set_up = True
            yield cursor

    def _of(self, statement: str) -> str:
        return statement.replace("?", self.place)


def _key(row: Sequence[Any]) -> StoredKey:
    id, subject, master, wrapped, state, created_at, erased_at = row
    return StoredKey(
        id=id,
        subject=subject,
        master=master,
        wrapped=bytes(wrapped),
        state=KeyState(state),
        created_at=_moment(created_at),
        erased_at=None if erased_at is None else _moment(erased_at),
    )


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
