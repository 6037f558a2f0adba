"""A gateway whose callers are those of an identity provider."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from http.cookies import SimpleCookie
from typing import Any

import httpx

from perdure.clients import AgentClient
from perdure.clients.gateway import ClaimsTable, IdentityProvider, LoginClient
from perdure.clients.gateway.auth import nobody
from perdure.testing import FakeIssuer

from .served import served

AUDIENCE = "https://agents.example.com"
COOKIE_KEY = "0123456789abcdef" * 2
PAGE = LoginClient("page", cookie_key=COOKIE_KEY)
TABLE = ClaimsTable.model_validate(
    {
        "claims": {"tenant": "org", "permissions": "groups"},
        "may": {"readers": ["viewer"], "deciders": ["approver"], "staff": ["admin"]},
        "tenants": {"org-1": "acme", "org-2": "other", "org-0": "*"},
        "tenant": [{"name": "acme", "batches": 1}],
    }
)
ANNA: Mapping[str, Any] = {
    "sub": "u-1",
    "preferred_username": "anna",
    "org": "org-1",
    "groups": ["staff", "unknown"],
}
"""The claims of somebody who may do everything in the tenant `acme`."""


@contextlib.asynccontextmanager
async def guarded(
    client: AgentClient,
    issuer: FakeIssuer,
    *,
    table: ClaimsTable = TABLE,
    page: LoginClient | None = None,
    url: str | None = None,
    audiences: Sequence[str] = (AUDIENCE,),
    clock: Callable[[], float] = time.monotonic,
    **options: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client without a token, of a gateway that takes the tokens of an issuer."""
    identity = IdentityProvider(
        issuer.url, audiences, table=table, client=page, url=url, clock=clock
    )
    await identity.check()
    auth = options.pop("auth", nobody)
    async with served(client, auth, identity=identity, **options) as http:
        del http.headers["Authorization"]
        yield http


def bearer(token: str) -> dict[str, str]:
    """The header with a token."""
    return {"Authorization": f"Bearer {token}"}


def access(issuer: FakeIssuer, **claims: Any) -> dict[str, str]:
    """The header with an access token of anna, with other claims."""
    return bearer(issuer.token(**{**ANNA, "aud": AUDIENCE, **claims}))


async def log_in(http: httpx.AsyncClient, to: str = "") -> httpx.Response:
    """Follow the login to the end, as a browser does, and return the last answer of the gateway."""
    begun = await http.get("/ui/login", params={"to": to})
    assert begun.status_code == 303, begun.text
    async with httpx.AsyncClient(verify=False, timeout=60) as browser:
        returned = await browser.get(begun.headers["location"])
    return await http.get(returned.headers["location"])


def cookies_of(response: httpx.Response) -> dict[str, dict[str, Any]]:
    """The attributes of the cookies that a response sets, in lower case, by their names."""
    found = {}
    for header in response.headers.get_list("set-cookie"):
        for name, morsel in SimpleCookie(header).items():
            found[name] = {key: value for key, value in morsel.items() if value}
    return found
