"""The gateway's MCP endpoint says who its authorization server is (RFC 9728)."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
import pytest

from perdure import Agent
from perdure.testing import FakeIssuer, ScriptedModel, says

from ...conftest import Runtime
from ...support.gateway.identity import ANNA, guarded
from ...support.gateway.served import told
from ...support.ports import free_port

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from mcp import Client
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)

from ...support.mcp.tasks import use

DESK = Agent(name="desk", model="main")
WELL_KNOWN = "/.well-known/oauth-protected-resource"


class Remembered(TokenStorage):
    """What a client knows of its authorization."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def authorization(server: str, remembered: Remembered) -> OAuthClientProvider:
    """The SDK's own flow, with a person who logs in at once."""
    answers: list[str] = []

    async def redirect(url: str) -> None:
        async with httpx.AsyncClient(verify=False, timeout=60) as browser:
            answers.append((await browser.get(url)).headers["location"])

    async def callback() -> AuthorizationCodeResult:
        query = {name: value[0] for name, value in parse_qs(urlsplit(answers[-1]).query).items()}
        return AuthorizationCodeResult(
            code=query["code"], state=query.get("state"), iss=query.get("iss")
        )

    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": "an assistant",
            "redirect_uris": ["http://127.0.0.1:1/callback"],
            "token_endpoint_auth_method": "none",
        }
    )
    return OAuthClientProvider(server, metadata, remembered, redirect, callback)


@pytest.mark.slow
@pytest.mark.accepts("G85")
async def test_client_of_the_sdk_finds_its_way(runtime: Runtime) -> None:
    """From the 401 to the metadata, the provider, its registration, its login, and the tools."""
    remembered = Remembered()
    with FakeIssuer("/realms/test") as issuer:
        issuer.person = ANNA
        async with runtime(DESK, model=ScriptedModel(says("Good day."))) as client:
            port = free_port()
            server = f"http://127.0.0.1:{port}/mcp"
            async with (
                guarded(client, issuer, port=port, audiences=[server]),
                httpx2.AsyncClient(
                    auth=authorization(server, remembered), verify=False, timeout=60
                ) as authorized,
                Client(streamable_http_client(server, http_client=authorized)) as mcp,
            ):
                tools = await mcp.list_tools()
                started = await use(mcp, "start_turn", agent="desk", task="Hello.", id="g85")
                ended = await use(mcp, "turn_result", turn="g85")

    assert "start_turn" in {tool.name for tool in tools.tools}
    assert (started["turn"], ended["output"]) == ("@acme/g85", "Good day.")
    assert remembered.tokens is not None
    assert "/realms/test/token" in issuer.requests


@pytest.mark.accepts("G85")
async def test_refusal_names_where_to_get_a_token(runtime: Runtime) -> None:
    """Of the gateway, and of its MCP endpoint, by the address that callers know."""
    url = "https://agents.example.com/perdure"
    with FakeIssuer() as issuer:
        async with (
            runtime(DESK, model=ScriptedModel()) as client,
            guarded(client, issuer) as http,
            guarded(client, issuer, url=url) as behind,
        ):
            base = str(http.base_url).rstrip("/")
            rest, mcp = await http.get("/v1/turns"), await http.post("/mcp", json={})
            openai = await http.get("/openai/v1/models")
            described = [
                (await http.get(path)).json() for path in (WELL_KNOWN, f"{WELL_KNOWN}/mcp")
            ]
            proxied = await behind.post("/mcp", json={})
            resource = (await behind.get(f"{WELL_KNOWN}/mcp")).json()["resource"]

    assert told(rest) == told(mcp) == (401, "UNAUTHENTICATED")
    assert openai.json()["error"]["type"] == "authentication_error"
    assert rest.headers["www-authenticate"] == f'Bearer resource_metadata="{base}{WELL_KNOWN}"'
    assert openai.headers["www-authenticate"] == rest.headers["www-authenticate"]
    assert mcp.headers["www-authenticate"] == f'Bearer resource_metadata="{base}{WELL_KNOWN}/mcp"'
    assert described == [
        {
            "resource": resource_url,
            "authorization_servers": [issuer.url],
            "bearer_methods_supported": ["header"],
            "resource_name": "Perdure",
        }
        for resource_url in (base, f"{base}/mcp")
    ]
    assert f"{url}{WELL_KNOWN}/mcp" in proxied.headers["www-authenticate"]
    assert resource == f"{url}/mcp"
