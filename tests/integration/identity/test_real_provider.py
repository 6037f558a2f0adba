"""A certified identity provider, `oidc-provider` for Node.js: its tokens, and its login form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from perdure import Agent
from perdure.clients.gateway import IdentityProvider, LoginClient
from perdure.clients.gateway.auth import nobody
from perdure.testing import ScriptedModel

from ...conftest import Runtime
from ...support.browser import opened
from ...support.gateway.identity import AUDIENCE, COOKIE_KEY, TABLE, bearer
from ...support.gateway.pages import has
from ...support.gateway.served import served, told
from ...support.oidc.node_provider import SECRET, node_provider
from ...support.ports import free_port

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

DESK = Agent(name="desk", model="main")
ABOUT = "/v1/about"


async def machine_token(issuer: str, audience: str) -> str:
    """An access token for a program."""
    async with httpx.AsyncClient(verify=False, timeout=60) as http:
        document = (await http.get(f"{issuer}/.well-known/openid-configuration")).json()
        answer = await http.post(
            document["token_endpoint"],
            data={"grant_type": "client_credentials", "resource": audience},
            auth=("machine", "a%20secret%20of%20the%20machine"),
        )
    token: str = answer.json()["access_token"]
    return token


@pytest.mark.slow
@pytest.mark.accepts("G75")
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_program_calls_with_a_token_of_the_provider(runtime: Runtime, algorithm: str) -> None:
    """For this gateway; one for another service is refused."""
    with node_provider("http://127.0.0.1:1", free_port(), algorithm) as issuer:
        identity = IdentityProvider(issuer, [AUDIENCE], table=TABLE)
        async with (
            runtime(DESK, model=ScriptedModel()) as client,
            served(client, nobody, identity=identity) as http,
        ):
            good = await http.get(ABOUT, headers=bearer(await machine_token(issuer, AUDIENCE)))
            other = await http.get(
                ABOUT, headers=bearer(await machine_token(issuer, "https://other.example.com"))
            )

    assert (good.json()["subject"], good.json()["tenant"]) == ("machine", "acme")
    assert "start" in good.json()["may"]
    assert told(other) == (401, "UNAUTHENTICATED")
    assert "other.example.com" in other.json()["detail"]


async def sign_in(page: Page, name: str) -> None:
    """Fill in the forms of the provider: who it is, and that the gateway may know it."""
    await page.get_by_role("button", name="Log in").click()
    await page.locator("input[name=login]").fill(name)
    await page.locator("input[name=password]").fill("any")
    await page.locator("button[type=submit]").click()
    await page.get_by_role("button", name="Continue").click()


@pytest.mark.slow
@pytest.mark.accepts("G75")
@pytest.mark.parametrize("secret", [None, SECRET], ids=["public client", "client with a secret"])
async def test_person_logs_in_with_the_form_of_the_provider(
    runtime: Runtime, chromium: Browser, secret: str | None
) -> None:
    """In a browser, with a client of each kind, and logs out."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    name = "page" if secret is None else "page-with-secret"
    login = LoginClient(name, secret=secret, cookie_key=COOKIE_KEY)
    options: dict[str, Any] = {"wait_until": "load"}
    with node_provider(base, free_port()) as issuer:
        identity = IdentityProvider(issuer, [AUDIENCE], table=TABLE, client=login)
        async with (
            runtime(DESK, model=ScriptedModel()) as client,
            served(client, nobody, identity=identity, port=port),
            opened(chromium, f"{base}/ui/#/inbox", **options) as watched,
        ):
            page = watched.page
            await sign_in(page, "rita")
            await page.get_by_role("button", name="rita · acme").wait_for()
            address = page.url
            cookies = {one["name"]: one for one in await page.context.cookies(base)}
            await page.get_by_role("button", name="Log out").click()
            await has(page, "Who are you?")
            left = [one["name"] for one in await page.context.cookies(base)]

    assert address == f"{base}/ui/#/inbox"
    assert cookies["perdure-session"]["httpOnly"]
    assert cookies["perdure-session"]["sameSite"] == "Strict"
    assert "perdure-session" not in left
