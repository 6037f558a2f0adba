"""How senders sign their deliveries, and where a delivery has its id.

All of them sign the raw bytes of the body with HMAC-SHA256. They differ in their headers, and in
what is signed before the body.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from pydantic import JsonValue

from perdure.clients.gateway.problems import RefusedError
from perdure.delivery.signatures import digest, key_of, signed_before_body

SchemeName = Literal["standard-webhooks", "github", "stripe", "slack"]
Headers = Mapping[str, str]
"""Headers by their names in lower case."""

_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)
_LEAST_CHARACTERS = 16
_STRIPE_FIELDS = 20


@dataclass(frozen=True, slots=True)
class Claim:
    """What the headers of a delivery claim, before its body is read.

    Attributes:
        before: What is signed before the body.
        signatures: The signatures; one of them has to fit.
        sent_at: When it was sent, in seconds since 1970; None if the sender does not sign a time.
    """

    before: bytes
    signatures: tuple[bytes, ...]
    sent_at: int | None = None

    def check_time(self, now: float, window: timedelta) -> None:
        """Refuse a delivery that was sent too long ago, or has a time to come.

        Raises:
            RefusedError: It was.
        """
        if self.sent_at is None:
            return
        age_s = now - self.sent_at
        if abs(age_s) > window.total_seconds():
            raise _unverified(
                f"the delivery was signed {abs(age_s):.0f} s {'ago' if age_s > 0 else 'ahead'}, and"
                f" this hook takes {window.total_seconds():.0f} s; send it again with a new time"
            )

    def check_body(self, keys: Sequence[bytes], body: bytes) -> None:
        """Refuse a body that none of the keys has signed.

        Raises:
            RefusedError: None has.
        """
        digests = [digest(key, self.before, body) for key in keys]
        if not any(
            hmac.compare_digest(made, signature)
            for made in digests
            for signature in self.signatures
        ):
            raise _unverified(
                "no signature of the delivery fits its body and a secret of this hook"
            )


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a sender signs its deliveries.

    Attributes:
        key: Returns the key of a secret. Raises ValueError with what a secret has to be.
        claim: Returns what the headers claim. Raises RefusedError if one is missing or not valid.
        delivery: Returns the id of a delivery; None if it has none.
        handshake: Returns the answer to a delivery that only tests the address; None for others.
    """

    key: Callable[[str], bytes]
    claim: Callable[[Headers], Claim]
    delivery: Callable[[Headers, JsonValue], str | None]
    handshake: Callable[[Headers, JsonValue], JsonValue] = lambda _headers, _body: None


def _unverified(detail: str) -> RefusedError:
    return RefusedError(401, "UNAUTHENTICATED", detail)


def _header(headers: Headers, name: str) -> str:
    """Return a header that has to be there.

    Raises:
        RefusedError: It is not.
    """
    if value := headers.get(name.lower()):
        return value
    raise _unverified(f"the delivery has no header {name}, so it cannot be verified")


def _seconds(text: str, name: str) -> int:
    """Return a time in seconds since 1970.

    Raises:
        RefusedError: It is none.
    """
    if _SECONDS.fullmatch(text):
        return int(text)
    raise _unverified(f"the time in {name} is not a number of seconds since 1970")


def _digests(texts: Iterable[str], read: Callable[[str], bytes], name: str) -> tuple[bytes, ...]:
    """Return the signatures that can be read.

    Raises:
        RefusedError: There is none.
    """
    digests = []
    for text in texts:
        try:
            digests.append(read(text))
        except (binascii.Error, ValueError):
            continue
    if not digests:
        raise _unverified(f"the header {name} has no signature that can be read")
    return tuple(digests)


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii"), validate=True)


def _plain_key(secret: str) -> bytes:
    if len(secret) < _LEAST_CHARACTERS:
        raise ValueError(f"a secret of at least {_LEAST_CHARACTERS} characters")
    return secret.encode()


def _text_at(document: JsonValue, name: str) -> str | None:
    """Return a text in a JSON object that is not empty; None if there is none."""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) and value else None


def _standard_claim(headers: Headers) -> Claim:
    message_id = _header(headers, "webhook-id")
    sent_at = _seconds(_header(headers, "webhook-timestamp"), "webhook-timestamp")
    name = "webhook-signature"
    versions = (part.partition(",") for part in _header(headers, name).split(" "))
    signatures = [signature for version, _, signature in versions if version == "v1"]
    before = signed_before_body(message_id, sent_at)
    return Claim(before, _digests(signatures, _from_base64, name), sent_at)


def _github_claim(headers: Headers) -> Claim:
    name = "X-Hub-Signature-256"
    algorithm, _, signature = _header(headers, name).partition("=")
    signatures = [signature] if algorithm == "sha256" else []
    return Claim(b"", _digests(signatures, bytes.fromhex, name))


def _github_ping(headers: Headers, _: JsonValue) -> JsonValue:
    return {"ok": True} if headers.get("x-github-event") == "ping" else None


def _stripe_claim(headers: Headers) -> Claim:
    name = "Stripe-Signature"
    parts = _header(headers, name).split(",", _STRIPE_FIELDS)
    fields = [(key.strip(), value.strip()) for key, _, value in (p.partition("=") for p in parts)]
    times = [value for key, value in fields if key == "t"]
    sent_at = _seconds(times[0] if len(times) == 1 else "", name)
    signatures = [value for key, value in fields if key == "v1"]
    return Claim(f"{sent_at}.".encode(), _digests(signatures, bytes.fromhex, name), sent_at)


def _slack_claim(headers: Headers) -> Claim:
    name = "X-Slack-Signature"
    sent_at = _seconds(_header(headers, "X-Slack-Request-Timestamp"), "X-Slack-Request-Timestamp")
    version, _, signature = _header(headers, name).partition("=")
    signatures = [signature] if version == "v0" else []
    return Claim(f"v0:{sent_at}:".encode(), _digests(signatures, bytes.fromhex, name), sent_at)


def _slack_challenge(_: Headers, document: JsonValue) -> JsonValue:
    if _text_at(document, "type") != "url_verification":
        return None
    return {"challenge": _text_at(document, "challenge")}


SCHEMES: Mapping[SchemeName, Scheme] = {
    "standard-webhooks": Scheme(
        key_of, _standard_claim, lambda headers, _: headers.get("webhook-id")
    ),
    "github": Scheme(
        _plain_key,
        _github_claim,
        lambda headers, _: headers.get("x-github-delivery"),
        _github_ping,
    ),
    "stripe": Scheme(_plain_key, _stripe_claim, lambda _, document: _text_at(document, "id")),
    "slack": Scheme(
        _plain_key,
        _slack_claim,
        lambda _, document: _text_at(document, "event_id"),
        _slack_challenge,
    ),
}
