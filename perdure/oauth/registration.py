"""The registration of clients at authorization servers (RFC 7591)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, get_args
from urllib.parse import urlsplit

from pydantic import ValidationError

from perdure.oauth.discovery import AuthorizationServer
from perdure.oauth.failures import OAuthError
from perdure.oauth.fetching import ANSWER_BYTES, OK, asked_of
from perdure.oauth.token_requests import ClientAuth
from perdure.text import is_loopback, one_line, quoted

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthClientInformationFull

KEPT = timedelta(hours=1)
"""How long a client that was registered is used for further logins, because an authorization server
may forget it without telling."""
_CREATED = 201
_AUTHS: Sequence[ClientAuth] = get_args(ClientAuth)


@dataclass(frozen=True)
class RegisteredClient:
    """A client of an authorization server; `until` is in seconds since 1970."""

    id: str
    secret: str | None
    auth: ClientAuth
    until: float = float("inf")


_registered: dict[tuple[str, str], RegisteredClient] = {}
"""The clients that this process has registered, by issuer and redirect address."""


async def registered(server: AuthorizationServer, redirect_uri: str) -> RegisteredClient:
    """Return a client of this process at an authorization server, registered if necessary.

    Raises:
        OAuthError: The server registers none, or none that can be used.
    """
    now = time.time()
    for key, client in list(_registered.items()):
        if client.until <= now:
            del _registered[key]
    key = (server.issuer, redirect_uri)
    if key not in _registered:
        _registered[key] = await _register(server, redirect_uri)
    return _registered[key]


def forget(issuer: str, client_id: str) -> None:
    """Forget a client that an authorization server does not know any more."""
    for key, client in list(_registered.items()):
        if key[0] == issuer and client.id == client_id:
            del _registered[key]


async def _register(server: AuthorizationServer, redirect_uri: str) -> RegisteredClient:
    from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

    if not server.registration_endpoint:
        raise OAuthError(
            f"the authorization server {server.issuer} registers no clients by itself; register a"
            f" client there, with the redirect address {redirect_uri}, and name it with login=…"
        )
    auth = _auth_of(server)
    is_local = is_loopback(urlsplit(redirect_uri).hostname or "")
    request = OAuthClientMetadata.model_validate(
        {
            "client_name": "Perdure",
            "redirect_uris": [redirect_uri],
            "token_endpoint_auth_method": auth,
            "application_type": "native" if is_local else "web",
        }
    )
    answer = await asked_of(
        "POST",
        server.registration_endpoint,
        max_bytes=ANSWER_BYTES,
        json={
            **request.model_dump(mode="json", exclude_none=True),
            "redirect_uris": [redirect_uri],  # exactly as logins name it
        },
    )
    if answer.status not in (OK, _CREATED):
        raise OAuthError(
            f"the authorization server {server.issuer} does not register a client:"
            f" {answer.reason()}; register one there, and name it with login=…"
        )
    try:
        return _client(OAuthClientInformationFull.model_validate(answer.body), auth, server.issuer)
    except ValidationError:
        raise OAuthError(f"{answer.url} answers with no client that can be read") from None


def _auth_of(server: AuthorizationServer) -> ClientAuth:
    """Return how a new client is to say who it is: without a secret, if the server takes that.

    Raises:
        OAuthError: The server takes none of the ways.
    """
    supported = server.client_auths or ["client_secret_basic"]  # what RFC 8414 says of silence
    for auth in _AUTHS:
        if auth in supported:
            return auth
    raise OAuthError(
        f"the authorization server {server.issuer} wants clients that say who they are by"
        f" {quoted(one_line(', '.join(supported), 100))}; Perdure knows {', '.join(_AUTHS)}"
    )


def _client(answer: OAuthClientInformationFull, auth: ClientAuth, issuer: str) -> RegisteredClient:
    """Return the client of an answer, which may be another one than what was asked for.

    Raises:
        OAuthError: It cannot be used.
    """
    named = answer.token_endpoint_auth_method or auth
    chosen = next((one for one in _AUTHS if one == named), None)
    if chosen is None or (chosen != "none" and not answer.client_secret):
        raise OAuthError(
            f"the authorization server {issuer} registers a client with"
            f" {quoted(one_line(named, 100))} that has no secret, or that is not known"
        )
    until = time.time() + KEPT.total_seconds()
    if answer.client_secret_expires_at:  # 0 is never
        until = min(until, answer.client_secret_expires_at)
    secret = None if chosen == "none" else answer.client_secret
    return RegisteredClient(answer.client_id, secret, chosen, until)
