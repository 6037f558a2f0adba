"""A certified server, `oidc-provider` for Node.js, logs people in for an MCP server."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import httpx
import jwt
import pytest

from perdure.oauth.failures import GrantRefusedError
from perdure.oauth.login import begin, complete, refresh
from perdure.oauth.values import Tokens

from ...support.mcp.hostile_resource import HostileResource
from ...support.oidc.node_provider import node_provider
from ...support.ports import free_port

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

BACK = "http://127.0.0.1:9/callback"


async def signed_in(address: str, name: str) -> dict[str, str]:
    """The query of the redirect after a person has filled in the forms of the provider."""
    async with httpx.AsyncClient(verify=False, timeout=60) as browser:
        answer = await browser.get(address)
        while not answer.headers.get("location", "").startswith(BACK):
            if answer.is_redirect:
                answer = await browser.get(str(answer.url.join(answer.headers["location"])))
                continue
            action = re.search(r'<form[^>]* action="([^"]+)"', answer.text)
            prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
            assert action is not None, answer.text
            assert prompt is not None, answer.text
            form = {"prompt": prompt[1], "login": name, "password": "any"}
            answer = await browser.post(str(answer.url.join(action[1])), data=form)
    return dict(parse_qsl(urlsplit(answer.headers["location"]).query))


async def claims_of(tokens: Tokens) -> dict[str, str]:
    """What an access token says, with the keys of its issuer."""
    async with httpx.AsyncClient(verify=False, timeout=60) as http:
        keys = jwt.PyJWKSet.from_dict((await http.get(f"{tokens.issuer}/jwks")).json())
    key = keys[jwt.get_unverified_header(tokens.access_token)["kid"]]
    claims: dict[str, str] = jwt.decode(
        tokens.access_token, key, ["RS256"], audience=tokens.resource, issuer=tokens.issuer
    )
    return claims


@pytest.mark.slow
@pytest.mark.accepts("G75", "G120", "G121")
async def test_certified_provider_logs_a_person_in_for_an_mcp_server() -> None:
    """With a client that registers itself; its refresh tokens rotate, and are good once."""
    with (
        node_provider("http://127.0.0.1:1", free_port()) as issuer,
        HostileResource() as resource,
    ):
        resource.describe(issuer)
        address, begun = await begin(resource.url, BACK)
        query = await signed_in(address, "anna")
        first = await complete(begun, query)
        second = await refresh(first)
        claims = [await claims_of(tokens) for tokens in (first, second)]
        with pytest.raises(GrantRefusedError, match="invalid_grant"):
            await refresh(first)
        with pytest.raises(GrantRefusedError, match="invalid_grant"):
            await complete(begun, query)

    assert [(one["sub"], one["aud"]) for one in claims] == [("anna", resource.url)] * 2
    assert first.refresh_token not in (None, second.refresh_token)
    assert "iss" in query
