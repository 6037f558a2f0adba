"""People who log in on the page: by code with PKCE, with a session in a cookie."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from perdure import Agent, errors
from perdure.clients.gateway import LoginClient
from perdure.testing import FakeIssuer, ScriptedModel, says

from ...conftest import Runtime
from ...support.gateway.identity import (
    ANNA,
    COOKIE_KEY,
    PAGE,
    TABLE,
    access,
    cookies_of,
    guarded,
    log_in,
)
from ...support.gateway.served import messages, told

DESK = Agent(name="desk", model="main")
ABOUT = "/v1/about"
SAME = {"Sec-Fetch-Site": "same-origin"}
TURN = {"agent": "desk", "task": "Hello."}


@contextlib.asynccontextmanager
async def gateway(
    runtime: Runtime, issuer: FakeIssuer, *, page: LoginClient = PAGE, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway whose page logs people in."""
    issuer.person = ANNA
    async with (
        runtime(DESK, model=ScriptedModel(*[says("Good day.")] * 3)) as client,
        guarded(client, issuer, page=page, **options) as http,
    ):
        yield http


@pytest.mark.accepts("G70")
async def test_person_logs_in_acts_and_logs_out(runtime: Runtime) -> None:
    """The session is in a cookie that no script reads; streams know it, too."""
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer) as http:
            nobody = await http.get(ABOUT)
            done = await log_in(http, "#/inbox")
            about = await http.get(ABOUT)
            started = await http.post("/v1/turns", json={**TURN, "id": "g70"}, headers=SAME)
            seen = [one async for one in messages(http, "/v1/turns/g70/events")]
            out = await http.post("/ui/logout", headers=SAME)
            after = await http.get(ABOUT)
        [authorize] = [path for path in issuer.requests if path == "/authorize"]

    assert told(nobody) == (401, "UNAUTHENTICATED")
    assert nobody.headers["perdure-login"] == "/ui/login"
    assert (done.status_code, done.headers["location"]) == (303, "/ui/#/inbox")
    cookies = cookies_of(done)
    session = cookies["perdure-session"]
    assert (session["httponly"], session["samesite"], session["path"]) == (True, "strict", "/")
    assert session["max-age"] == "28800"
    assert cookies["perdure-login"]["max-age"] == "0"
    assert (about.json()["subject"], about.json()["tenant"]) == ("anna", "acme")
    assert about.json()["session_ends_at"] is not None
    assert started.json()["id"] == "@acme/g70"
    assert "turn_ended" in {data["kind"] for _, data in seen}
    assert (out.status_code, told(after)) == (204, (401, "UNAUTHENTICATED"))
    assert authorize


@pytest.mark.accepts("G70")
async def test_login_asks_with_pkce_and_a_state(runtime: Runtime) -> None:
    """Each time others; where the page goes on may not bring a token, nor be elsewhere."""
    places = ["#token=abc", "//evil.example", "https://evil.example", "chat.html#agent=desk", "x"]
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer) as http:
            asked = []
            for _ in range(2):
                begun = await http.get("/ui/login")
                asked.append(dict(parse_qsl(urlsplit(begun.headers["location"]).query)))
            went = [(await log_in(http, place)).headers["location"] for place in places]

    assert {query["code_challenge_method"] for query in asked} == {"S256"}
    for name in ("state", "nonce", "code_challenge"):
        assert asked[0][name] != asked[1][name]
    assert asked[0]["redirect_uri"] == f"{http.base_url}/ui/callback".replace("//ui", "/ui")
    assert cookies_of(begun)["perdure-login"]["samesite"] == "lax"
    assert went == ["/ui/", "/ui/", "/ui/", "/ui/chat.html#agent=desk", "/ui/"]


@pytest.mark.accepts("G71")
async def test_requests_of_other_pages_do_nothing_with_a_session(runtime: Runtime) -> None:
    """By what a browser says of the page, or by its origin; a token needs none of it."""
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer) as http:
            await log_in(http)
            own = str(http.base_url).rstrip("/")
            forged: list[dict[str, str]] = [
                {"Sec-Fetch-Site": "cross-site"},
                {"Sec-Fetch-Site": "same-site"},
                {"Sec-Fetch-Site": "none"},
                {"Sec-Fetch-Site": "cross-site", "Origin": own},
                {"Origin": "https://evil.example"},
                {"Origin": "null"},
                {},
            ]
            refused = [
                await http.post("/v1/turns", json={**TURN, "id": f"g71-forged-{n}"}, headers=one)
                for n, one in enumerate(forged)
            ]
            logout = await http.post("/ui/logout", headers=forged[0])
            read = await http.get(ABOUT, headers={"Sec-Fetch-Site": "cross-site"})
            protocols = [
                await http.post("/mcp", json={}, headers=forged[0]),
                await http.post("/openai/v1/responses", json={}, headers=forged[0]),
            ]
            taken = [
                await http.post("/v1/turns", json={**TURN, "id": f"g71-{n}"}, headers=one)
                for n, one in enumerate((SAME, {"Origin": own}, {**forged[0], **access(issuer)}))
            ]
            typed = await http.get(ABOUT, headers={"Sec-Fetch-Site": "none"})
            listed = (await http.get("/v1/turns")).json()["turns"]

    assert {told(answer) for answer in refused} == {(403, "FORBIDDEN")}
    assert (told(logout), told(read)) == ((403, "FORBIDDEN"), (403, "FORBIDDEN"))
    assert [answer.status_code for answer in protocols] == [403, 403]
    assert [answer.status_code for answer in taken] == [202] * 3
    assert typed.status_code == 200
    assert [one["id"] for one in listed if "g71-forged-" in one["id"]] == []


@pytest.mark.accepts("G72")
async def test_behind_https_the_cookie_is_sent_over_https_alone(runtime: Runtime) -> None:
    """Under a name that only this host can set; one of another name is not looked at."""
    url = "https://agents.example.com"
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer, url=url) as http:
            begun = await http.get("/ui/login")
            cookie = begun.headers["set-cookie"]
            asked = dict(parse_qsl(urlsplit(begun.headers["location"]).query))

    assert asked["redirect_uri"] == f"{url}/ui/callback"
    assert cookie.startswith("__Host-perdure-login=")
    assert {"Secure", "HttpOnly", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))


@pytest.mark.accepts("G72")
async def test_session_is_known_by_every_process_with_the_key(runtime: Runtime) -> None:
    """And by none with another key, another table or another client, nor if it is changed."""
    other_table = TABLE.model_copy(update={"may": {}})
    with FakeIssuer() as issuer:
        issuer.person = ANNA
        async with runtime(DESK, model=ScriptedModel()) as client:
            async with guarded(client, issuer, page=PAGE) as http:
                await log_in(http)
                sealed = http.cookies["perdure-session"]
            found = []
            for page, table in (
                (PAGE, TABLE),
                (LoginClient("page", cookie_key="x" * 32), TABLE),
                (LoginClient("page"), TABLE),
                (LoginClient("other", cookie_key=COOKIE_KEY), TABLE),
                (PAGE, other_table),
            ):
                async with guarded(client, issuer, page=page, table=table) as http:
                    http.cookies.set("perdure-session", sealed)
                    found.append((await http.get(ABOUT)).status_code)
            async with guarded(client, issuer, page=PAGE) as http:
                changed = []
                for value in (f"{sealed[:-2]}AA", sealed[:20], "x", "é"):
                    cookie = {b"Cookie": f"perdure-session={value}".encode()}
                    answer = await http.get(ABOUT, headers=cookie)
                    changed.append(answer.status_code)

    assert found == [200, 401, 401, 401, 401]
    assert changed == [401] * 4


@pytest.mark.accepts("G73")
async def test_what_goes_wrong_with_a_login_is_said_on_a_page(runtime: Runtime) -> None:
    """Nobody is logged in, and what the provider says is text."""
    with FakeIssuer() as issuer:
        async with gateway(runtime, issuer) as http:
            no_login = await http.get("/ui/callback?code=c&state=s")
            begun = await http.get("/ui/login")
            state = dict(parse_qsl(urlsplit(begun.headers["location"]).query))["state"]
            wrong = [
                await http.get("/ui/callback", params=params)
                for params in (
                    {"code": "c", "state": "other"},
                    {"code": "c", "state": state, "iss": "https://evil.example"},
                    {"state": state},
                    {"code": "stolen", "state": state},
                    {"state": state, "error": "<script>", "error_description": "a\x1b[1mb"},
                )
            ]
            issuer.person = None
            declined = await log_in(http)
            issuer.person = {**ANNA, "org": "org-9"}
            stranger = await log_in(http)
            issuer.person = {**ANNA, "groups": []}
            powerless = await log_in(http)
            issuer.replies["/token"] = 500, b"<html>"
            issuer.person = ANNA
            broken = await log_in(http)
            issuer.replies["/token"] = 200, b'{"id_token": "x.y.z"}'
            unreadable = await log_in(http)
            issuer.replies["/token"] = 200, b'{"id_token": "' + issuer.token().encode() + b'"}'
            of_another_kind = await log_in(http)
            elsewhere = await http.get("/ui/login", headers={"Host": "agents.example.com"})
            about = await http.get(ABOUT)

    assert (elsewhere.status_code, "--url https://" in elsewhere.text) == (500, True)
    pages = [no_login, *wrong, declined, stranger, powerless, broken, unreadable, of_another_kind]
    assert [page.status_code for page in pages] == [
        *(403, 403, 400, 400, 403, 403),
        *(403, 403, 403, 502, 403, 403),
    ]
    assert all("Nobody is logged in" in page.text for page in pages)
    assert all("perdure-session" not in cookies_of(page) for page in pages)
    assert "<script>" not in wrong[-1].text
    assert "&lt;script&gt;" in wrong[-1].text
    assert "the person declined" in declined.text
    assert "none of [tenants]" in stranger.text
    assert "may do nothing here" in powerless.text
    assert {page.headers["cache-control"] for page in pages} == {"no-store"}
    assert all("default-src 'none'" in page.headers["content-security-policy"] for page in pages)
    assert told(about) == (401, "UNAUTHENTICATED")


@pytest.mark.accepts("G73")
async def test_issuer_that_is_down_during_a_login(runtime: Runtime) -> None:
    """The page says so, with 503 and `Retry-After`."""
    with FakeIssuer() as issuer:
        issuer.replies["/jwks"] = 500, b""
        async with gateway(runtime, issuer) as http:
            down = await http.get("/ui/login")

    assert down.status_code == 503
    assert "retry-after" in down.headers


@pytest.mark.accepts("G70")
async def test_client_with_a_secret_sends_it(runtime: Runtime) -> None:
    """Without it, or with another one, the provider does not take the code."""
    with FakeIssuer() as issuer:
        issuer.secrets["page"] = "s:e c"
        async with gateway(
            runtime, issuer, page=LoginClient("page", secret="s:e c", cookie_key=COOKIE_KEY)
        ) as http:
            done = await log_in(http)
        async with gateway(runtime, issuer) as http:
            refused = await log_in(http)

    assert (done.status_code, refused.status_code) == (303, 403)
    assert "invalid_client" in refused.text


@pytest.mark.accepts("G72")
def test_key_of_cookies_is_long() -> None:
    """A short one could be guessed from a cookie."""
    with pytest.raises(errors.ConfigurationError, match="openssl rand"):
        LoginClient("page", cookie_key="short")
