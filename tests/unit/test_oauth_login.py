"""A person logs in for an MCP server that needs a token of hers."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from perdure.oauth import registration
from perdure.oauth.failures import GrantRefusedError, OAuthError
from perdure.oauth.login import begin, complete, refresh
from perdure.oauth.values import BegunLogin, Tokens
from perdure.testing import FakeIssuer

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ..support.mcp.guarded_calendar import Calendar, logged_in
from ..support.mcp.hostile_resource import HostileResource

BACK = "http://127.0.0.1:9/v1/logins/callback"


async def log_in(calendar: Calendar, **options: Any) -> Tokens:
    """The tokens of a person who logs in at once."""
    address, begun = await begin(calendar.url, BACK, **options)
    return await complete(begun, await logged_in(address))


async def used(calendar: Calendar, token: str, tool: str, **arguments: str) -> str:
    """What a tool says to a person with a token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, verify=False, timeout=60) as http,
        Client(streamable_http_client(calendar.url, http_client=http)) as client,
    ):
        result = await client.call_tool(tool, arguments)
    block: Any = result.content[0]
    return str(block.text)


@pytest.mark.accepts("G120")
async def test_server_takes_the_tokens_of_who_has_logged_in(
    issuer: FakeIssuer, calendar: Calendar
) -> None:
    """For this person, and until they end."""
    tokens = await log_in(calendar)
    issuer.person = {"sub": "otto"}
    others = await log_in(calendar)
    said = [
        await used(calendar, tokens.access_token, "add_event", title="lunch"),
        await used(calendar, others.access_token, "whoami"),
    ]

    assert said == ["lunch is event 1 of anna", "otto"]
    assert calendar.events == {"anna": ["lunch"]}
    assert (tokens.resource, tokens.issuer) == (calendar.url, issuer.url)
    assert tokens.scopes == ("offline_access",)
    assert tokens.expires_at is not None
    assert timedelta(0) < tokens.expires_at - datetime.now(UTC) <= timedelta(minutes=5)


@pytest.mark.accepts("G120")
async def test_login_says_what_it_is_for(issuer: FakeIssuer, calendar: Calendar) -> None:
    """With a proof of who has begun it; and what is kept survives as JSON, and is not printed."""
    address, begun = await begin(calendar.url, BACK, scopes=["events"])
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    stored = BegunLogin.model_validate_json(begun.model_dump_json())
    tokens = await complete(stored, await logged_in(address))

    assert query.pop("code_challenge") not in begun.model_dump_json()
    assert query == {
        "response_type": "code",
        "client_id": begun.client_id,
        "redirect_uri": BACK,
        "state": begun.state,
        "code_challenge_method": "S256",
        "resource": calendar.url,
        "scope": "events offline_access",
        "prompt": "consent",
    }
    assert begun.iss_required
    assert Tokens.model_validate_json(tokens.model_dump_json()) == tokens
    for secret in (tokens.access_token, str(tokens.refresh_token), begun.verifier, begun.state):
        assert secret not in f"{tokens!r} {begun!r} {tokens} {begun}"


@pytest.mark.accepts("G120")
@pytest.mark.parametrize(
    ("scopes", "challenge", "listed", "asked"),
    [
        (["a"], 'Bearer scope="b c"', ["d"], "a"),
        ([], 'Bearer scope="b c"', ["d"], "b c"),
        ([], "Bearer", ["d", "e"], "d e"),
        ([], "Bearer", None, None),
    ],
)
async def test_scopes_are_those_given_or_those_that_the_server_names(
    issuer: FakeIssuer,
    scopes: list[str],
    challenge: str,
    listed: list[str] | None,
    asked: str | None,
) -> None:
    """In its refusal before those in its metadata; nothing is added that nobody lists."""
    issuer.metadata["scopes_supported"] = None
    with HostileResource() as resource:
        resource.describe(issuer.url, challenge, scopes_supported=listed)
        address, _ = await begin(resource.url, BACK, scopes=scopes)

    assert parse_qs(urlsplit(address).query).get("scope", [None]) == [asked]


@pytest.mark.accepts("G121")
async def test_refresh_rotates(issuer: FakeIssuer, calendar: Calendar) -> None:
    """The old refresh token is void then, and using it again revokes the new tokens as well."""
    first = await log_in(calendar)
    second = await refresh(first)
    said = await used(calendar, second.access_token, "whoami")
    with pytest.raises(GrantRefusedError, match="invalid_grant") as reused:
        await refresh(first)
    with pytest.raises(GrantRefusedError):
        await refresh(second)

    assert said == "anna"
    assert second.refresh_token not in (None, first.refresh_token)
    assert second.scopes == first.scopes
    assert str(first.refresh_token) not in str(reused.value)
    assert issuer.is_revoked(second.access_token)


@pytest.mark.accepts("G121")
async def test_refresh_token_and_scopes_are_kept_if_none_come(
    issuer: FakeIssuer, calendar: Calendar
) -> None:
    """As of servers that do not rotate."""
    first = await log_in(calendar)
    issuer.replies["/realms/test/token"] = (
        200,
        b'{"access_token": "next", "token_type": "bearer"}',
    )
    second = await refresh(first)

    assert second == first.model_copy(update={"access_token": "next", "expires_at": None})


@pytest.mark.accepts("G121")
async def test_person_logs_in_again_if_tokens_are_revoked_or_cannot_be_refreshed(
    issuer: FakeIssuer, calendar: Calendar
) -> None:
    """Other failures of the server say that it may be tried again."""
    tokens = await log_in(calendar)
    issuer.revoke("anna")
    with pytest.raises(GrantRefusedError, match="it was revoked"):
        await refresh(tokens)
    issuer.metadata["scopes_supported"] = None
    without = await log_in(calendar)
    with pytest.raises(GrantRefusedError, match="no refresh token"):
        await refresh(without)
    issuer.replies["/realms/test/token"] = (503, b'{"error": "temporarily_unavailable"}')
    with pytest.raises(OAuthError, match="temporarily_unavailable") as down:
        await refresh(tokens)

    assert without.refresh_token is None
    assert not isinstance(down.value, GrantRefusedError)


@pytest.mark.accepts("G124")
async def test_client_is_registered_once(issuer: FakeIssuer, calendar: Calendar) -> None:
    """For an issuer and a redirect address; and again when it is unknown there, or has expired."""
    first = await begin(calendar.url, BACK)
    second = await begin(calendar.url, BACK)
    other = await begin(calendar.url, f"{BACK}/other")
    issuer.secrets[first[1].client_id] = "another"  # so that the client is refused
    with pytest.raises(OAuthError, match="invalid_client"):
        await complete(first[1], await logged_in(first[0]))
    anew = await begin(calendar.url, BACK)
    issuer.replies["/realms/test/register"] = (
        201,
        b'{"client_id": "short", "client_secret_expires_at": %d}' % (time.time() - 1),
    )
    expired = [(await begin(calendar.url, f"{BACK}/expired"))[1].client_id for _ in range(2)]

    assert first[1].client_id == second[1].client_id
    assert len({login[1].client_id for login in (first, other, anew)}) == 3
    assert expired == ["short", "short"]
    assert issuer.requests.count("/realms/test/register") == 5


@pytest.mark.accepts("G124")
@pytest.mark.parametrize("auth", ["client_secret_basic", "client_secret_post"])
async def test_registered_client_may_get_a_secret(
    issuer: FakeIssuer, calendar: Calendar, auth: str
) -> None:
    """Where the server takes none without; it is sent as the server takes it."""
    issuer.metadata["token_endpoint_auth_methods_supported"] = [auth]
    tokens = await log_in(calendar)
    again = await refresh(tokens)

    assert (tokens.client_auth, again.client_auth) == (auth, auth)
    assert tokens.client_secret == issuer.secrets[tokens.client_id]


@pytest.mark.accepts("G124", "G147")
@pytest.mark.parametrize(
    ("client_id", "secret"),
    [
        ("by hand", None),
        ("by hand", "a secret: with + and %"),
        ("https://agents.example.com/client.json", None),
    ],
)
async def test_client_that_was_registered_by_hand(
    issuer: FakeIssuer, calendar: Calendar, client_id: str, secret: str | None
) -> None:
    """With a secret or without, or by a document that describes it; none is registered then."""
    if secret is not None:
        issuer.secrets[client_id] = secret
    tokens = await log_in(calendar, client_id=client_id, client_secret=secret)

    assert tokens.client_id == client_id
    assert "/realms/test/register" not in issuer.requests


@pytest.mark.accepts("G124")
async def test_server_that_registers_nobody(issuer: FakeIssuer, calendar: Calendar) -> None:
    """The error says what to do."""
    issuer.metadata["registration_endpoint"] = None
    with pytest.raises(OAuthError, match=r"register a client there.*login=…"):
        await begin(calendar.url, BACK)
    issuer.metadata.clear()
    issuer.replies["/realms/test/register"] = (403, b'{"error": "access_denied"}')
    with pytest.raises(OAuthError, match=r"does not register a client: access_denied.*login=…"):
        await begin(calendar.url, BACK)


@pytest.mark.accepts("G124")
async def test_registration_is_used_for_an_hour(issuer: FakeIssuer, calendar: Calendar) -> None:
    """A server may forget a client, and shows that to the person alone."""
    _, begun = await begin(calendar.url, BACK)
    kept = [client for client in registration._registered.values() if client.id == begun.client_id]

    assert [0 < one.until - time.time() <= registration.KEPT.seconds for one in kept] == [True]
