"""The callers of an identity provider, beside those that a gateway knows in other ways."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from perdure import errors, limits
from perdure.clients.gateway.auth import Auth, Caller, asked, bearer_of
from perdure.clients.gateway.oidc.claims import ClaimsTable
from perdure.clients.gateway.oidc.issuer import Issuer
from perdure.clients.gateway.oidc.login import Login, LoginClient
from perdure.clients.gateway.oidc.tokens import BadTokenError, TokenRules, verified
from perdure.clients.gateway.problems import RefusedError
from perdure.oauth.fetching import check_url

METADATA = "/.well-known/oauth-protected-resource"
"""Where clients learn which authorization server issues tokens for the gateway (RFC 9728)."""
_MCP = "/mcp"
_UNQUOTABLE = re.compile(r'[^\x20-\x7e]|["\\]')
"""What the text of a challenge cannot have (RFC 6750)."""


class IdentityProvider:
    """An identity provider whose access tokens are taken (RFC 9068), and that people log in with.

    Args:
        issuer: Its identifier, an address with https, exactly as in its tokens.
        audiences: What its tokens name this gateway; one of them is enough.
        table: How a caller is made of the claims of a token.
        client: The client as which the page logs people in; without one, the page takes tokens.
        url: The address of the gateway for its callers, with https. Without one, people can log
            in only where the gateway is called by a name of this machine.
        clock: Returns a monotonic time in seconds.

    Raises:
        ConfigurationError: An address has no https, or there is no audience.
    """

    def __init__(
        self,
        issuer: str,
        audiences: Sequence[str],
        *,
        table: ClaimsTable | None = None,
        client: LoginClient | None = None,
        url: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not audiences or not all(audiences):
            raise errors.ConfigurationError(
                "an identity provider needs an audience: what its tokens name this gateway"
            )
        if url is not None:
            check_url(url, "the address of the gateway")
        self.table = table or ClaimsTable()
        self._issuer = Issuer(issuer, clock)
        self._rules = TokenRules(tuple(audiences), takes_plain=self.table.plain_jwt)
        self._url = url.rstrip("/") if url is not None else None
        self._login = None
        if client is not None:
            self._login = Login(self._issuer, self.table, client, self._url)

    async def check(self) -> None:
        """Read the keys for the first time. If that is not possible, it is tried again later.

        Raises:
            ConfigurationError: What the address has is the document of another issuer.
        """
        await self._issuer.check()

    def beside(self, auth: Auth) -> Auth:
        """Return the function that knows the callers of the provider besides those of another."""

        async def caller_of(request: Request) -> Caller | None:
            caller = await asked(auth, request)
            if caller is not None:
                return caller
            token = bearer_of(request)
            if token:
                return await self._of_token(request, token)
            if self._login is not None and "authorization" not in request.headers:
                caller = self._login.caller_of(request)
            if caller is None:
                raise self._unknown(request)
            return caller

        return caller_of

    async def _of_token(self, request: Request, token: str) -> Caller:
        try:
            claims = await verified(token, self._issuer, self._rules)
        except BadTokenError as error:
            raise self._unknown(request, str(error)) from None
        request.state.valid_until = claims["exp"] + limits.OIDC_LEEWAY.total_seconds()
        return self.table.caller(claims)

    def _unknown(self, request: Request, reason: str = "") -> RefusedError:
        """Return the refusal of a request without a valid token, with where to get one."""
        resource = _MCP if _route_of(request) == _MCP else ""
        fields = {"resource_metadata": f"{self._address(request)}{METADATA}{resource}"}
        if reason:
            fields |= {"error": "invalid_token", "error_description": reason}
        challenge = ", ".join(
            f'{name}="{_UNQUOTABLE.sub(" ", value)}"' for name, value in fields.items()
        )
        headers = {"WWW-Authenticate": f"Bearer {challenge}"}
        if self._login is not None:
            headers["Perdure-Login"] = self._login.path(request)
        return RefusedError(
            401,
            "UNAUTHENTICATED",
            reason
            or "the request has no token; send the header Authorization: Bearer TOKEN, with an"
            f" access token of {self._issuer.url}",
            headers=headers,
        )

    def _address(self, request: Request) -> str:
        return self._url or str(request.base_url).rstrip("/")

    def routes(self) -> list[Route]:
        """Return the routes of what clients learn about the provider, and of the login."""
        return [
            Route(METADATA, self._describe, methods=["GET"]),
            Route(f"{METADATA}{_MCP}", self._describe, methods=["GET"]),
            *(self._login.routes() if self._login is not None else []),
        ]

    async def _describe(self, request: Request) -> Response:
        resource = _MCP if _route_of(request).endswith(_MCP) else ""
        return JSONResponse(
            {
                "resource": f"{self._address(request)}{resource}",
                "authorization_servers": [self._issuer.url],
                "bearer_methods_supported": ["header"],
                "resource_name": "Perdure",
            }
        )


def _route_of(request: Request) -> str:
    """Return the path of a request within the gateway."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))
