"""Tokens of an identity provider: what must hold before somebody is believed to be who they say.

What costs nothing is checked first, so that no signature is verified and no key is fetched for a
token that could not be taken anyway.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from perdure import limits
from perdure.clients.gateway.oidc.issuer import ALGORITHMS, Issuer
from perdure.text import one_line, quoted

Claims = Mapping[str, Any]

_ACCESS_TYPES = ("at+jwt", "application/at+jwt")
_PLAIN_TYPES = ("", "jwt", *_ACCESS_TYPES)
_OF_ID_TOKENS = ("nonce", "at_hash", "c_hash")
_ACCESS_KINDS = ("", "bearer", "at+jwt")
"""What Keycloak writes into the claim `typ` of an access token, or others into none."""
_SUB_CHARACTERS = 255
_LEEWAY_S = limits.OIDC_LEEWAY.total_seconds()


class BadTokenError(Exception):
    """A token is not taken; the message says why."""


@dataclass(frozen=True)
class TokenRules:
    """What must hold for a token.

    Attributes:
        audiences: For whom it is: one of them.
        is_id: Whether it says who has logged in, as the page needs it; otherwise it gives access.
        takes_plain: Whether an access token may have the type `JWT`, which tells it from no other.
        nonce: What a token about a login must repeat.
    """

    audiences: Collection[str]
    is_id: bool = False
    takes_plain: bool = False
    nonce: str = ""


async def verified(token: str, issuer: Issuer, rules: TokenRules) -> Claims:
    """Return the claims of a token.

    Raises:
        BadTokenError: It is not taken.
        RefusedError: The keys of the issuer cannot be read.
    """
    header, claims = _parts(token)
    algorithm, key_id = _algorithm_of(header), header.get("kid")
    _check_type(header, claims, rules)
    _check_claims(claims, issuer.url, rules)
    key = await issuer.key(key_id, algorithm)
    if key is None:
        named = quoted(one_line(str(key_id), 100)) if key_id else "without an id"
        raise BadTokenError(
            f"the token is signed with the key {named}, and the identity provider had no such key"
            f" for {algorithm} {issuer.age_s:.0f} s ago"
        )
    try:
        return _claims_of(token, key, algorithm, issuer.url, rules)
    except jwt.InvalidSignatureError:
        raise BadTokenError("the signature of the token is not one of its issuer") from None
    except jwt.PyJWTError as error:
        raise BadTokenError(f"the token is not valid: {one_line(str(error), 200)}") from None


def _claims_of(
    token: str, key: jwt.PyJWK, algorithm: str, issuer: str, rules: TokenRules
) -> Claims:
    return jwt.decode(
        token,
        key,
        algorithms=[algorithm],
        audience=rules.audiences,
        issuer=issuer,
        leeway=limits.OIDC_LEEWAY,
        options={
            "require": ["iss", "aud", "sub", "exp"],
            "enforce_minimum_key_length": True,
        },
    )


def _parts(token: str) -> tuple[Claims, Claims]:
    """Return the header and the claims, which nobody has verified.

    Raises:
        BadTokenError: It is no JWT.
    """
    if len(token) > limits.OIDC_TOKEN_CHARACTERS:
        raise BadTokenError(f"the token is longer than {limits.OIDC_TOKEN_CHARACTERS} characters")
    try:
        parts = jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise BadTokenError("the token is no JWT that can be read") from None
    return parts["header"], parts["payload"]


def _algorithm_of(header: Claims) -> str:
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        named = quoted(one_line(str(algorithm), 40))
        raise BadTokenError(
            f"the token has the algorithm {named}; only signatures with a private key of the issuer"
            f" are taken: {', '.join(ALGORITHMS)}"
        )
    return str(algorithm)


def _check_type(header: Claims, claims: Claims, rules: TokenRules) -> None:
    """Check that a token about a login gives no access, nor the other way round (RFC 9068).

    Raises:
        BadTokenError: The token is of another kind.
    """
    named = str(header.get("typ") or "")
    kind = named.lower()
    if rules.is_id:
        if kind in _ACCESS_TYPES:
            raise BadTokenError("the token gives access; it does not say who has logged in")
        return
    if kind in _ACCESS_TYPES:
        return
    if not rules.takes_plain:
        raise BadTokenError(
            f"the token has the type {quoted(one_line(named, 40))}, not at+jwt (RFC 9068), so it"
            " may be no access token; have the provider write that type, or set plain_jwt = true in"
            " the file of --claims"
        )
    of_a_login = [name for name in _OF_ID_TOKENS if name in claims]
    other = str(claims.get("typ") or "").lower() not in _ACCESS_KINDS
    if kind not in _PLAIN_TYPES or of_a_login or other:
        raise BadTokenError(
            "the token is no access token, but one about a login or for something else"
        )


def _check_claims(claims: Claims, issuer: str, rules: TokenRules) -> None:
    """Check what a token says.

    Raises:
        BadTokenError: It says something else than it must.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= _SUB_CHARACTERS:
        raise BadTokenError("the token has no sub, which says whose it is")
    if claims.get("iss") != issuer:
        named = quoted(one_line(str(claims.get("iss")), 200))
        raise BadTokenError(f"the token is of the issuer {named}, not of {quoted(issuer)}")
    audience = claims.get("aud")
    named_audiences = audience if isinstance(audience, list) else [audience]
    if not any(name in rules.audiences for name in named_audiences if isinstance(name, str)):
        named = quoted(one_line(", ".join(map(str, named_audiences)), 200))
        raise BadTokenError(
            f"the token is for {named}, not for {', '.join(map(quoted, rules.audiences))}"
        )
    if rules.is_id and claims.get("nonce") != rules.nonce:
        raise BadTokenError("the token is of another login")
    if rules.is_id and len(named_audiences) > 1 and claims.get("azp") not in rules.audiences:
        raise BadTokenError("the token was issued to another client")
    _check_times(claims)


def _check_times(claims: Claims) -> None:
    """Check that a token is valid now, within what clocks may differ.

    Raises:
        BadTokenError: It is not, or has no end.
    """
    now = time.time()
    expires = _seconds(claims, "exp")
    if expires is None:
        raise BadTokenError("the token has no exp, which says how long it is valid")
    if now >= expires + _LEEWAY_S:
        raise BadTokenError(
            f"the token expired {now - expires:.0f} s ago, by the clock of this gateway; get"
            " another one"
        )
    for name in ("nbf", "iat"):
        begins = _seconds(claims, name)
        if begins is not None and begins > now + _LEEWAY_S:
            raise BadTokenError(
                f"the token is valid only in {begins - now:.0f} s (its {name}), by the clock of"
                " this gateway; one of the clocks is off by that, and at most"
                f" {_LEEWAY_S:.0f} s are allowed for"
            )


def _seconds(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and (not is_number or not abs(value) < 1e11):
        raise BadTokenError(f"the {name} of the token is no time")
    return value
