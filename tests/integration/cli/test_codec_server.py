"""The codec server: what it decrypts, and for whom."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import DataConverter

from perdure import errors, limits
from perdure.clients.gateway.codec_server import codec_server
from perdure.temporal.data_converter import encrypting
from perdure.temporal.encryption.keys import new_entry, parsed
from perdure.text import is_loopback

UI = "https://temporal.example.com"
TOKEN = "a-token-of-the-codec-server-0123456789"
PLAIN = Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=b'"canary"')])
CONVERTER = encrypting(DataConverter.default, parsed(new_entry("k1"), "the test"))


def http(token: str | None = None, host: str = "localhost:8081") -> httpx.AsyncClient:
    """A client of a server for the web UI."""
    transport = httpx.ASGITransport(codec_server(CONVERTER, [UI], token))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}")


def body(payloads: Payloads) -> str:
    """Payloads as the web UI sends them."""
    return json_format.MessageToJson(payloads)


async def posted(client: httpx.AsyncClient, path: str, content: Any, **headers: str) -> Any:
    """The answer to a request."""
    return await client.post(path, content=content, headers=headers)


@pytest.mark.accepts("G4", "G14")
async def test_payloads_are_encoded_and_decoded() -> None:
    """Also under the name of a namespace; what cannot be decrypted is returned as it is."""
    async with http() as client:
        encoded = await posted(client, "/encode", body(PLAIN), origin=UI)
        decoded = await posted(client, "/default/decode", encoded.content, origin=UI)
        changed = json_format.Parse(encoded.content, Payloads())
        changed.payloads[0].data = changed.payloads[0].data[:-1]
        kept = await posted(client, "/decode", body(changed))

    assert b"canary" not in encoded.content
    assert json_format.Parse(decoded.content, Payloads()) == PLAIN
    assert decoded.headers["access-control-allow-origin"] == UI
    assert decoded.headers["cache-control"] == "no-store"
    assert json_format.Parse(kept.content, Payloads()).payloads[0].data == changed.payloads[0].data


@pytest.mark.accepts("G14")
async def test_pages_of_other_origins_may_not_ask() -> None:
    """Neither a preflight nor a request; that of the UI may."""
    async with http() as client:
        asked = [
            await client.options("/decode", headers={"origin": origin})
            for origin in (UI, "https://evil.example.com", f"{UI}.evil.example.com", "null")
        ]
        refused = await posted(client, "/decode", body(PLAIN), origin="https://evil.example.com")

    assert [one.status_code for one in asked] == [204, 403, 403, 403]
    assert asked[0].headers["access-control-allow-origin"] == UI
    assert asked[0].headers["access-control-allow-headers"] == (
        "authorization, content-type, x-namespace"
    )
    assert [one.headers.get("access-control-allow-origin") for one in asked[1:]] == [None] * 3
    assert refused.status_code == 403
    assert "--origin" in refused.json()["detail"]


@pytest.mark.accepts("G14")
async def test_requests_need_the_token_or_the_name_of_this_machine() -> None:
    """With a token, the right one; without one, no name that a page can have rebound."""
    async with http(TOKEN, "codec.example.com") as client:
        answers = [
            await posted(client, "/encode", body(PLAIN), **headers)
            for headers in (
                {},
                {"authorization": f"Bearer {TOKEN}x"},
                {"authorization": TOKEN},
                {"authorization": f"Bearer {TOKEN}"},
            )
        ]
    async with http(None, "evil.example.com") as client:
        rebound = await posted(client, "/decode", body(PLAIN))

    assert [one.status_code for one in answers] == [401, 401, 401, 200]
    assert rebound.status_code == 403
    assert [is_loopback(one) for one in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "a.b")] == [
        *(True, True, True, False, False)
    ]


@pytest.mark.accepts("G14")
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"payloads": 1}', b'{"payloads": [{"data": 1}]}', b"\xff\xfe"]
)
async def test_bodies_that_are_no_payloads_are_refused(content: bytes) -> None:
    """With a message that quotes nothing of them."""
    async with http() as client:
        answer = await posted(client, "/decode", content)

    assert answer.status_code == 400
    assert answer.json()["code"] == "INVALID_JSON"
    assert "payloads" in answer.json()["detail"]


@pytest.mark.accepts("G14")
async def test_bodies_are_limited() -> None:
    """One byte too many."""
    async with http() as client:
        answer = await posted(client, "/decode", b" " * (limits.CODEC_BODY_BYTES + 1))

    assert answer.status_code == 413


@pytest.mark.accepts("G14")
@pytest.mark.parametrize("origin", ["example.com", f"{UI}/", "*", "ftp://a", "null"])
def test_origins_and_set_ups_that_cannot_work_are_refused(origin: str) -> None:
    """No star, no path; no server without a codec; no short token."""
    with pytest.raises(errors.ConfigurationError, match="is not an origin"):
        codec_server(CONVERTER, [origin], None)
    with pytest.raises(errors.ConfigurationError, match="nothing to decrypt with"):
        codec_server(DataConverter.default, [UI], None)
    with pytest.raises(errors.ConfigurationError, match="token"):
        codec_server(CONVERTER, [UI], "short")
