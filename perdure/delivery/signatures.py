"""Signatures of Standard Webhooks: those of the webhooks that are sent, and of hooks that come in.

A secret is `whsec_` and the base64 of its bytes. The HMAC-SHA256 covers the id of the message, the
time of sending and the body.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

PREFIX = "whsec_"
"""The beginning of every secret."""
SECRET_BYTES = range(24, 65)
"""The number of bytes of a secret."""


def key_of(secret: str) -> bytes:
    """Return the bytes of a secret.

    Raises:
        ValueError: It is not one; the message says what one is, and not the secret.
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or len(key) not in SECRET_BYTES:
        raise ValueError(
            f"{PREFIX!r} and the base64 of {SECRET_BYTES[0]} to {SECRET_BYTES[-1]} bytes"
        )
    return key


def signed_before_body(message_id: str, timestamp: int) -> bytes:
    """Return what is signed before the body. `timestamp` is in seconds since 1970."""
    return f"{message_id}.{timestamp}.".encode()


def digest(key: bytes, before: bytes, body: bytes) -> bytes:
    """Return the HMAC-SHA256 of a body and what is signed before it. The body is not copied."""
    code = hmac.new(key, before, hashlib.sha256)
    code.update(body)
    return code.digest()
