"""People who log in on the page: by authorization code with PKCE, with a session in a cookie.

The cookie is sealed, so the gateway stores nothing, and any process with the same key knows the
session. A browser sends it by itself, so each request with it must come from the gateway's page.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpx
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from perdure import errors, limits
from perdure.clients.gateway.auth import Caller, origins_of
from perdure.clients.gateway.oidc.claims import ClaimsTable
from perdure.clients.gateway.oidc.issuer import Issuer, Metadata
from perdure.clients.gateway.oidc.tokens import BadTokenError, Claims, TokenRules, verified
from perdure.clients.gateway.own_address import address_of
from perdure.clients.gateway.problems import RefusedError, response_to
from perdure.clients.gateway.static_page import NOT_STORED, card, root_of
from perdure.oauth.failures import OAuthError
from perdure.oauth.fetching import OK, asked_of
from perdure.oauth.token_requests import challenge_of, with_client
from perdure.temporal.encryption.seal import Seal
from perdure.text import one_line

_LOGIN, _CALLBACK, _LOGOUT = "/ui/login", "/ui/callback", "/ui/logout"
_READS = ("GET", "HEAD")
_COOKIES = b"perdure cookies 1\n"
_AT_ONCE = 20
"""The logins of a process for which the identity provider is asked at the same time."""
_PLACE = re.compile(r"(chat\.html)?(#(?!token=)[!-~]{0,1000})?")
"""Where the page goes on after a login: one of its own addresses, and none that brings a token."""


@dataclass(frozen=True)
class LoginClient:
    """The client of the identity provider as which the page logs people in.

    Attributes:
        id: Its id there.
        secret: Its secret, unless it is a public client.
        cookie_key: What sessions are sealed with: long and random, and the same in all processes
            of a gateway. None for a key of this process alone.

    Raises:
        ConfigurationError: The id is empty, or the key is too short.
    """

    id: str
    secret: str | None = None
    cookie_key: str | None = None

    def __post_init__(self) -> None:
        if not self.id:
            raise errors.ConfigurationError("the client of the page needs an id")
        if self.cookie_key is not None and len(self.cookie_key) < limits.COOKIE_KEY_CHARACTERS:
            raise errors.ConfigurationError(
                f"the key of cookies has fewer than {limits.COOKIE_KEY_CHARACTERS} characters; make"
                " a random one: openssl rand -hex 32"
            )


class Login:
    """Logs people in and out, and knows them by their cookies."""

    def __init__(
        self, issuer: Issuer, table: ClaimsTable, client: LoginClient, url: str | None
    ) -> None:
        self._issuer, self._table, self._client, self._url = issuer, table, client, url
        self._seal = Seal.of_secret(client.cookie_key, _COOKIES)
        # what another table or provider has made of a person does not hold here; sorted, because
        # sets have another order in another process
        settings = json.dumps([issuer.url, client.id, table.model_dump()], default=sorted)
        self._session = f"session {hashlib.sha256(settings.encode()).hexdigest()}"
        self._is_secure = url is not None and url.startswith("https:")
        prefix = "__Host-perdure" if self._is_secure else "perdure"
        self._session_cookie, self._login_cookie = f"{prefix}-session", f"{prefix}-login"
        self._exchanges = asyncio.Semaphore(_AT_ONCE)

    def path(self, request: Request) -> str:
        """Return the path where a person logs in."""
        return f"{root_of(request)}{_LOGIN}"

    def caller_of(self, request: Request) -> Caller | None:
        """Return the caller of the session of a request; None without one.

        Raises:
            RefusedError: The request has one, and may be of a page of another site.
        """
        sealed = request.cookies.get(self._session_cookie)
        session = self._seal.open(self._session, sealed) if sealed else None
        if session is None:
            return None
        self._check_origin(request)
        request.state.valid_until = session["until"]
        request.state.session_ends_at = session["until"]
        return self._table.known(
            subject=session["subject"],
            tenant=session["tenant"],
            may=frozenset(session["may"]),
            identity=f"{self._issuer.url} {session['sub']}",
        )

    def _check_origin(self, request: Request) -> None:
        """Refuse what a page of another site has sent, or may have.

        Raises:
            RefusedError: It may be of such a page.
        """
        site = request.headers.get("sec-fetch-site")
        reads = request.method in _READS
        if site is not None:
            is_own = site == "same-origin" or (reads and site == "none")
        else:  # of a browser that does not send it, or of an address without https
            origin = request.headers.get("origin")
            is_own = reads if origin is None else origin in self._origins(request)
        if not is_own:
            raise RefusedError(
                403,
                "FORBIDDEN",
                "the request comes from the page of another site; a session is for the gateway's"
                " own page, and programs send a token",
            )

    def _origins(self, request: Request) -> list[str]:
        if self._url is None:
            return origins_of(request.headers)
        parts = urlsplit(self._url)
        return [f"{parts.scheme}://{parts.netloc}"]

    def routes(self) -> list[Route]:
        """Return the routes of the login, which come before the files of the page."""
        return [
            Route(_LOGIN, self._shown(self._begin), methods=["GET"]),
            Route(_CALLBACK, self._shown(self._complete), methods=["GET"]),
            Route(_LOGOUT, self._end, methods=["POST"]),
        ]

    def _shown(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint whose errors a person can read."""

        async def endpoint(request: Request) -> Response:
            try:
                response = await answer(request)
            except RefusedError as error:
                response = _refusal(request, error)
            except OAuthError as error:
                response = _refusal(request, RefusedError(502, "ISSUER_FAILED", str(error)))
            except BadTokenError as error:
                response = _refusal(request, RefusedError(403, "FORBIDDEN", str(error)))
            response.headers.update(NOT_STORED)
            return response

        return endpoint

    async def _begin(self, request: Request) -> Response:
        """Send a person to the identity provider."""
        redirect_uri = f"{address_of(request, self._url)}{_CALLBACK}"
        metadata = await self._metadata()
        place = request.query_params.get("to", "")
        login = {
            "state": secrets.token_urlsafe(),
            "nonce": secrets.token_urlsafe(),
            "verifier": secrets.token_urlsafe(48),
            "place": place if _PLACE.fullmatch(place) else "",
        }
        url = httpx.URL(metadata.authorization_endpoint).copy_merge_params(
            {
                "response_type": "code",
                "client_id": self._client.id,
                "redirect_uri": redirect_uri,
                "scope": self._table.scope,
                "state": login["state"],
                "nonce": login["nonce"],
                "code_challenge": challenge_of(login["verifier"]),
                "code_challenge_method": "S256",
            }
        )
        response = RedirectResponse(str(url), HTTPStatus.SEE_OTHER)
        sealed = self._seal.close("login", login, limits.HTTP_LOGIN)
        # lax, because the identity provider sends the browser back here
        self._set(response, self._login_cookie, sealed, limits.HTTP_LOGIN.seconds, "lax")
        return response

    async def _complete(self, request: Request) -> Response:
        """Begin the session of a person whom the identity provider has sent back."""
        query = request.query_params
        login = self._login_of(request)
        if "error" in query:
            said = " ".join(query.get(name, "") for name in ("error", "error_description"))
            raise RefusedError(
                403, "FORBIDDEN", f"the identity provider says: {one_line(said, 300)}"
            )
        if query.get("iss", self._issuer.url) != self._issuer.url or "code" not in query:
            raise RefusedError(400, "INVALID_REQUEST", "this is no answer of the identity provider")
        async with self._exchanges:
            redirect_uri = f"{address_of(request, self._url)}{_CALLBACK}"
            claims = await self._exchange(query["code"], login, redirect_uri)
        caller = self._table.caller(claims)
        if not caller.may:
            raise RefusedError(
                403,
                "FORBIDDEN",
                f"{caller.subject} may do nothing here; ask the operator of the gateway",
            )
        place = f"{root_of(request)}/ui/{login['place']}"
        response = RedirectResponse(place, HTTPStatus.SEE_OTHER)
        response.delete_cookie(self._login_cookie, secure=self._is_secure, httponly=True)
        session = {
            "sub": claims["sub"],
            "subject": caller.subject,
            "tenant": caller.tenant,
            "may": sorted(caller.may),
        }
        sealed = self._seal.close(self._session, session, limits.HTTP_SESSION)
        self._set(response, self._session_cookie, sealed, limits.HTTP_SESSION.seconds, "strict")
        return response

    def _login_of(self, request: Request) -> Mapping[str, Any]:
        """Return the login that a person has begun in this browser.

        Raises:
            RefusedError: There is none, or another one.
        """
        sealed = request.cookies.get(self._login_cookie, "")
        login = self._seal.open("login", sealed)
        state = request.query_params.get("state", "")
        if login is None or not hmac.compare_digest(login["state"].encode(), state.encode()):
            minutes = limits.HTTP_LOGIN.seconds // 60
            raise RefusedError(
                403,
                "FORBIDDEN",
                f"this login was not begun in this browser, or more than {minutes} minutes ago, or"
                " in another process with another PERDURE_COOKIE_KEY; log in again",
            )
        return login

    async def _metadata(self) -> Metadata:
        metadata = await self._issuer.metadata()
        if not metadata.authorization_endpoint or not metadata.token_endpoint:
            raise OAuthError(f"the identity provider {self._issuer.url} has no login for people")
        return metadata

    async def _exchange(self, code: str, login: Mapping[str, Any], redirect_uri: str) -> Claims:
        """Return what the identity provider says about the person who has brought a code.

        Raises:
            RefusedError: It refuses the code, or cannot be read.
            OAuthError: It does not answer, or with something else.
            BadTokenError: Its token is not taken.
        """
        metadata = await self._metadata()
        data = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": login["verifier"],
        }
        data, headers = with_client(
            data, self._client.id, self._client.secret, metadata.client_auth
        )
        answer = await asked_of("POST", metadata.token_endpoint, data=data, headers=headers)
        token = answer.body.get("id_token")
        if answer.status != OK or not isinstance(token, str):
            raise RefusedError(
                403, "FORBIDDEN", f"the identity provider does not take the code: {answer.reason()}"
            )
        rules = TokenRules((self._client.id,), is_id=True, nonce=login["nonce"])
        claims = await verified(token, self._issuer, rules)
        return {**await self._more_of(metadata, answer.body, claims["sub"]), **claims}

    async def _more_of(self, metadata: Metadata, tokens: Claims, subject: str) -> Claims:
        """Return what the identity provider tells about a person besides the token.

        Many write the claims of a scope there alone (OpenID Connect Core, 5.4).
        """
        access = tokens.get("access_token")
        if not metadata.userinfo_endpoint or not isinstance(access, str):
            return {}
        headers = {"Authorization": f"Bearer {access}"}
        answer = await asked_of("GET", metadata.userinfo_endpoint, headers=headers)
        if answer.status != OK or answer.body.get("sub") != subject:
            raise OAuthError(f"{metadata.userinfo_endpoint} does not say who has logged in")
        return answer.body

    async def _end(self, request: Request) -> Response:
        """End the session of this browser."""
        try:
            self._check_origin(request)
        except RefusedError as error:
            return response_to(error)
        response = Response(status_code=HTTPStatus.NO_CONTENT)
        response.delete_cookie(self._session_cookie, secure=self._is_secure, httponly=True)
        return response

    def _set(self, response: Response, name: str, value: str, seconds: int, same_site: Any) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            secure=self._is_secure,
            httponly=True,
            samesite=same_site,
        )


def _refusal(request: Request, error: RefusedError) -> Response:
    back = f"{root_of(request)}/ui/", "Back to the page"
    response = card(request, "Nobody is logged in", [error.detail], error.status, back)
    response.headers.update(error.headers or {})
    return response
