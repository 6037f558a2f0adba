"""Access tokens of an identity provider: a real uvicorn, and a fake issuer on loopback."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from perdure import Agent, errors, limits
from perdure.clients.gateway import ClaimsTable, IdentityProvider, one_token
from perdure.clients.gateway.oidc import issuer as issuers
from perdure.testing import FakeIssuer, ScriptedModel, says

from ...conftest import Runtime
from ...support.clocks import Clock
from ...support.gateway.identity import ANNA, AUDIENCE, TABLE, access, bearer, guarded
from ...support.gateway.served import messages, told

DESK = Agent(name="desk", model="main")
ABOUT = "/v1/about"
DISCOVERY = "/.well-known/openid-configuration"


@contextlib.asynccontextmanager
async def gateway(
    runtime: Runtime, issuer: FakeIssuer, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway of an issuer."""
    async with (
        runtime(DESK, model=ScriptedModel(says("Good day."))) as client,
        guarded(client, issuer, **options) as http,
    ):
        yield http


def unsigned(claims: dict[str, Any], **header: Any) -> str:
    """A token without a signature."""
    parts = [{"typ": "at+jwt", **header}, claims]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
    return ".".join([*(part.rstrip("=") for part in encoded), ""])


def made_with_public_key(issuer: FakeIssuer) -> str:
    """A token whose HMAC has the public key of the issuer as its secret."""
    [key] = issuer.jwks["keys"]
    public = jwt.PyJWK(key, "RS256").key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    header = {"alg": "HS256", "typ": "at+jwt", "kid": key["kid"]}
    claims = {**ANNA, "iss": issuer.url, "aud": AUDIENCE, "exp": int(time.time()) + 60}
    unfinished = unsigned(claims, **header).rstrip(".")
    hmac = jwt.get_algorithm_by_name("HS256")
    signature = hmac.sign(unfinished.encode(), public)
    return f"{unfinished}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def forged(issuer: FakeIssuer) -> str:
    """A token with the claims of another person under the signature of the first."""
    header, _, signature = issuer.token(**ANNA, aud=AUDIENCE).split(".")
    other = issuer.token(**{**ANNA, "sub": "root"}, aud=AUDIENCE).split(".")[1]
    return f"{header}.{other}.{signature}"


def now(seconds: float = 0) -> int:
    """The time, so many seconds later."""
    return int(time.time() + seconds)


BAD: dict[str, tuple[Callable[[FakeIssuer], str], str]] = {
    "expired": (lambda one: one.token(**ANNA, aud=AUDIENCE, exp=now(-600)), "expired 60"),
    "not yet valid": (lambda one: one.token(**ANNA, aud=AUDIENCE, nbf=now(600)), "only in "),
    "clock ahead": (
        lambda one: one.token(**ANNA, aud=AUDIENCE, iat=now(600), exp=now(900)),
        "one of the clocks is off by that",
    ),
    "alg none": (
        lambda one: unsigned({**ANNA, "iss": one.url, "aud": AUDIENCE, "exp": now(60)}, alg="none"),
        'the algorithm "none"',
    ),
    "HS256 with the public key": (made_with_public_key, 'the algorithm "HS256"'),
    "another audience": (lambda one: one.token(**ANNA, aud=["x", "y"]), 'is for "x, y"'),
    "no audience": (lambda one: one.token(**ANNA, aud=None), "is for"),
    "another issuer": (
        lambda one: one.token(**ANNA, aud=AUDIENCE, iss="https://evil.example"),
        'of the issuer "https://evil.example"',
    ),
    "no sub": (lambda one: one.token(**{**ANNA, "sub": None}, aud=AUDIENCE), "no sub"),
    "empty sub": (lambda one: one.token(**{**ANNA, "sub": ""}, aud=AUDIENCE), "no sub"),
    "no exp": (lambda one: one.token(**ANNA, aud=AUDIENCE, exp=None), "no exp"),
    "exp is text": (lambda one: one.token(**ANNA, aud=AUDIENCE, exp="soon"), "is no time"),
    "id token": (lambda one: one.signed({**ANNA, "aud": AUDIENCE}, "JWT"), "not at+jwt"),
    "forged": (forged, "the signature"),
    "unknown key": (
        lambda one: (
            unsigned(
                {**ANNA, "iss": one.url, "aud": AUDIENCE, "exp": now(60)},
                alg="RS256",
                kid="k\u202e",
            )
            + "AAAA"
        ),
        "no such key",
    ),
    "no JWT": (lambda _: "x" * 50, "no JWT"),
    "deep": (
        lambda _: base64.urlsafe_b64encode(b"[" * 9_000).decode().rstrip("=") + ".e30.AA",
        "no JWT",
    ),
    "long": (lambda one: one.token(**ANNA, aud=AUDIENCE, more="x" * 20_000), "longer than"),
}
"""How a token is bad, and what its refusal says."""


@pytest.mark.accepts("G60")
async def test_token_of_a_person_is_taken(runtime: Runtime) -> None:
    """Its claims become the name, the tenant and the permissions."""
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer) as http:
            about = (await http.get(ABOUT, headers=access(issuer))).json()
            reader = {"groups": "readers", "preferred_username": None, "email": "r@example.com"}
            other = (await http.get(ABOUT, headers=access(issuer, **reader))).json()
            denied = await http.post(
                "/v1/turns", json={"agent": "desk"}, headers=access(issuer, **reader)
            )

    assert (about["subject"], about["tenant"]) == ("anna", "acme")
    assert about["may"] == ["budget", "control", "decide", "override", "read", "start"]
    assert (other["subject"], other["may"], other.get("session_ends_at")) == (
        "r@example.com",
        ["read"],
        None,
    )
    assert told(denied) == (403, "FORBIDDEN")


@pytest.mark.accepts("G61")
async def test_bad_tokens_are_refused_with_the_reason(runtime: Runtime) -> None:
    """None of them has the issuer asked again, but for the one of an unknown key."""
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer) as http:
            read = len(issuer.requests)
            answers = {
                name: await http.get(ABOUT, headers=bearer(make(issuer)))
                for name, (make, _) in BAD.items()
            }
            after = issuer.requests[read:]
            good = await http.get(ABOUT, headers=access(issuer))

    assert {name: told(answer) for name, answer in answers.items()} == dict.fromkeys(
        BAD, (401, "UNAUTHENTICATED")
    )
    assert {
        name: answer.json()["detail"]
        for name, answer in answers.items()
        if BAD[name][1] not in answer.json()["detail"]
    } == {}
    assert all(
        'error="invalid_token"' in answer.headers["www-authenticate"] for answer in answers.values()
    )
    assert after == [DISCOVERY, "/jwks"]
    assert good.status_code == 200


@pytest.mark.accepts("G61")
async def test_clock_may_be_off_by_half_a_minute(runtime: Runtime) -> None:
    """In both directions; a clock that is ten minutes off is named with its difference."""
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer) as http:
            slow = await http.get(ABOUT, headers=access(issuer, exp=now(-20)))
            fast = await http.get(ABOUT, headers=access(issuer, nbf=now(20), iat=now(20)))
            far = await http.get(ABOUT, headers=access(issuer, iat=now(600), exp=now(900)))

    assert (slow.status_code, fast.status_code, far.status_code) == (200, 200, 401)
    assert any(f"in {seconds} s (its iat)" in far.json()["detail"] for seconds in (598, 599, 600))


@pytest.mark.accepts("G62")
async def test_plain_tokens_are_taken_where_the_table_says_so(runtime: Runtime) -> None:
    """But those about a login are not, and none that says that it is for something else."""
    plain = TABLE.model_copy(update={"plain_jwt": True})
    claims = {**ANNA, "aud": AUDIENCE}
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer, table=plain) as http:
            taken = [
                await http.get(ABOUT, headers=bearer(token))
                for token in (
                    issuer.signed(claims, "JWT"),
                    issuer.signed({**claims, "typ": "Bearer"}, "JWT"),
                    issuer.signed(claims),
                )
            ]
            refused = [
                await http.get(ABOUT, headers=bearer(issuer.signed({**claims, **more}, typ)))
                for more, typ in (
                    ({"nonce": "n"}, "JWT"),
                    ({"at_hash": "h"}, "JWT"),
                    ({"typ": "ID"}, "JWT"),
                    ({"typ": "Refresh"}, "JWT"),
                    ({}, "logout+jwt"),
                )
            ]

    assert [answer.status_code for answer in taken] == [200] * 3
    assert [told(answer) for answer in refused] == [(401, "UNAUTHENTICATED")] * 5


@pytest.mark.accepts("G63")
async def test_key_that_rotates_in_is_found_at_once(runtime: Runtime) -> None:
    """Right after the keys were read, for both kinds; many unknown ids cost few requests."""
    with FakeIssuer(algorithm="ES256") as issuer:
        async with gateway(runtime, issuer) as http:
            first = await http.get(ABOUT, headers=access(issuer))
            before = access(issuer)
            issuer.rotate("RS256")
            rotated = await http.get(ABOUT, headers=access(issuer))
            still = await http.get(ABOUT, headers=before)
            read = len(issuer.requests)
            claims = {**ANNA, "iss": issuer.url, "aud": AUDIENCE, "exp": now(60)}
            unknown = [
                await http.get(
                    ABOUT, headers=bearer(unsigned(claims, alg="RS256", kid=f"k-{number}") + "AAAA")
                )
                for number in range(15)
            ]
            asked = issuer.requests[read:].count("/jwks")
            good = await http.get(ABOUT, headers=access(issuer))

    assert (first.status_code, rotated.status_code, still.status_code) == (200, 200, 200)
    assert {answer.status_code for answer in unknown} == {401}
    assert asked <= limits.OIDC_LOOKS
    assert good.status_code == 200


@pytest.mark.accepts("G64")
async def test_issuer_that_is_down_at_the_start_is_asked_again(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it answers, its callers get 503 with `Retry-After`, and other callers are served."""
    clock = Clock()
    token = "0123456789abcdef" * 2
    with FakeIssuer() as issuer, caplog.at_level(logging.WARNING, "perdure"):
        issuer.replies[DISCOVERY] = 500, b"{}"
        async with gateway(runtime, issuer, auth=one_token(token), clock=clock) as http:
            down = await http.get(ABOUT, headers=access(issuer))
            other = await http.get(ABOUT, headers=bearer(token))
            bad = await http.get(ABOUT, headers=access(issuer, iss="https://evil.example"))
            issuer.replies.clear()
            early = await http.get(ABOUT, headers=access(issuer))
            clock.now += limits.OIDC_RETRY.seconds
            up = await http.get(ABOUT, headers=access(issuer))

    assert told(down) == (503, "ISSUER_UNREACHABLE")
    assert "retry-after" in down.headers
    assert (other.status_code, bad.status_code) == (200, 401)
    assert (early.status_code, up.status_code) == (503, 200)
    assert "answers 500" in caplog.text


@pytest.mark.accepts("G64")
async def test_keys_go_on_while_the_issuer_is_down(runtime: Runtime) -> None:
    """Known tokens are verified with the keys that were read; an unknown key is a 401."""
    clock = Clock()
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer, clock=clock) as http:
            issuer.replies["/jwks"] = 503, b""
            read, goes_on = len(issuer.requests), []
            for _ in range(3):
                # so old that the next request waits until they are read
                clock.now += 3 * limits.OIDC_FRESH.seconds
                goes_on.append(await http.get(ABOUT, headers=access(issuer)))
            issuer.rotate()
            unknown = await http.get(ABOUT, headers=access(issuer))

    assert issuer.requests[read:].count("/jwks") == 3
    assert [answer.status_code for answer in goes_on] == [200] * 3
    assert told(unknown) == (401, "UNAUTHENTICATED")


@pytest.mark.accepts("G65")
async def test_document_of_another_issuer_keeps_the_gateway_from_starting() -> None:
    """The error names both, also where only a slash at the end differs."""
    with FakeIssuer() as issuer:
        mistaken = IdentityProvider(f"{issuer.url}/", [AUDIENCE])
        with pytest.raises(errors.ConfigurationError, match="exactly as its document") as caught:
            await mistaken.check()

    assert f'"{issuer.url}"' in caught.value.message


@pytest.mark.accepts("G65")
@pytest.mark.parametrize(
    "answer",
    [
        json.dumps({"keys": [{"kty": "RSA", "kid": str(n)} for n in range(1_000)]}).encode(),
        b'{"keys": ["' + b"x" * 50_000_000 + b'"]}',
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "AAAA", "kid": "k"}]}',
        b"[" * 100_000,
        b"<html>",
    ],
    ids=["1,000 keys", "50 MB", "no key", "a symmetric key", "deep", "a page"],
)
async def test_keys_that_cannot_be_are_not_taken(
    runtime: Runtime, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """They are read no further than to a limit, and callers get 503."""
    with FakeIssuer() as issuer, caplog.at_level(logging.WARNING, "perdure"):
        issuer.replies["/jwks"] = 200, answer
        async with gateway(runtime, issuer) as http:
            refused = await http.get(ABOUT, headers=access(issuer))

    assert told(refused) == (503, "ISSUER_UNREACHABLE")
    assert "could not be read" in caplog.text


@pytest.mark.accepts("G65")
@pytest.mark.parametrize(
    "url", ["http://id.example.com", "id.example.com", "https://id.example.com?x=1", "file:///x"]
)
def test_issuer_needs_https(url: str) -> None:
    """Elsewhere than on this machine."""
    with pytest.raises(errors.ConfigurationError, match="https"):
        IdentityProvider(url, [AUDIENCE])


@pytest.mark.accepts("G66")
async def test_caller_without_a_known_tenant_or_a_name_is_refused(runtime: Runtime) -> None:
    """It never becomes one that sees everything."""
    unknown: list[tuple[dict[str, Any], str]] = [
        ({"org": None}, "has no claim 'org'"),
        ({"org": ["org-1"]}, "has no claim 'org'"),
        ({"org": "org-9"}, "none of [tenants]"),
        ({"org": "*"}, "none of [tenants]"),
        ({"preferred_username": "a\nb", "email": "x" * 300, "sub": "\u202e"}, "no name"),
    ]
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer) as http:
            refused = [
                await http.get(ABOUT, headers=access(issuer, **claims)) for claims, _ in unknown
            ]
            staff = (await http.get(ABOUT, headers=access(issuer, org="org-0"))).json()

    assert {told(answer) for answer in refused} == {(403, "FORBIDDEN")}
    for answer, (_, detail) in zip(refused, unknown, strict=True):
        assert detail in answer.json()["detail"]
    assert staff["tenant"] is None


@pytest.mark.accepts("G66")
async def test_without_a_table_a_token_has_no_permission(runtime: Runtime) -> None:
    """But for the roles of Perdure that it lists."""
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer, table=ClaimsTable()) as http:
            nothing = await http.get(ABOUT, headers=access(issuer, roles=["admin"]))
            viewer = await http.get(ABOUT, headers=access(issuer, roles=["perdure-viewer"]))

    assert told(nothing) == (403, "FORBIDDEN")
    assert viewer.json()["may"] == ["read"]


@pytest.mark.accepts("G67")
async def test_stream_ends_with_the_token(runtime: Runtime) -> None:
    """Its client resumes it with another one, and an expired one is refused."""
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer) as http:
            began = await http.post(
                "/v1/sessions/g67/messages",
                json={"text": "Hello.", "begin": {"agent": "desk"}},
                headers=access(issuer),
            )
            last = now(-limits.OIDC_LEEWAY.seconds + 5)
            http.headers.update(access(issuer, exp=last))
            seen = [one async for one in messages(http, "/v1/sessions/g67/events")]
            ended_at = time.time()
            late = await http.get("/v1/sessions/g67/events")
            await http.post("/v1/sessions/g67/cancel", headers=access(issuer))

    assert began.status_code == 202
    assert seen[0][1]["kind"] == "session_started"
    assert 0 <= ended_at - (last + limits.OIDC_LEEWAY.seconds) < 60
    assert told(late) == (401, "UNAUTHENTICATED")


def test_no_algorithm_has_a_secret_key() -> None:
    """Each verifies with a public key."""
    assert not [name for name in issuers.ALGORITHMS if name.startswith(("HS", "none"))]
