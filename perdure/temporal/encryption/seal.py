"""What a browser or another server keeps for a process, sealed: nobody can read or change it."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12


class Seal:
    """Seals values with keys that several processes may share.

    Args:
        ciphers: The ciphers of the keys. The first seals, and what each of them has sealed opens.
        use: What distinguishes this use of the keys from others.
    """

    def __init__(self, ciphers: Sequence[AESGCM], use: bytes = b"") -> None:
        self._ciphers, self._use = ciphers, use

    @classmethod
    def of_secret(cls, secret: str | None, use: bytes) -> Seal:
        """Return a seal with a key of a long, random secret; None is a key of this process."""
        material = secret.encode() if secret is not None else secrets.token_bytes(32)
        return cls((AESGCM(hashlib.sha256(use + material).digest()),))

    def close(self, purpose: str, value: Mapping[str, Any], lifetime: timedelta) -> str:
        """Return a value of JSON, sealed for a purpose and for so long."""
        until = time.time() + lifetime.total_seconds()
        content = json.dumps({**value, "until": until}).encode()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._ciphers[0].encrypt(nonce, content, self._use + purpose.encode())
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, purpose: str, sealed: str) -> Mapping[str, Any] | None:
        """Return a value; None if it was sealed otherwise, or for no longer than until now.

        Its `until` is the time until which it is sealed, in seconds since 1970.
        """
        try:
            content = base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
        except ValueError:
            return None
        nonce, rest = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
        for cipher in self._ciphers:
            try:
                opened = cipher.decrypt(nonce, rest, self._use + purpose.encode())
            except (InvalidTag, ValueError):
                continue
            value: Mapping[str, Any] = json.loads(opened)
            return value if value["until"] > time.time() else None
        return None
