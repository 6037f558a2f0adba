"""Failed attempts that may have been billed: every kind of failure, over real HTTP on loopback, in
every API.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from perdure import errors, limits
from perdure.errors import PerdureError
from perdure.testing.stub_provider import StubProvider, StubReply

from ..support.loopback import (
    ANTHROPIC,
    HELLO,
    OPENAI,
    RESPONSES,
    VENDORS,
    Vendor,
    error_body,
    raw_server,
)

each_vendor = pytest.mark.parametrize("vendor", VENDORS)
CHARGED = {"model": "m", "charged": True}
USAGE = {"input_tokens": 20, "output_tokens": 7, "cache_read_tokens": 0, "cache_write_tokens": 0}
OPENAI_USAGE = {"prompt_tokens": 20, "completion_tokens": 7}
PLAIN_USAGE = {"input_tokens": 20, "output_tokens": 7}
HALF = {"type": "message", "content": [{"type": "output_text", "text": "half"}]}


async def failing(vendor: Vendor, address: str) -> PerdureError:
    """The error of a request to this address."""
    with pytest.raises(PerdureError) as caught:
        await vendor.ask(address)
    return caught.value


@contextlib.contextmanager
def closing_server() -> Iterator[str]:
    """The address of a server that reads the beginning of a request and resets the connection."""

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(10)
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
        )
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


# Not charged


@each_vendor
async def test_server_that_cannot_be_reached_charges_nothing(vendor: Vendor) -> None:
    """Nothing was sent."""
    with StubProvider([]) as stub:
        gone = stub.anthropic_url

    assert (await failing(vendor, gone)).context == {"model": "m", "sent": False}


@each_vendor
async def test_connection_without_tls_charges_nothing(vendor: Vendor) -> None:
    """The handshake comes before the request."""
    with raw_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        error = await failing(vendor, address.replace("http:", "https:"))

    assert (type(error), error.context) == (
        errors.LLMUnavailableError,
        {"model": "m", "sent": False},
    )
    assert error.message.endswith(" cannot be reached: TLS failed")


@each_vendor
async def test_proxy_that_lets_nobody_through_charges_nothing(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy did not forward the request."""
    for name in ("NO_PROXY", "no_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with raw_server(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        error = await failing(vendor, "https://provider.invalid")

    assert (error.message, error.context) == (
        f"{vendor.name}: the proxy did not connect to the server",
        {"model": "m", "sent": False},
    )


@each_vendor
@pytest.mark.parametrize(
    "payload",
    [
        b"content-length: 100\r\n\r\n{",
        b"content-length: 5\r\ncontent-encoding: gzip\r\n\r\nplain",
        b"content-length: 1\r\ncontent-encoding: br\r\n\r\nx",
        b"transfer-encoding: chunked\r\n\r\nnonsense\r\n",
    ],
)
async def test_error_status_whose_body_cannot_be_read_is_still_that_status(
    vendor: Vendor, payload: bytes
) -> None:
    """The status determines the error class, and nothing is charged."""
    with raw_server(b"HTTP/1.1 401 Unauthorized\r\n" + payload) as address:
        error = await failing(vendor, address)

    assert (type(error), error.context) == (errors.LLMAuthError, {"model": "m", "status": 401})


@each_vendor
async def test_error_status_with_an_endless_body_is_still_that_status(vendor: Vendor) -> None:
    """The client does not read to its end."""
    with raw_server(
        b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\n\r\n", then=b" " * 1_000_000
    ) as address:
        error = await failing(vendor, address)

    assert (type(error), error.context) == (
        errors.LLMRateLimitError,
        {"model": "m", "status": 429, "retry_after_s": 3},
    )


@each_vendor
@pytest.mark.parametrize(
    "error", ["gone", {"message": "slow down", "code": 429, "type": "rate_limit_error"}]
)
async def test_error_instead_of_an_answer_in_a_200_charges_nothing(
    vendor: Vendor, error: object
) -> None:
    """There was no output yet."""
    failure = await vendor.failing(error_body(200, error))

    assert not {"charged", "usage"} & set(failure.context)


# Charged


@each_vendor
@pytest.mark.parametrize(
    "payload", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", b"nonsense\r\n\r\n"]
)
async def test_connection_that_breaks_after_the_request_may_be_charged(
    vendor: Vendor, payload: bytes
) -> None:
    """Before the status, within the body, or without valid HTTP."""
    with raw_server(payload) as address:
        error = await failing(vendor, address)

    assert (error.message, error.context) == (
        f"{vendor.name}: the connection broke before the reply was complete",
        CHARGED,
    )


@each_vendor
async def test_connection_that_breaks_within_the_request_may_be_charged(vendor: Vendor) -> None:
    """It is unknown how much of the request the provider received."""
    with closing_server() as address, pytest.raises(errors.LLMUnavailableError) as caught:
        await vendor.ask(address, replace(HELLO, system="x" * 20_000_000))

    assert (caught.value.message, caught.value.context) == (
        f"{vendor.name}: the connection broke before the reply was complete",
        CHARGED,
    )


@each_vendor
@pytest.mark.parametrize(
    "reply",
    [
        {"raw": b""},
        {"raw": b"<html>"},
        {"raw": b'{"choices": [{"mess'},
        {"raw": b"[]"},
        {"raw": b"{}"},
        {"raw": b'{"error": null}'},
        {"raw": b'{"content": "\xff"}'},
        {"raw": b'{"content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"},
        {"raw": b" " * (limits.PROVIDER_BODY_BYTES + 1)},
        {
            "raw": gzip.compress(b" " * (limits.PROVIDER_BODY_BYTES + 1), 1),
            "headers": {"content-encoding": "gzip"},
        },
        {"raw": b"plain", "headers": {"content-encoding": "gzip"}},
        {"raw": b"x", "headers": {"content-encoding": "br"}},
    ],
    ids=[
        "empty",
        "html",
        "cut",
        "list",
        "no message",
        "null",
        "no UTF-8",
        "deep",
        "too large",
        "bomb",
        "no gzip",
        "encoding",
    ],
)
async def test_answer_that_cannot_be_read_may_be_charged(vendor: Vendor, reply: StubReply) -> None:
    """The model may have produced an answer."""
    error = await vendor.failing(reply)

    assert (type(error), error.context) == (errors.LLMUnavailableError, CHARGED)


@pytest.mark.parametrize(
    ("vendor", "body", "context"),
    [
        (
            OPENAI,
            {
                "choices": [{"message": {"content": "half"}, "finish_reason": "error"}],
                "usage": OPENAI_USAGE,
            },
            {"usage": USAGE},
        ),
        (OPENAI, {"choices": [{"message": {"content": "half"}, "finish_reason": "error"}]}, {}),
        (
            OPENAI,
            {"choices": [{"error": {"message": "gone", "code": 502}}], "usage": OPENAI_USAGE},
            {"status": 502, "usage": USAGE},
        ),
        (
            OPENAI,
            {
                "choices": [{"message": {"content": "half"}}],
                "error": {"message": "gone", "code": 502},
            },
            {"status": 502},
        ),
        (
            OPENAI,
            {"error": {"message": "gone", "code": 502}, "usage": OPENAI_USAGE},
            {"status": 502, "usage": USAGE},
        ),
        (OPENAI, {"choices": [], "usage": OPENAI_USAGE}, {"usage": USAGE}),
        (
            OPENAI,
            {"choices": [{"message": {"tool_calls": [{}]}}], "usage": OPENAI_USAGE},
            {"usage": USAGE},
        ),
        (OPENAI, {"choices": [], "usage": {**OPENAI_USAGE, "completion_tokens": -7}}, {}),
        (OPENAI, {"choices": [], "usage": {**OPENAI_USAGE, "prompt_tokens": None}}, {}),
        (RESPONSES, {"output": None, "usage": PLAIN_USAGE}, {"usage": USAGE}),
        (
            RESPONSES,
            {"output": [{"type": "function_call"}], "usage": PLAIN_USAGE},
            {"usage": USAGE},
        ),
        (
            RESPONSES,
            {"output": [{"type": "function_call"}], "usage": {**PLAIN_USAGE, "input_tokens": -20}},
            {},
        ),
        (RESPONSES, {"output": [], "status": "in_progress", "usage": None}, {}),
        (
            RESPONSES,
            {"output": [HALF], "status": "cancelled", "usage": PLAIN_USAGE},
            {"usage": USAGE},
        ),
        (
            RESPONSES,
            {"output": [HALF], "status": "failed", "error": {"code": "server_error"}},
            {"status": 200},
        ),
        (
            RESPONSES,
            {"output": [], "error": {"code": "server_error"}, "usage": PLAIN_USAGE},
            {"status": 200, "usage": USAGE},
        ),
        (ANTHROPIC, {"content": None, "usage": PLAIN_USAGE}, {"usage": USAGE}),
        (ANTHROPIC, {"content": [{"type": "tool_use"}], "usage": PLAIN_USAGE}, {"usage": USAGE}),
        (
            ANTHROPIC,
            {"content": [{"type": "tool_use"}], "usage": {**PLAIN_USAGE, "output_tokens": 10**12}},
            {},
        ),
        (
            ANTHROPIC,
            {"content": [{"type": "text", "text": "half"}], "error": {"type": "overloaded_error"}},
            {"status": 200},
        ),
        (
            ANTHROPIC,
            {"error": {"type": "overloaded_error"}, "usage": PLAIN_USAGE},
            {"status": 200, "usage": USAGE},
        ),
    ],
)
async def test_answer_that_is_none_is_charged_by_its_usage_where_it_tells_that(
    vendor: Vendor, body: dict[str, Any], context: dict[str, Any]
) -> None:
    """A partial usage shows only that there was output."""
    error = await vendor.failing({"raw": json.dumps(body)})

    assert (type(error), error.context) == (errors.LLMUnavailableError, {**CHARGED, **context})


@each_vendor
async def test_charge_goes_with_the_error_as_a_value(vendor: Vendor) -> None:
    """The accounting reads it from history."""
    raw = json.dumps({"choices": [], "content": None, "usage": {**OPENAI_USAGE, **PLAIN_USAGE}})
    error = await vendor.failing({"raw": raw})

    assert error.info().context == {**CHARGED, "usage": USAGE}
