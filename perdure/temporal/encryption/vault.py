"""Secrets of data subjects, such as the tokens of a login, beside the keys of the subjects.

A secret is encrypted with the data key of its subject, so the erasure of the subject is its end as
well. Nothing of it is in Temporal.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from functools import partial

from perdure import errors
from perdure.temporal.encryption.data_keys import SubjectKeys
from perdure.temporal.encryption.key_stores import SecretStore, StoredSecret

_NONCE_BYTES, _VERSION_BITS = 12, 62


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret that was read.

    Attributes:
        content: It; None if it cannot be read any more.
        version: What `Vault.write` takes to replace it.
    """

    content: bytes | None
    version: int


class Vault:
    """The secrets of data subjects.

    Raises:
        ConfigurationError: The store of the keys keeps no secrets.
    """

    def __init__(self, keys: SubjectKeys) -> None:
        if not isinstance(keys.store, SecretStore):
            raise errors.ConfigurationError(
                f"{keys.store.name} keeps no secrets, so nobody can log in at an MCP server: give"
                " it the methods of perdure.temporal.encryption.key_stores.SecretStore"
            )
        self._keys, self._store = keys, keys.store

    async def read(self, subject: str, name: str) -> Secret | None:
        """Return a secret; None if there is none.

        Raises:
            KeyStoreError: The store does not answer.
        """
        from cryptography.exceptions import InvalidTag

        stored = await self._stored(subject, name)
        if stored is None:
            return None
        cipher = await self._keys.cipher(stored.key)
        if isinstance(cipher, bytes):  # the key is erased, or wrapped with one that is not known
            return Secret(None, stored.version)
        nonce, sealed = stored.sealed[:_NONCE_BYTES], stored.sealed[_NONCE_BYTES:]
        content: bytes | None
        try:
            content = cipher.decrypt(nonce, sealed, _bound_to(subject, name))
        except (InvalidTag, ValueError):
            content = None
        return Secret(content, stored.version)

    async def write(
        self, subject: str, name: str, content: bytes, replaces: int | None
    ) -> int | None:
        """Write a secret instead of that of a version, or of none, and return its version.

        Returns None, and writes nothing, if another process has written or destroyed it meanwhile.

        Raises:
            ErasedError: The subject is being erased; or it was, and must not return.
            KeyStoreError: The store does not answer.
        """
        if replaces is not None and await self._stored(subject, name) is None:
            return None  # it is destroyed: its subject gets no new key for it
        key = await self._keys.id_for(subject)
        cipher = await self._keys.cipher(key)
        if isinstance(cipher, bytes):
            raise errors.KeyStoreError(f"the key {key} of {subject!r} cannot be used now")
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + cipher.encrypt(nonce, content, _bound_to(subject, name))
        # random, so that a secret is not taken for an earlier one that was destroyed
        version = secrets.randbits(_VERSION_BITS)
        secret = StoredSecret(subject=subject, name=name, key=key, sealed=sealed, version=version)
        is_written = await self._keys.ask(partial(self._store.put_secret, secret, replaces))
        return version if is_written else None

    async def _stored(self, subject: str, name: str) -> StoredSecret | None:
        return await self._keys.ask(partial(self._store.secret, subject, name))

    async def drop(self, subject: str, name: str) -> None:
        """Destroy a secret, if there is one.

        Raises:
            KeyStoreError: The store does not answer.
        """
        await self._keys.ask(partial(self._store.drop_secret, subject, name))


def _bound_to(subject: str, name: str) -> bytes:
    """Return what is authenticated with a secret, so that rows cannot be exchanged."""
    return b"\0".join((b"perdure-secret", subject.encode(), name.encode()))
