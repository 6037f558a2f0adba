"""The keys of data subjects as this process uses them: made, unwrapped, and kept for a short time.

A key that is kept is looked up again after `KEPT`, so a process uses it no longer than that after
its erasure. While the store does not answer, keys that are kept serve on for `KEPT_WHILE_AWAY`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from perdure import errors
from perdure.temporal.encryption import key_stores
from perdure.temporal.encryption.key_stores import KeyState, KeyStore, StoredKey
from perdure.temporal.encryption.marks import ERASED, NO_KEY, OF_SUBJECT
from perdure.text import described, one_line

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

logger = logging.getLogger("perdure")

T = TypeVar("T")

KEPT = timedelta(seconds=60)
"""How long a key is used before the store is asked for it again."""
KEPT_WHILE_AWAY = timedelta(minutes=15)
"""How long a key is used while the store does not answer."""
_KEY_BYTES, _ID_BYTES, _NONCE_BYTES = 32, 12, 12
_ASKS, _PAUSE_S = 2, 0.2
_AWAY_S = 5.0
"""How long the store is not asked for a key that is kept, after it has not answered."""
_KEYS_KEPT = 10_000
_WORDS = 200
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class _Kept:
    """A key, or the note of what is encrypted with it, and the monotonic time of the answer."""

    cipher: AESGCM | bytes
    at: float


class SubjectKeys:
    """The keys of data subjects, in a store.

    Attributes:
        store: The store.
        masters: The names of the keys that wrap them.
        seal: Seals what only processes with these masters can read.

    Args:
        store: The store.
        masters: The keys that wrap them, by their names; the first wraps new keys.
        clock: Returns a monotonic time in seconds.
    """

    def __init__(
        self,
        store: KeyStore,
        masters: Mapping[str, bytes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        from perdure.temporal.encryption.seal import Seal

        self.store = store
        self._cipher_of = AESGCM
        self._masters = {name: AESGCM(key) for name, key in masters.items()}
        self.masters = tuple(masters)
        self._first = self.masters[0]
        self._clock = clock
        self.seal = Seal(tuple(self._masters.values()), b"perdure-sealed\0")
        self._kept: dict[str, _Kept] = {}
        self._away_until = 0.0

    def cipher_now(self, key: str) -> AESGCM | bytes:
        """Return a key, in this thread; or the note for what is encrypted with it.

        Raises:
            KeyStoreError: The store does not answer.
        """
        kept, now = self._kept.get(key), self._clock()
        if kept is not None and self._serves(kept, now):
            return kept.cipher
        try:
            stored = self._asked(lambda: self.store.get(key))
        except errors.KeyStoreError as error:
            self._away_until = now + _AWAY_S
            if kept is None or now - kept.at > KEPT_WHILE_AWAY.total_seconds():
                raise
            logger.warning("keys that are known are used on: %s", error.message)
            return kept.cipher
        self._away_until = 0.0
        if stored is None:
            return NO_KEY
        cipher = self._opened(stored)
        self._forget_old(now)
        self._kept[key] = _Kept(cipher, now)
        return cipher

    async def cipher(self, key: str) -> AESGCM | bytes:
        """Return a key, or the note for what is encrypted with it.

        Raises:
            KeyStoreError: The store does not answer.
        """
        kept = self._kept.get(key)
        if kept is not None and self._serves(kept, self._clock()):
            return kept.cipher
        return await asyncio.to_thread(self.cipher_now, key)

    async def id_for(self, subject: str) -> str:
        """Return the id of the key with which something new of a subject is encrypted.

        Raises:
            ErasedError: The subject is being erased; or it was, and must not return.
            KeyStoreError: The store does not answer.
        """
        return await asyncio.to_thread(self._id_for, subject)

    async def subject_of(self, key: str) -> str:
        """Return the data subject of a key.

        Raises:
            KeyStoreError: The store does not answer, or has never had the key.
        """
        stored = await self.ask(lambda: self.store.get(key))
        if stored is None:
            raise errors.KeyStoreError(f"{self.store.name} has no key {key}")
        return stored.subject

    async def known(self, subject: str) -> list[StoredKey]:
        """Return the keys of a subject, the oldest first.

        Raises:
            KeyStoreError: The store does not answer.
        """
        return await self.ask(lambda: self.store.of_subject(subject))

    async def in_use(self) -> AsyncIterator[StoredKey]:
        """Yield the keys that are not erased, which are read page by page.

        Raises:
            ConfigurationError: The store cannot list them.
            KeyStoreError: It does not answer.
        """
        if getattr(self.store, "in_use", None) is None:
            raise errors.ConfigurationError(
                f"{self.store.name} cannot list its keys; give it the method `in_use(after, limit)`"
                " of perdure.temporal.encryption.key_stores.KeyStore"
            )
        after = ""
        while page := await self.ask(partial(self.store.in_use, after, _PAGE)):
            for key in page:
                yield key
            after = page[-1].id

    async def rewrap(self, key: StoredKey) -> bool:
        """Wrap a key with the first key of the environment, if it is wrapped with another one.

        Returns:
            Whether it could be unwrapped; if not, nothing was done.

        Raises:
            KeyStoreError: The store does not answer.
        """
        if key.master == self._first:
            return self._unwrapped(key) is not None
        return await asyncio.to_thread(self._wrap_again, key)

    async def begin_erasure(self, subject: str) -> None:
        """Start nothing more of a subject.

        Raises:
            KeyStoreError: The store does not answer.
        """
        await self.ask(lambda: self.store.begin_erasure(subject))

    async def destroy(self, subject: str) -> list[StoredKey]:
        """Destroy the keys of a subject, and return what the store has of them afterwards.

        Raises:
            KeyStoreError: The store does not answer, or still has a key.
        """
        await self.ask(lambda: self.store.destroy(subject, datetime.now(UTC)))
        keys = await self.known(subject)
        if any(key.wrapped or key.state != KeyState.ERASED for key in keys):
            raise errors.KeyStoreError(
                f"{self.store.name} still has a key of the subject after it was destroyed; erase it"
                " again"
            )
        for key in keys:
            self._kept.pop(key.id, None)
        return keys

    async def check(self) -> None:
        """Do nothing if the store answers.

        Raises:
            KeyStoreError: It does not.
        """
        await self.ask(self.store.check)

    def _id_for(self, subject: str) -> str:
        keys = self._asked(lambda: self.store.of_subject(subject))
        used = next((key for key in keys if key.state != KeyState.ERASED), None)
        if used is None:
            if keys and not key_stores.erased_may_return():
                raise errors.ErasedError(
                    f"the data subject {subject!r} was erased, and"
                    f" {key_stores.REUSE_VARIABLE}=refuse keeps anything new of it from being"
                    " started"
                )
            new = self._wrapped(subject)
            used = self._asked(lambda: self.store.add(new))
        if used.state == KeyState.ERASING:
            raise errors.ErasedError(
                f"the data subject {subject!r} is being erased, so nothing new of it is started;"
                " `perdure erase` ends this"
            )
        if used.master != self._first:
            self._wrap_again(used)
        return used.id

    def _wrapped(self, subject: str) -> StoredKey:
        id = OF_SUBJECT + secrets.token_hex(_ID_BYTES)
        key = StoredKey(
            id=id, subject=subject, master="", wrapped=b"", created_at=datetime.now(UTC)
        )
        return self._wrapping(key, secrets.token_bytes(_KEY_BYTES))

    def _wrapping(self, key: StoredKey, plain: bytes) -> StoredKey:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._masters[self._first].encrypt(nonce, plain, _bound_to(key))
        return replace(key, master=self._first, wrapped=nonce + sealed)

    def _wrap_again(self, key: StoredKey) -> bool:
        """Wrap a key with the first key of the environment; return whether it was unwrapped."""
        plain = self._unwrapped(key)
        if plain is None:
            return False
        new = self._wrapping(key, plain)
        self._asked(lambda: self.store.wrap_again(key.id, new.master, new.wrapped))
        return True

    def _opened(self, key: StoredKey) -> AESGCM | bytes:
        if key.state == KeyState.ERASED:
            at = "" if key.erased_at is None else key.erased_at.isoformat(timespec="seconds")
            return ERASED + at.encode()
        plain = self._unwrapped(key)
        return NO_KEY if plain is None else self._cipher_of(plain)

    def _unwrapped(self, key: StoredKey) -> bytes | None:
        from cryptography.exceptions import InvalidTag

        master = self._masters.get(key.master)
        if master is None:
            return None
        nonce, sealed = key.wrapped[:_NONCE_BYTES], key.wrapped[_NONCE_BYTES:]
        with contextlib.suppress(InvalidTag, ValueError):
            return master.decrypt(nonce, sealed, _bound_to(key))
        return None

    def _serves(self, kept: _Kept, now: float) -> bool:
        """Return whether a key that is kept is used without asking the store."""
        is_final = isinstance(kept.cipher, bytes) and kept.cipher != NO_KEY
        age = now - kept.at
        return (
            is_final
            or age < KEPT.total_seconds()
            or (now < self._away_until and age < KEPT_WHILE_AWAY.total_seconds())
        )

    def _forget_old(self, now: float) -> None:
        """Drop keys that are no longer used, so that memory has few of them."""
        limit = KEPT_WHILE_AWAY.total_seconds()
        for name, kept in list(self._kept.items()):
            if now - kept.at > limit or len(self._kept) >= _KEYS_KEPT:
                self._kept.pop(name, None)

    async def ask(self, ask: Callable[[], T]) -> T:
        """Return an answer of the store.

        Raises:
            KeyStoreError: It does not answer.
        """
        return await asyncio.to_thread(self._asked, ask)

    def _asked(self, ask: Callable[[], T]) -> T:
        """Return an answer of the store, which is asked twice.

        Raises:
            KeyStoreError: It does not answer.
        """
        for last in range(_ASKS - 1, -1, -1):
            with self._translated():
                try:
                    return ask()
                except errors.PerdureError:
                    raise
                except Exception:  # any error of a driver; another attempt may help
                    if not last:
                        raise
            time.sleep(_PAUSE_S)
        raise AssertionError  # the last attempt returns or raises

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except errors.PerdureError:
            raise
        except Exception as error:
            raise errors.KeyStoreError(
                f"the keys of data subjects cannot be read or written: {self.store.name} does not"
                f" answer ({one_line(described(error), _WORDS)})"
            ) from error


def _bound_to(key: StoredKey) -> bytes:
    """Return what is authenticated with a wrapped key, so that rows cannot be exchanged."""
    return b"\0".join((b"perdure-data-key", key.id.encode(), key.subject.encode()))


def of(codec: Any) -> SubjectKeys | None:
    """Return the keys of data subjects of a codec; None if it has none."""
    data_keys = getattr(codec, "data_keys", None)
    return data_keys if isinstance(data_keys, SubjectKeys) else None
