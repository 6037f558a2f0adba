"""The tokens of calls whose result comes later. Pure.

A token names the turn and the call, and proves that a worker has made it: it has a MAC with the
secret of the turn's agent, which only the history of the turn holds.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

from perdure import errors
from perdure.turn.keys import ToolKey

_MAC_BYTES = 16
_PREFIX = "call_"


@dataclass(frozen=True, slots=True)
class CallToken:
    """A token, as it was read.

    Attributes:
        turn_id: The id of the turn.
        key: The key of the call, without its attempt.
        run: The end of the id of the first run of the turn.
        mac: The MAC of these.
    """

    turn_id: str
    key: ToolKey
    run: str
    mac: bytes

    def is_made_with(self, secret: str) -> bool:
        """Return whether the token was made with this secret."""
        expected = _mac(secret, _content(self.turn_id, self.key, self.run))
        return bool(secret) and hmac.compare_digest(expected, self.mac)


def make(secret: str, turn_id: str, key: ToolKey, run: str) -> str:
    """Return the token of a call: letters, digits, dashes and underscores."""
    content = _content(turn_id, key, run)
    encoded = base64.urlsafe_b64encode(_mac(secret, content) + content)
    return _PREFIX + encoded.decode().rstrip("=")


def parse(text: str) -> CallToken:
    """Return what a token says, which is not proven yet.

    Raises:
        InvalidRequestError: It is no token.
    """
    try:
        encoded = text.removeprefix(_PREFIX)
        raw = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        turn_id, step, call, run = raw[_MAC_BYTES:].decode().rsplit("\n", 3)
        token = CallToken(turn_id, ToolKey(int(step), int(call)), run, raw[:_MAC_BYTES])
    except (ValueError, binascii.Error):
        raise not_open() from None
    if not text.startswith(_PREFIX) or not turn_id:
        raise not_open()
    return token


def not_open() -> errors.InvalidRequestError:
    """Return the error of a token that is none, or not of an open call."""
    return errors.InvalidRequestError(
        "this is not the token of an open call; send ctx.call_token as the tool got it, unchanged"
    )


def _content(turn_id: str, key: ToolKey, run: str) -> bytes:
    return f"{turn_id}\n{key.step}\n{key.call}\n{run}".encode("utf-8", "replace")


def _mac(secret: str, content: bytes) -> bytes:
    return hmac.digest(secret.encode(), content, hashlib.sha256)[:_MAC_BYTES]
