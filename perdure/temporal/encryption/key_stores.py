"""Where the keys of data subjects are kept: the protocol of such a store, and those that there are.

A store has the keys wrapped, which means encrypted with a key of the environment. So who has only
the store can read nothing, and what is destroyed there is gone although the key of the environment
is still known. It is never a part of Temporal's database or of its backups.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

from perdure import errors
from perdure.temporal.encryption import user_objects

VARIABLE = "PERDURE_SUBJECT_KEYS"
REUSE_VARIABLE = "PERDURE_ERASED_SUBJECTS"
_POSTGRES = ("postgresql://", "postgres://")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_REUSE = {"allow": True, "refuse": False}


class KeyState(StrEnum):
    """The state of a data key.

    `erasing` keeps new work from being started with it, and what runs can still end.
    """

    ACTIVE = "active"
    ERASING = "erasing"
    ERASED = "erased"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredKey:
    """A data key as it is stored.

    Attributes:
        id: Its id, which is random. It is in the payloads that it encrypts.
        subject: The data subject.
        master: The name of the key of the environment that it is wrapped with; empty once it is
            erased.
        wrapped: The wrapped key; empty once it is erased.
        state: Its state.
        created_at: The time at which it was made.
        erased_at: The time at which it was destroyed; None before.
    """

    id: str
    subject: str
    master: str
    wrapped: bytes
    state: KeyState = KeyState.ACTIVE
    created_at: datetime
    erased_at: datetime | None = None


class KeyStore(Protocol):
    """A store of data keys. Its methods are called in threads, and may block.

    At most one key of a subject is not erased. An exception means that the store does not answer.

    Attributes:
        name: What errors call it; no password.
    """

    name: str

    def check(self) -> None:
        """Do nothing if the store answers."""

    def get(self, key: str) -> StoredKey | None:
        """Return a key by its id; None if the store has never had it."""

    def of_subject(self, subject: str) -> list[StoredKey]:
        """Return all keys of a subject, the oldest first, erased keys included."""

    def in_use(self, after: str, limit: int) -> list[StoredKey]:
        """Return at most so many keys that are not erased, in the order of their ids.

        They come after the id `after`, which is empty for the first page; a page with none is the
        last.
        """

    def add(self, key: StoredKey) -> StoredKey:
        """Store a key, unless the subject has a key that is not erased. Returns that of the two."""

    def wrap_again(self, key: str, master: str, wrapped: bytes) -> None:
        """Replace the wrapping of a key, unless it is erased meanwhile."""

    def begin_erasure(self, subject: str) -> None:
        """Set the active key of a subject to `erasing`."""

    def destroy(self, subject: str, at: datetime) -> None:
        """Destroy the keys of a subject so that they cannot be restored, and keep their ids."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSecret:
    """A secret of a data subject as it is stored: encrypted with the data key of the subject.

    Attributes:
        subject: The data subject.
        name: Its name.
        key: The id of the data key.
        sealed: The encrypted secret.
        version: Another number with each change.
    """

    subject: str
    name: str
    key: str
    sealed: bytes
    version: int


@runtime_checkable
class SecretStore(Protocol):
    """A key store that keeps secrets of data subjects as well, as those of Perdure do.

    `KeyStore.destroy` destroys the secrets of the subject, too.
    """

    def secret(self, subject: str, name: str) -> StoredSecret | None:
        """Return a secret; None if there is none."""

    def put_secret(self, secret: StoredSecret, replaces: int | None) -> bool:
        """Store a secret instead of that of a version; with None, if there is none of the name.

        Returns False, and stores nothing, if that does not hold.
        """

    def drop_secret(self, subject: str, name: str) -> None:
        """Destroy a secret, if there is one."""


def from_environment() -> KeyStore | None:
    """Return the store that the environment names; None without one.

    Raises:
        ConfigurationError: It cannot be used.
    """
    target = os.environ.get(VARIABLE)
    if target is None:
        return None
    if not target.strip():
        raise errors.ConfigurationError(
            f"{VARIABLE} is empty; name a file, a postgresql:// address or module:function, or"
            " unset it"
        )
    erased_may_return()
    if target.startswith(_POSTGRES):
        from perdure.temporal.encryption.postgres_keys import PostgresKeys

        return PostgresKeys(target)
    if _FUNCTION.fullmatch(target):
        example = "for a function called `store` in keys.py it is keys:store"
        function = user_objects.load(target, VARIABLE, example=example)
        store: KeyStore = user_objects.called(function, target, VARIABLE)
        return store
    from perdure.temporal.encryption.sqlite_keys import SqliteKeys

    return SqliteKeys(target)


def refuse_without_keys() -> None:
    """Refuse a store without the keys that wrap what it has.

    Raises:
        ConfigurationError: There is a store.
    """
    if os.environ.get(VARIABLE) is not None:
        raise errors.ConfigurationError(
            f"{VARIABLE} is set without PERDURE_ENCRYPTION_KEYS, whose first key wraps the keys of"
            " data subjects; set both, or none"
        )


def erased_may_return() -> bool:
    """Return whether a subject that was erased may get a new key.

    Raises:
        ConfigurationError: The variable has another value.
    """
    value = os.environ.get(REUSE_VARIABLE, "allow").strip().lower()
    if value not in _REUSE:
        raise errors.ConfigurationError(
            f"{REUSE_VARIABLE} must be one of {', '.join(_REUSE)}, not {value!r}"
        )
    return _REUSE[value]
