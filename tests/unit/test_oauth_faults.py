"""What servers say to a login, and what a redirect says: all of it is data."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from perdure import limits
from perdure.oauth import fetching
from perdure.oauth.failures import GrantRefusedError, OAuthError
from perdure.oauth.login import begin, complete
from perdure.oauth.values import BegunLogin, Tokens
from perdure.testing import FakeIssuer

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ..support.mcp.guarded_calendar import Calendar, logged_in
from ..support.mcp.hostile_resource import METADATA, HostileResource

BACK = "http://127.0.0.1:9/v1/logins/callback"
ISSUER = "/.well-known/oauth-authorization-server"
GIANT = b'{"a": "' + b"x" * limits.OIDC_DOCUMENT_BYTES + b'"}'


@pytest.mark.accepts("G122")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"resource": "https://bank.example.com/mcp"}, "is that of .*bank.example.com"),
        ({"resource": "{url}/deeper"}, "is that of"),
        ({"resource": "{url}s"}, "is that of"),
        ({"resource": None}, "not valid: resource"),
        ({"authorization_servers": []}, "not valid: authorization_servers"),
        ({"authorization_servers": ["http://id.example.com"]}, "https"),
        ({"authorization_servers": ["https://a@id.example.com"]}, "without a user and a password"),
        ({"authorization_servers": ["https://id.example.com/" + "a" * 2_000]}, "characters"),
        ({"authorization_servers": ["https://id.example.com\\.example.org"]}, "ASCII"),
        ({"authorization_servers": ["ftp://id.example.com"]}, "not valid: authorization_servers"),
        ({"scopes_supported": ["s" * 3_000]}, "scopes of a login have more than"),
    ],
)
async def test_metadata_of_a_server_that_is_not_taken(
    issuer: FakeIssuer, changes: dict[str, Any], reason: str
) -> None:
    """Of another server, with addresses that are not safe, or without what is needed."""
    with HostileResource() as resource:
        resource.describe(
            issuer.url,
            **{
                name: value.format(url=resource.url) if isinstance(value, str) else value
                for name, value in changes.items()
            },
        )
        with pytest.raises(OAuthError, match=reason):
            await begin(resource.url, BACK)


@pytest.mark.accepts("G122")
async def test_metadata_is_looked_for_where_the_specification_says(issuer: FakeIssuer) -> None:
    """Where the refusal says, then below the path of the server, then at the root."""
    with HostileResource() as resource:
        resource.describe(issuer.url)
        document = resource.replies.pop(f"{METADATA}/mcp")
        with pytest.raises(OAuthError, match=r"does not say who logs in.*answers 404.*answers 404"):
            await begin(resource.url, BACK)
        asked = list(resource.requests)
        resource.replies[METADATA] = document
        _, at_root = await begin(resource.url, BACK)
        del resource.replies[METADATA]
        resource.replies["/mcp"] = (200, {}, b"")  # it needs no token, or not for this request
        resource.replies[f"{METADATA}/mcp"] = document
        _, unchallenged = await begin(resource.url, BACK)
        del resource.replies[f"{METADATA}/mcp"]
        origin = resource.url.removesuffix("/mcp")
        challenge = f'Bearer realm="x", resource_metadata="{origin}/here"'
        resource.replies |= {"/mcp": (401, {"www-authenticate": challenge}, b""), "/here": document}
        _, named = await begin(resource.url, BACK)

    assert asked == ["POST /mcp", f"GET {METADATA}/mcp", f"GET {METADATA}"]
    assert {login.resource for login in (at_root, unchallenged, named)} == {resource.url}


@pytest.mark.accepts("G122")
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://id.example.com/metadata", "https"),
        ("file:///etc/passwd", "https"),
        ("https://[::1/metadata", "is no address"),
        ("https://id.example.com:port/", "is no address"),
    ],
)
async def test_refusal_that_names_an_address_that_is_not_safe(url: str, reason: str) -> None:
    """It is not asked."""
    with HostileResource() as resource:
        resource.describe("https://id.example.com", f'Bearer resource_metadata="{url}"')
        with pytest.raises(OAuthError, match=reason):
            await begin(resource.url, BACK)


@pytest.mark.accepts("G122")
@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/", "http://localhost/", "https://[::1]/"])
def test_server_elsewhere_cannot_have_this_machine_called(url: str) -> None:
    """One on this machine can, as in tests."""
    fetching.check_named_url(url, "the token endpoint", "http://127.0.0.1:1/mcp")
    fetching.check_named_url("https://a.example.com/@b/mcp", "it", "https://mcp.example.com")
    with pytest.raises(OAuthError, match=r"on this machine, while https://mcp.example.com is else"):
        fetching.check_named_url(url, "the token endpoint", "https://mcp.example.com")


@pytest.mark.accepts("G122")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"issuer": "https://other.example.com"}, "is that of the issuer .*other.example.com"),
        ({"issuer": None}, "not valid: issuer"),
        ({"code_challenge_methods_supported": None}, "PKCE"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"authorization_endpoint": "http://id.example.com/authorize"}, "https"),
        ({"authorization_endpoint": "https://id.example.com/\nauthorize"}, "ASCII"),
        ({"authorization_endpoint": "https://id.example.com:a/"}, "not valid"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "not valid: authorization_endpoint"),
        ({"token_endpoint": "http://id.example.com/token"}, "https"),
        ({"token_endpoint": None}, "not valid: token_endpoint"),
        ({"registration_endpoint": "http://id.example.com/register"}, "https"),
        (
            {"token_endpoint_auth_methods_supported": ["tls_client_auth"]},
            'by "tls_client_auth"; Perdure knows none, ',
        ),
    ],
)
async def test_metadata_of_an_authorization_server_that_is_not_taken(
    issuer: FakeIssuer, calendar: Calendar, changes: dict[str, Any], reason: str
) -> None:
    """Of another one, without PKCE, or with addresses that are not safe."""
    issuer.metadata |= changes
    with pytest.raises(OAuthError, match=reason):
        await begin(calendar.url, BACK)

    assert "/realms/test/register" not in issuer.requests


@pytest.mark.accepts("G122")
async def test_metadata_of_openid_connect(issuer: FakeIssuer, calendar: Calendar) -> None:
    """Of a server that has no other; one that is down is not asked again elsewhere."""
    first, second = f"{ISSUER}/realms/test", "/.well-known/openid-configuration/realms/test"
    issuer.replies |= {first: (404, b""), second: (404, b"")}
    _, begun = await begin(calendar.url, BACK)
    asked = [path for path in issuer.requests if "well-known" in path]
    issuer.replies[first] = (500, b"")
    with pytest.raises(OAuthError, match="answers 500"):
        await begin(calendar.url, BACK)

    assert asked == [first, second, "/realms/test/.well-known/openid-configuration"]
    assert begun.issuer == issuer.url


@pytest.mark.accepts("G122")
@pytest.mark.parametrize(
    ("path", "answer", "reason"),
    [
        (f"{ISSUER}/realms/test", GIANT, "more than 262144 bytes"),
        (f"{ISSUER}/realms/test", b"<html>", "no JSON object"),
        (f"{ISSUER}/realms/test", b"[]", "no JSON object"),
        (f"{ISSUER}/realms/test", b"[" * 10_000, "no JSON object"),
        ("/realms/test/register", GIANT, "more than 131072 bytes"),
        ("/realms/test/register", b"{}", "no client that can be read"),
        (
            "/realms/test/register",
            b'{"client_id": "a", "token_endpoint_auth_method": "client_secret_basic"}',
            "that has no secret",
        ),
        (
            "/realms/test/register",
            b'{"client_id": "a", "token_endpoint_auth_method": "private_key_jwt"}',
            "that is not known",
        ),
    ],
)
async def test_answer_that_is_too_large_or_makes_no_sense(
    issuer: FakeIssuer, calendar: Calendar, path: str, answer: bytes, reason: str
) -> None:
    """No more of it is read than is allowed."""
    issuer.replies[path] = (200, answer)
    with pytest.raises(OAuthError, match=reason) as failure:
        await begin(calendar.url, BACK)

    assert len(str(failure.value)) < 1_000


@pytest.mark.accepts("G122")
async def test_redirects_are_not_followed(issuer: FakeIssuer) -> None:
    """They could lead to an address that was not checked."""
    with HostileResource() as resource:
        resource.describe(issuer.url)
        document = resource.replies[f"{METADATA}/mcp"]
        resource.replies |= {
            f"{METADATA}/mcp": (302, {"location": "/elsewhere"}, b""),
            METADATA: (307, {"location": "/elsewhere"}, b""),
            "/elsewhere": document,
        }
        with pytest.raises(OAuthError, match=r"answers 302.*answers 307"):
            await begin(resource.url, BACK)

    assert "GET /elsewhere" not in resource.requests


@pytest.mark.slow
@pytest.mark.accepts("G122")
async def test_server_that_does_not_answer_in_time(issuer: FakeIssuer) -> None:
    """Or does not listen."""
    with HostileResource() as resource:
        resource.describe(issuer.url)
        resource.silent.add("/mcp")
        with pytest.raises(OAuthError, match="cannot be read"):
            await begin(resource.url, BACK)
    with pytest.raises(OAuthError, match="cannot be read"):
        await begin(resource.url, BACK)


@pytest.mark.accepts("G122")
@pytest.mark.parametrize(
    "url", ["http://mcp.example.com/mcp", "mcp", "https://a.example.com/#b", ""]
)
async def test_addresses_of_a_login(url: str) -> None:
    """They have https, or are of this machine."""
    with pytest.raises(OAuthError, match="the MCP server is"):
        await begin(url, BACK)
    with pytest.raises(OAuthError, match="the redirect address is"):
        await begin("https://mcp.example.com", url)


async def begun_and_answered(calendar: Calendar) -> tuple[BegunLogin, dict[str, str]]:
    """A login that was begun, and what comes back."""
    address, begun = await begin(calendar.url, BACK)
    return begun, await logged_in(address)


@pytest.mark.accepts("G123")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"state": "another"}, "another login"),
        ({"state": "é"}, "another login"),
        ({"state": None}, "another login"),
        ({"iss": None}, "does not name its issuer"),
        ({"iss": "https://other.example.com"}, "issuer https://other.example.com, not of"),
        ({"iss": "https://other.example.com", "error": "x"}, "issuer https://other.example.com"),
        ({"code": None}, "has no code"),
        ({"code": ""}, "has no code"),
        ({"error": "server_error"}, "says: server_error"),
    ],
)
async def test_redirect_that_is_not_taken(
    issuer: FakeIssuer, calendar: Calendar, changes: dict[str, str | None], reason: str
) -> None:
    """Of another login or issuer, or without a code. The server is not asked."""
    begun, query = await begun_and_answered(calendar)
    changed = {name: text for name, text in {**query, **changes}.items() if text is not None}
    with pytest.raises(OAuthError, match=reason) as failure:
        await complete(begun, changed)

    assert not isinstance(failure.value, GrantRefusedError)
    assert "/realms/test/token" not in issuer.requests


@pytest.mark.accepts("G123")
async def test_person_who_declines(issuer: FakeIssuer, calendar: Calendar) -> None:
    """What the server says of it is shown as one short line."""
    issuer.person = None
    begun, query = await begun_and_answered(calendar)
    with pytest.raises(GrantRefusedError, match="access_denied the person declined"):
        await complete(begun, query)
    query["error_description"] = "\x1b[2J\n<b>" + "x" * 5_000
    with pytest.raises(GrantRefusedError) as failure:
        await complete(begun, query)

    assert str(failure.value).isprintable()
    assert len(str(failure.value)) < 500


@pytest.mark.accepts("G123")
async def test_code_is_taken_once_and_from_who_began_the_login(
    issuer: FakeIssuer, calendar: Calendar
) -> None:
    """With its proof, and its redirect address."""
    begun, query = await begun_and_answered(calendar)
    tokens = await complete(begun, query)
    with pytest.raises(GrantRefusedError, match="no such code") as again:
        await complete(begun, query)
    begun, query = await begun_and_answered(calendar)
    with pytest.raises(GrantRefusedError, match="no such code"):
        await complete(begun.model_copy(update={"verifier": "v" * 43}), query)
    begun, query = await begun_and_answered(calendar)
    with pytest.raises(GrantRefusedError, match="no such code"):
        await complete(begun.model_copy(update={"redirect_uri": f"{BACK}/other"}), query)

    assert isinstance(tokens, Tokens)
    assert query["code"] not in str(again.value)


@pytest.mark.accepts("G123")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"token_type": "mac"}, "no bearer token"),
        ({"token_type": None}, "no bearer token"),
        ({"access_token": None}, "no bearer token"),
        ({"access_token": ""}, "is empty"),
        ({"access_token": "a\r\nHost: b"}, "characters that no header has"),
        ({"access_token": "a" * 20_000}, "characters"),
        ({"refresh_token": "a b"}, "characters"),
        ({"expires_in": 0}, "has expired"),
        ({"expires_in": -5}, "has expired"),
        ({"expires_in": "soon"}, "no bearer token"),
    ],
)
async def test_tokens_that_cannot_be_used(
    issuer: FakeIssuer, calendar: Calendar, answer: dict[str, Any], reason: str
) -> None:
    """The error does not repeat them."""
    begun, query = await begun_and_answered(calendar)
    good = {"access_token": "secret-1", "token_type": "bearer", "refresh_token": "secret-2"}
    issuer.replies["/realms/test/token"] = (200, json.dumps({**good, **answer}).encode())
    with pytest.raises(OAuthError, match=reason) as failure:
        await complete(begun, query)

    assert "secret" not in str(failure.value)


@pytest.mark.accepts("G123")
async def test_server_that_repeats_secrets(issuer: FakeIssuer, calendar: Calendar) -> None:
    """What it says of its refusal is shown without them."""
    begun, query = await begun_and_answered(calendar)
    begun = begun.model_copy(
        update={"client_secret": "our-secret", "client_auth": "client_secret_post"}
    )
    said = f"no: {query['code']} {begun.verifier} our-secret"
    refusal = {"error": "invalid_request", "error_description": said}
    issuer.replies["/realms/test/token"] = (400, json.dumps(refusal).encode())
    with pytest.raises(OAuthError, match="invalid_request no: … … …"):
        await complete(begun, query)


@pytest.mark.accepts("G123")
async def test_lifetime_that_nobody_believes(issuer: FakeIssuer, calendar: Calendar) -> None:
    """It is a year at most."""
    begun, query = await begun_and_answered(calendar)
    answer = {"access_token": "a", "token_type": "Bearer", "expires_in": 10**30}
    issuer.replies["/realms/test/token"] = (200, json.dumps(answer).encode())
    tokens = await complete(begun, query)

    assert tokens.expires_at is not None
    assert urlsplit(tokens.token_endpoint).path == "/realms/test/token"
