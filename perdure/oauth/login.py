"""A person's login for an MCP server: begin it, complete it, and refresh its tokens.

It is OAuth 2.1 with PKCE and resource indicators, as MCP's specification has it. Nothing is stored
here: what has to be kept is returned.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import httpx
from pydantic import ValidationError

from perdure import limits
from perdure.oauth import registration
from perdure.oauth.discovery import AuthorizationServer, protection_of, server_of
from perdure.oauth.failures import GrantRefusedError, OAuthError
from perdure.oauth.fetching import ANSWER_BYTES, OK, Fetched, asked_of, check_named_url
from perdure.oauth.token_requests import challenge_of, secret_auth, with_client
from perdure.oauth.values import BegunLogin, Tokens
from perdure.text import one_line

_OFFLINE = "offline_access"
_PASSING = ("server_error", "temporarily_unavailable")
"""Errors of a redirect that say nothing about the person (RFC 6749, 4.1.2.1)."""
_FINAL = ("invalid_grant", "invalid_client")
"""Errors of a token endpoint that another request does not change."""
_SECRETS = ("code", "code_verifier", "refresh_token")
_TOKEN = re.compile(rf"[!-~]{{1,{limits.OIDC_TOKEN_CHARACTERS}}}")
_SHOWN = 300
_SCOPE_CHARACTERS = 2_000
"""The length of the scopes that a login asks for."""
_LONGEST = timedelta(days=365)
"""The longest lifetime of an access token that is believed."""


async def begin(
    resource: str,
    redirect_uri: str,
    *,
    scopes: Sequence[str] = (),
    client_id: str = "",
    client_secret: str | None = None,
) -> tuple[str, BegunLogin]:
    """Begin a login.

    Args:
        resource: The address of the MCP server.
        redirect_uri: Where the authorization server sends the person back to.
        scopes: What to ask for. Without them it is what the refusal of the server names, or else
            what its metadata does.
        client_id: The id of a client that was registered by hand. Without one, this process
            registers a client.
        client_secret: The secret of that client, if it has one.

    Returns:
        The address to send the person to, and what `complete` needs.

    Raises:
        OAuthError: The MCP server or its authorization server cannot be used for a login.
    """
    from mcp.shared.auth_utils import resource_url_from_server_url

    for url, what in ((resource, "the MCP server"), (redirect_uri, "the redirect address")):
        check_named_url(url, what, url)
    protected = await protection_of(resource_url_from_server_url(resource))
    server = await server_of(protected.issuer)
    if client_id:
        auth = "none" if client_secret is None else secret_auth(server.client_auths)
        client = registration.RegisteredClient(client_id, client_secret, auth)
    else:
        client = await registration.registered(server, redirect_uri)
    begun = BegunLogin(
        resource=protected.resource,
        issuer=server.issuer,
        token_endpoint=server.token_endpoint,
        client_id=client.id,
        client_secret=client.secret,
        client_auth=client.auth,
        state=secrets.token_urlsafe(),
        verifier=secrets.token_urlsafe(48),
        redirect_uri=redirect_uri,
        scopes=_scopes(scopes or protected.scopes, server),
        iss_required=server.names_itself,
    )
    return _address(server, begun), begun


def _scopes(wanted: Sequence[str], server: AuthorizationServer) -> tuple[str, ...]:
    """Return what to ask for, with refresh tokens where the server lists them.

    Raises:
        OAuthError: It is too much for an address.
    """
    offline = [_OFFLINE] if _OFFLINE in server.scopes else []
    scopes = tuple(dict.fromkeys([*wanted, *offline]))
    if len(" ".join(scopes)) > _SCOPE_CHARACTERS:
        raise OAuthError(
            f"the scopes of a login have more than {_SCOPE_CHARACTERS} characters; name"
            " those that are needed"
        )
    return scopes


def _address(server: AuthorizationServer, begun: BegunLogin) -> str:
    """Return where the person logs in."""
    query = {
        "response_type": "code",
        "client_id": begun.client_id,
        "redirect_uri": begun.redirect_uri,
        "state": begun.state,
        "code_challenge": challenge_of(begun.verifier),
        "code_challenge_method": "S256",
        "resource": begun.resource,
    }
    if begun.scopes:
        query["scope"] = " ".join(begun.scopes)
    if _OFFLINE in begun.scopes:
        query["prompt"] = "consent"  # OpenID Connect Core, 11: without it, the scope is ignored
    return str(httpx.URL(server.authorization_endpoint).copy_merge_params(query))


async def complete(begun: BegunLogin, query: Mapping[str, str]) -> Tokens:
    """Complete the login of a person whom the authorization server has sent back.

    Args:
        begun: What `begin` has returned.
        query: The query of the redirect.

    Raises:
        GrantRefusedError: The person has declined, or the server refuses the login or its code.
        OAuthError: The redirect is not of this login, or the server cannot be used.
    """
    code = _code_of(begun, query)
    answer = await _answered(
        begun,
        {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": begun.redirect_uri,
            "code_verifier": begun.verifier,
        },
    )
    return _tokens(begun, answer)


def _code_of(begun: BegunLogin, query: Mapping[str, str]) -> str:
    """Return the code of a redirect.

    Raises:
        GrantRefusedError: The person has declined, or the server refuses.
        OAuthError: The redirect is not of this login.
    """
    if not hmac.compare_digest(
        query.get("state", "").encode("utf-8", "replace"), begun.state.encode()
    ):
        raise OAuthError("the answer is that of another login: its state differs; log in again")
    issuer = query.get("iss")
    if issuer is None and begun.iss_required:
        raise OAuthError(f"the answer does not name its issuer, as {begun.issuer} promises (iss)")
    if issuer is not None and issuer != begun.issuer:
        raise OAuthError(
            f"the answer is that of the issuer {one_line(issuer, _SHOWN)}, not of {begun.issuer}"
        )
    if "error" in query:
        reason = one_line(f"{query['error']} {query.get('error_description', '')}", _SHOWN)
        refused = OAuthError if query["error"] in _PASSING else GrantRefusedError
        raise refused(f"the authorization server {begun.issuer} says: {reason}")
    if not query.get("code"):
        raise OAuthError(f"the answer of the authorization server {begun.issuer} has no code")
    return query["code"]


async def refresh(tokens: Tokens) -> Tokens:
    """Return new tokens for old ones, which are void then if the server rotates refresh tokens.

    Raises:
        GrantRefusedError: There is no refresh token, or the server refuses it.
        OAuthError: The server cannot be used; the old tokens may be valid still.
    """
    if tokens.refresh_token is None:
        raise GrantRefusedError(f"{tokens.issuer} has given no refresh token for {tokens.resource}")
    answer = await _answered(
        tokens, {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
    )
    return _tokens(tokens, answer, tokens.refresh_token)


async def _answered(login: BegunLogin | Tokens, data: Mapping[str, str]) -> Fetched:
    """Return the good answer of a token endpoint.

    Raises:
        GrantRefusedError: It refuses the code or the refresh token.
        OAuthError: It answers something else.
    """
    form, headers = with_client(
        {**data, "resource": login.resource},
        login.client_id,
        login.client_secret,
        login.client_auth,
    )
    answer = await asked_of(
        "POST",
        login.token_endpoint,
        max_bytes=ANSWER_BYTES,
        data=form,
        headers=headers,
    )
    if answer.status == OK:
        return answer
    error = answer.body.get("error")
    if error == "invalid_client":  # of a client that was registered here, and has expired there
        registration.forget(login.issuer, login.client_id)
    hidden = [data[name] for name in _SECRETS if name in data]
    reason = answer.reason(login.client_secret or "", *hidden)
    refused = GrantRefusedError if error in _FINAL else OAuthError
    raise refused(f"the authorization server {login.issuer} says: {reason}")


def _tokens(
    login: BegunLogin | Tokens, answer: Fetched, refresh_token: str | None = None
) -> Tokens:
    """Return the tokens of an answer.

    Args:
        login: What they are for.
        answer: The answer.
        refresh_token: The refresh token that goes on if none comes.

    Raises:
        OAuthError: It has no token that can be used.
    """
    from mcp.shared.auth import OAuthToken

    try:
        token = OAuthToken.model_validate(answer.body)
    except ValidationError:
        raise OAuthError(f"{answer.url} answers with no bearer token that can be read") from None
    next_one = token.refresh_token or refresh_token
    if not all(
        _TOKEN.fullmatch(text) for text in (token.access_token, next_one) if text is not None
    ):
        raise OAuthError(
            f"{answer.url} answers with a token that is empty, has characters that no header has,"
            f" or more than {limits.OIDC_TOKEN_CHARACTERS} of them"
        )
    return Tokens(
        resource=login.resource,
        issuer=login.issuer,
        token_endpoint=login.token_endpoint,
        client_id=login.client_id,
        client_secret=login.client_secret,
        client_auth=login.client_auth,
        access_token=token.access_token,
        refresh_token=next_one,
        expires_at=_expiry(token.expires_in, answer.url),
        scopes=tuple(token.scope.split()) if token.scope else login.scopes,
    )


def _expiry(seconds: int | None, url: str) -> datetime | None:
    """Return when an access token ends.

    Raises:
        OAuthError: It ends before it begins.
    """
    if seconds is None:
        return None
    if seconds <= 0:
        raise OAuthError(f"{url} answers with a token that has expired")
    longest_s = _LONGEST.total_seconds()
    return datetime.now(UTC) + timedelta(seconds=min(seconds, longest_s))
