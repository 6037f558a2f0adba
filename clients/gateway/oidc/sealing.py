"""What a browser keeps for a gateway: sealed, so that it can neither be read nor changed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_CONTEXT = b"perdure cookies 1\n"


class Seal:
    """Seals values with a key, which several processes may share.

    Args:
        secret: What the key is derived from: long and random. None for a key of this process alone.
    """

    def __init__(self, secret: str | None) -> None:
        material = secret.encode() if secret is not None else secrets.token_bytes(32)
        self._cipher = AESGCM(hashlib.sha256(_CONTEXT + material).digest())

    def close(self, purpose: str, value: Mapping[str, Any], lifetime: timedelta) -> str:
        """Return a value, sealed for a purpose and for so long."""
        until = time.time() + lifetime.total_seconds()
        content = json.dumps({**value, "until": until}).encode()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, content, purpose.encode())
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, purpose: str, sealed: str) -> Mapping[str, Any] | None:
        """Return a value; None if it was sealed otherwise, or for no longer than until now."""
        try:
            content = base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
            nonce, rest = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
            value = json.loads(self._cipher.decrypt(nonce, rest, purpose.encode()))
        except (InvalidTag, ValueError, binascii.Error):
            return None
        return value if value["until"] > time.time() else None
