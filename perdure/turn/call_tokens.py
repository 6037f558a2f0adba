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
from perdure.values.messages import ToolCall

_MAC_BYTES = 16
_PREFIX = "call_"


@dataclass(frozen=True, slots=True)
class TurnRun:
    """The turn whose calls have tokens: its id, and the end of the id of its first run."""

    turn_id: str
    run: str


@dataclass(frozen=True, slots=True)
class CallToken:
    """A token, as it was read.

    Attributes:
        turn_id: The id of the turn.
        key: The key of the call, without its attempt.
        call: The digest of the call, so that another one at the same place has another token.
        mac: The MAC of these.
    """

    turn_id: str
    key: ToolKey
    call: str
    mac: bytes

    def is_made_with(self, secret: str) -> bool:
        """Return whether the token was made with this secret."""
        expected = _mac(secret, _content(self.turn_id, self.key, self.call))
        return bool(secret) and hmac.compare_digest(expected, self.mac)


def make(secret: str, turn_id: str, key: ToolKey, call: str) -> str:
    """Return the token of a call: letters, digits, dashes and underscores."""
    content = _content(turn_id, key, call)
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
        turn_id, step, place, call = raw[_MAC_BYTES:].decode().rsplit("\n", 3)
        token = CallToken(turn_id, ToolKey(int(step), int(place)), call, raw[:_MAC_BYTES])
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


def proof_of(token: str) -> str:
    """Return what is recorded in place of a token, from which it does not follow: 16 digits."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()[:16]


def digest_of(call: ToolCall, run: str) -> str:
    """Return the digest of a call: 16 hexadecimal digits.

    As the idempotency key of the call, it is the same after a reset to a point before it, if the
    call has the same arguments then. `run` is the end of the id of the first run of the turn.
    """
    text = "\n".join((run, call.name, call.arguments))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _content(turn_id: str, key: ToolKey, call: str) -> bytes:
    return f"{turn_id}\n{key.step}\n{key.call}\n{call}".encode("utf-8", "replace")


def _mac(secret: str, content: bytes) -> bytes:
    return hmac.digest(secret.encode(), content, hashlib.sha256)[:_MAC_BYTES]
