"""An identity provider: its discovery document, and its keys, which are read again as they change.

pyjwt's own client of keys blocks, does not limit what it reads, and does not look for an unknown
key within 30 s of its last request, which refuses the tokens of a key that has just rotated in.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import jwt

from perdure import errors, limits
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.rates import Buckets, Rate
from perdure.oauth.failures import OAuthError
from perdure.oauth.fetching import OK, asked_of, check_named_url, check_url
from perdure.oauth.token_requests import ClientAuth, secret_auth
from perdure.text import quoted

logger = logging.getLogger("perdure")

_ENDPOINTS = ("jwks_uri", "authorization_endpoint", "token_endpoint", "userinfo_endpoint")
_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The types of keys, by the beginnings of algorithms. A symmetric one is never taken: its key would
be one that everybody can read."""
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)


class OtherIssuerError(OAuthError):
    """The discovery document is that of another issuer."""


@dataclass(frozen=True)
class Metadata:
    """What the discovery document says.

    Attributes:
        jwks_uri: Where the keys are.
        authorization_endpoint: Where people log in; empty if it says nothing.
        token_endpoint: Where a code is exchanged; the same.
        userinfo_endpoint: Where more is known of a person; the same.
        client_auth: How a client sends its secret.
    """

    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    userinfo_endpoint: str = ""
    client_auth: ClientAuth = "client_secret_basic"


class Issuer:
    """An identity provider.

    Attributes:
        url: Its identifier, which its tokens name.

    Args:
        url: Its identifier.
        clock: Returns a monotonic time in seconds.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        check_url(url, "the issuer")
        self.url = url
        self._clock = clock
        self._metadata: Metadata | None = None
        self._keys: Sequence[Mapping[str, Any]] = ()
        self._made: dict[tuple[str | None, str], jwt.PyJWK] = {}
        self._read_at = float("-inf")
        self._failed_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._looks = Buckets(Rate(limits.OIDC_LOOKS, limits.OIDC_LOOK * limits.OIDC_LOOKS))

    async def check(self) -> None:
        """Read the document and the keys for the first time.

        One that does not answer is asked again later; the log has the reason.

        Raises:
            ConfigurationError: The document is that of another issuer.
        """
        try:
            await self._read()
        except OtherIssuerError as error:
            raise errors.ConfigurationError(str(error)) from None
        except OAuthError as error:
            self._note_failure(error)

    async def metadata(self) -> Metadata:
        """Return what the document says.

        Raises:
            RefusedError: It could not be read so far.
        """
        await self._refresh()
        if self._metadata is None:
            raise self._down()
        return self._metadata

    async def key(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        """Return the key of a token, which may have rotated in; None if there is none.

        Raises:
            RefusedError: The keys could not be read so far.
        """
        await self._refresh()
        key = self._find(key_id, algorithm)
        if key is None and self._looks.take(None) == 0:
            await self._reads()
            key = self._find(key_id, algorithm)
        if not self._keys:
            raise self._down()
        return key

    @property
    def age_s(self) -> float:
        """How long ago the keys were read."""
        return self._clock() - self._read_at

    def _find(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        """Return the key of an id. Without an id, it is the only one that fits, or none."""
        made = self._made.get((key_id, algorithm))
        if made is not None:
            return made
        fitting = [key for key in self._keys if _fits(key, key_id, algorithm)]
        if not fitting or (key_id is None and len(fitting) > 1):
            return None
        try:
            made = jwt.PyJWK(cast("Any", fitting[0]), algorithm)
        except jwt.PyJWTError:
            return None
        self._made[key_id, algorithm] = made
        return made

    async def _refresh(self) -> None:
        """Read the keys again if they are old.

        Nobody waits for that, unless they are twice as old, as after a pause without requests, and
        the provider has not failed lately: an outage would otherwise hold up every caller.
        """
        age = timedelta(seconds=min(self.age_s, limits.OIDC_KEPT.total_seconds() + 1))
        if age < limits.OIDC_FRESH:
            return
        if age > limits.OIDC_KEPT:
            self._keys, self._made = (), {}
        reading = self._reads()
        since_failure_s = self._clock() - self._failed_at
        has_failed = since_failure_s < limits.OIDC_FRESH.total_seconds()
        if not self._keys or (age > 2 * limits.OIDC_FRESH and not has_failed):
            await reading

    def _reads(self) -> asyncio.Future[None]:
        """Begin to read, unless that goes on or has just failed; others wait for the same."""
        if self._reading is None:
            if self._clock() - self._failed_at < limits.OIDC_RETRY.total_seconds():
                done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                done.set_result(None)
                return done
            self._reading = asyncio.create_task(self._try())
        return asyncio.shield(self._reading)

    async def _try(self) -> None:
        try:
            await self._read()
        except OAuthError as error:
            self._note_failure(error)
        finally:
            self._reading = None

    def _note_failure(self, error: OAuthError) -> None:
        self._failed_at = self._clock()
        goes_on = "the known keys are used" if self._keys else "none of its tokens can be verified"
        logger.warning("the identity provider could not be read, so %s: %s", goes_on, error)

    async def _read(self) -> None:
        """Read the document and the keys.

        Raises:
            OAuthError: One of them cannot be read.
        """
        metadata = _metadata_of(self.url, await _document(_discovery(self.url)))
        keys = _keys_of(await _document(metadata.jwks_uri, limits.OIDC_KEYS_BYTES))
        self._metadata, self._keys, self._made = metadata, keys, {}
        self._read_at = self._clock()

    def _down(self) -> RefusedError:
        return RefusedError(
            503,
            "ISSUER_UNREACHABLE",
            f"the identity provider {self.url} cannot be read, so the token cannot be verified; try"
            " again later",
            headers={"Retry-After": str(limits.OIDC_RETRY.seconds)},
        )


def _discovery(issuer: str) -> str:
    return f"{issuer.rstrip('/')}/.well-known/openid-configuration"


async def _document(url: str, max_bytes: int = limits.OIDC_DOCUMENT_BYTES) -> Mapping[str, Any]:
    answer = await asked_of("GET", url, max_bytes=max_bytes)
    if answer.status != OK:
        raise OAuthError(f"{url} answers {answer.status}")
    return answer.body


def _metadata_of(issuer: str, document: Mapping[str, Any]) -> Metadata:
    """Return what a discovery document says.

    Raises:
        OtherIssuerError: It is that of another issuer.
        OAuthError: It names no address of the keys, or one that is not safe.
    """
    named = document.get("issuer")
    if named != issuer:
        raise OtherIssuerError(
            f"the document at {_discovery(issuer)} is that of the issuer {quoted(str(named))}, not"
            f" of {quoted(issuer)}; give the issuer exactly as its document does, with or without a"
            " slash at its end"
        )
    urls = {name: url for name in _ENDPOINTS if isinstance(url := document.get(name), str) and url}
    for name, url in urls.items():
        check_named_url(url, f"{name} of {issuer}", issuer)
    if "jwks_uri" not in urls:
        raise OAuthError(f"the document at {_discovery(issuer)} has no jwks_uri")
    methods = document.get("token_endpoint_auth_methods_supported")
    return Metadata(**urls, client_auth=secret_auth(methods))


def _keys_of(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the keys of a set that can verify signatures.

    Raises:
        OAuthError: There are none, or too many.
    """
    listed = document.get("keys")
    if not isinstance(listed, list) or len(listed) > limits.OIDC_KEYS:
        raise OAuthError(f"its keys are no list of at most {limits.OIDC_KEYS} keys")
    types = set(_TYPES.values())
    keys = [key for key in listed if isinstance(key, dict) and key.get("kty") in types]
    if not keys:
        raise OAuthError("it has no key that verifies signatures")
    return keys


def _fits(key: Mapping[str, Any], key_id: str | None, algorithm: str) -> bool:
    return (
        (key_id is None or key.get("kid") == key_id)
        and key.get("kty") == _TYPES[algorithm[:2]]
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
    )
