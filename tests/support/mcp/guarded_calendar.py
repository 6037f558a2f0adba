"""A calendar as an MCP server that needs a person's token, and a person who logs in for it.

It is made with the package `mcp`, listens on loopback in a thread, and verifies each token.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import jwt
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.testing import FakeIssuer


class Calendar:
    """A calendar with tokens of an issuer.

    Attributes:
        url: Its address, which is the audience of its tokens.
        events: The titles that were added, by person.
        scopes: The scopes that tools need, by their names; without one, the call is a 403.
        is_never_enough: Whether the tools are refused for want of their scopes to everybody.
        loses: Tools whose calls take effect, but whose answers get lost; all logins end then.
        requests: How many requests it has got.
        tokens: The tokens that it has taken.
    """

    def __init__(self, issuer: FakeIssuer, url: str) -> None:
        self.url = url
        self.events: dict[str, list[str]] = {}
        self.scopes: dict[str, str] = {}
        self.is_never_enough = False
        self.loses: set[str] = set()
        self.requests = 0
        self.tokens: set[str] = set()
        self._issuer = issuer

    async def verify_token(self, token: str) -> AccessToken | None:
        """What a token says; None for one that is not taken."""
        try:
            keys = jwt.PyJWKSet.from_dict(self._issuer.jwks)
            key = keys[jwt.get_unverified_header(token)["kid"]]
            claims = jwt.decode(
                token,
                key,
                algorithms=["RS256", "ES256"],
                audience=self.url,
                issuer=self._issuer.url,
                options={"require": ["iss", "aud", "sub", "exp"]},
            )
        except (jwt.PyJWTError, KeyError):
            return None
        if self._issuer.is_revoked(token):
            return None
        self.tokens.add(token)
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims.get("scope", "").split(),
            expires_at=claims["exp"],
            resource=self.url,
            subject=claims["sub"],
            claims=claims,
        )

    def app(self) -> ASGIApp:
        """The server."""
        settings = AuthSettings.model_validate(
            {
                "issuer_url": self._issuer.url,
                "resource_server_url": self.url,
                "validate_token_resource": True,
            }
        )
        server: MCPServer[Any] = MCPServer("calendar", auth=settings, token_verifier=self)

        @server.tool()
        def whoami() -> str:
            """Who the caller is."""
            return _person()

        @server.tool()
        def add_event(title: str) -> str:
            """Adds an event to the calendar of the caller."""
            events = self.events.setdefault(_person(), [])
            events.append(title)
            return f"{title} is event {len(events)} of {_person()}"

        return self._scoped(server.streamable_http_app(stateless_http=True))

    def _scoped(self, app: ASGIApp) -> ASGIApp:
        """The server with the scopes of its tools."""

        async def scoped(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            self.requests += 1
            body = await Request(scope, receive).body()
            needed = self.scopes.get(_tool_of(body), "")
            bearer = dict(scope["headers"]).get(b"authorization", b"").decode()
            token = await self.verify_token(bearer.removeprefix("Bearer "))
            has = [] if token is None or self.is_never_enough else token.scopes
            if token is not None and needed and needed not in has:
                await self._refusal(needed)(scope, receive, send)
                return
            if _tool_of(body) in self.loses:
                await app(scope, _replayed(body, receive), _nowhere)
                await self._lose(send)
                return
            await app(scope, _replayed(body, receive), send)

        return scoped

    async def _lose(self, send: Send) -> None:
        """End the logins, and the connection within the answer."""
        for person in self.events:
            self._issuer.revoke(person)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"10")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})

    def _refusal(self, scope: str) -> JSONResponse:
        parts = urlsplit(self.url)
        metadata = (
            f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
        )
        challenge = (
            f'Bearer error="insufficient_scope", scope="{scope}", resource_metadata="{metadata}"'
        )
        return JSONResponse(
            {"error": "insufficient_scope"}, 403, headers={"WWW-Authenticate": challenge}
        )


async def _nowhere(message: Any) -> None:
    """Send nothing."""


def _person() -> str:
    token = get_access_token()
    assert token is not None
    return str(token.subject)


def _tool_of(body: bytes) -> str:
    """The name of the tool that a request calls."""
    try:
        request = json.loads(body)
    except ValueError:
        return ""
    is_call = isinstance(request, dict) and request.get("method") == "tools/call"
    return str(request["params"]["name"]) if is_call else ""


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A body that was read, and then what comes after it."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Any:
        return messages.pop() if messages else await receive()

    return replayed


@contextlib.contextmanager
def calendar_of(issuer: FakeIssuer, port: int = 0) -> Iterator[Calendar]:
    """A calendar that runs during the block."""
    listening = socket.create_server(("127.0.0.1", port))
    calendar = Calendar(issuer, f"http://127.0.0.1:{listening.getsockname()[1]}/mcp")
    config = uvicorn.Config(calendar.app(), log_config=None, timeout_graceful_shutdown=1, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield calendar
    finally:
        server.should_exit = True
        thread.join()


async def logged_in(address: str) -> dict[str, str]:
    """The query of the redirect after a person has opened an address and logged in."""
    async with httpx.AsyncClient(verify=False, timeout=60) as browser:
        answer = await browser.get(address)
    assert answer.is_redirect, answer.text
    return dict(parse_qsl(urlsplit(answer.headers["location"]).query))
