"""Servers that act for one person: the requests have a token of that person, who logs in there."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
from mcp import MCPError

from perdure import errors
from perdure.activities.mcp.login_results import LoginNeededError
from perdure.agents.mcp_logins import is_scope
from perdure.oauth.failures import OAuthError
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.temporal.encryption.grants import Grants

_MARK = secrets.token_hex(8)
"""What tells errors that are made here from those of a server."""
_CODE = -32000
_CHARACTERS = 300
_SCOPES = 50
"""How many scopes of a refusal are asked for."""


@dataclass(frozen=True)
class Person:
    """The data subject of a turn, as a server knows it by its login.

    Attributes:
        subject: The data subject.
        grants: The logins of data subjects.
    """

    subject: str
    grants: Grants


class PersonalTransport(httpx2.AsyncBaseTransport):
    """Sends requests with the token of a person.

    A request that the server refuses for want of a login is sent once more with another token. If
    there is none, the answer is an error of the protocol, by which the call is known not to have
    been carried out.

    Args:
        person: The person.
        url: The address of the server.
        hide: Takes each token, so that texts of the server are shown without it.
    """

    def __init__(self, person: Person, url: str, hide: Callable[[str], None]) -> None:
        self._person, self._url, self._hide = person, url, hide
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        refused = lacking = ""
        scopes: list[str] = []
        while True:
            try:
                token = await self._person.grants.token(self._person.subject, self._url, refused)
            except (OAuthError, errors.PerdureError) as error:
                return _refusal(request, one_line(f"no token: {error}", _CHARACTERS))
            if token is None or token == lacking:
                return self._login_needed(request, scopes)
            self._hide(token)
            request.headers["authorization"] = f"Bearer {token}"
            response = await self._inner.handle_async_request(request)
            if response.status_code == httpx2.codes.FORBIDDEN and (scopes := _lacking(response)):
                await response.aclose()
                if lacking:  # another login lacks them as well
                    return self._login_needed(request, scopes)
                self._person.grants.forget(self._person.subject, self._url)
                lacking = token
                continue  # another process may have a login that is good for more
            if response.status_code != httpx2.codes.UNAUTHORIZED:
                return response
            await response.aclose()
            if refused:  # a new token is refused as well
                return self._login_needed(request, [])
            refused = token

    def _login_needed(self, request: httpx2.Request, scopes: Sequence[str]) -> httpx2.Response:
        has = self._person.grants.scopes(self._person.subject, self._url)
        needs = {"scopes": [*scopes], "has_them": bool(scopes) and {*scopes} <= {*has}}
        return _refusal(request, "the person has to log in", needs)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _lacking(response: httpx2.Response) -> list[str]:
    """Return the scopes that a token lacks for a request (RFC 6750, 3.1), without other words."""
    from mcp.client.auth.utils import extract_field_from_www_auth

    if extract_field_from_www_auth(response, "error") != "insufficient_scope":
        return []
    scopes = (extract_field_from_www_auth(response, "scope") or "").split()
    return [scope for scope in scopes[:_SCOPES] if is_scope(scope)]


def _refusal(
    request: httpx2.Request, message: str, needs: Mapping[str, Any] | None = None
) -> httpx2.Response:
    """Return the answer to a request that the server has not carried out.

    Args:
        request: The request.
        message: Why.
        needs: What the person has to log in for; None if a login does not help.
    """
    data = {"mark": _MARK, "needs": needs}
    error = {"code": _CODE, "message": message, "data": data}
    return httpx2.Response(
        httpx2.codes.UNAUTHORIZED,
        headers={"content-type": "application/json"},
        content=json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode(),
        request=request,
    )


def needed_by(error: BaseException) -> LoginNeededError | None:
    """Return what an error of a request says about a login; None if it says nothing of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    data: Any = error.data if isinstance(error, MCPError) else None
    is_own = isinstance(data, dict) and data.get("mark") == _MARK
    return LoginNeededError(**data["needs"]) if is_own and data["needs"] is not None else None
