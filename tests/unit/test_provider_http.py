"""Rules of every provider, for any API: over real HTTP on loopback, with keys that must not leak
and servers that misbehave.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import time
import traceback
from dataclasses import replace

import pytest

from perdure import errors, limits
from perdure.testing.stub_provider import StubProvider, StubReply
from perdure.values.messages import Media, UserMessage

from ..support.loopback import HELLO, KEY, VENDORS, Vendor, error_body, raw_server

pytestmark = pytest.mark.parametrize("vendor", VENDORS)


def in_every_api(words: str) -> bytes:
    """A body with this text, valid in every API."""
    said = [{"type": "text", "text": words}]
    message = {"type": "message", "content": said}
    return json.dumps(
        {"content": said, "choices": [{"message": {"content": words}}], "output": [message]}
    ).encode()


# Keys


@pytest.mark.accepts("G2")
@pytest.mark.parametrize("value", ["", KEY + "\n", KEY + "\r\nx: y", KEY + "é", KEY + " "])
async def test_key_that_is_no_header_value_is_refused_without_showing_it(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """A line break from `$(cat key)` is named as such; the error does not contain the key."""
    monkeypatch.setenv("TEST_KEY", value)
    with StubProvider([]) as stub, pytest.raises(errors.ConfigurationError) as caught:
        await vendor.ask(stub.anthropic_url, key="TEST_KEY")

    assert "TEST_KEY" in caught.value.message
    assert KEY not in "".join(traceback.format_exception(caught.value)) + repr(
        caught.value.to_dict()
    )
    assert stub.requests == []


async def test_key_that_a_provider_quotes_is_cut_out_of_the_error(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the truncation of the text would split it."""
    monkeypatch.setenv("TEST_KEY", KEY)
    said = "x" * 480 + f" bad key {KEY} used"
    with (
        StubProvider([error_body(401, {"message": said})]) as stub,
        pytest.raises(errors.LLMAuthError) as caught,
    ):
        await vendor.ask(stub.anthropic_url, key="TEST_KEY")

    assert KEY[:8] not in repr(caught.value.to_dict())


async def test_transport_error_has_no_trace_of_the_request(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chain of causes, which tracebacks and log handlers print, has no headers from httpx."""
    monkeypatch.setenv("TEST_KEY", KEY)
    with StubProvider([]) as stub:
        gone = stub.anthropic_url

    with pytest.raises(errors.LLMUnavailableError) as caught:
        await vendor.ask(gone, key="TEST_KEY")

    words = (
        f"the server at {gone.removeprefix('http://')} cannot be reached: the connection was"
        " refused"
    )
    assert (caught.value.message, caught.value.context) == (
        f"{vendor.name}: {words}",
        {"model": "m", "sent": False},
    )
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


@pytest.mark.accepts("G5")
async def test_redirect_carries_the_key_nowhere(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redirecting server gets the caller's key, but the target does not."""
    monkeypatch.setenv("TEST_KEY", KEY)
    with StubProvider([{"text": "hi"}]) as other:
        moved: StubReply = {
            "status": 307,
            "headers": {"location": other.anthropic_url + vendor.path},
            "raw": "",
        }
        with StubProvider([moved]) as stub, pytest.raises(errors.LLMInvalidRequestError):
            await vendor.ask(stub.anthropic_url, key="TEST_KEY")

    assert other.requests == []


# Bodies


@pytest.mark.table(8)
@pytest.mark.accepts("M9")
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "empty"),
        (b"<html><body>Welcome</body></html>", "HTML"),
        (b'{"content": [{"type": "te', "not readable JSON"),
        (b"null", "not an object"),
        (b"[]", "not an object"),
        (b"{}", "no message"),
        (b'{"content": "\xff\xfe"}', "not UTF-8"),
        (b'{"content": ' + b"9" * 5000 + b"}", "not readable JSON"),
        (b'{"content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not readable JSON"),
        (b" " * (limits.PROVIDER_BODY_BYTES + 1), "larger than"),
    ],
)
async def test_body_that_is_no_answer_is_a_typed_error(
    vendor: Vendor, raw: bytes, says: str
) -> None:
    """The error is transient, so the turn may retry."""
    error = await vendor.failing({"raw": raw})

    assert isinstance(error, errors.LLMUnavailableError)
    assert says in error.message


@pytest.mark.accepts("M9")
@pytest.mark.table(1)
async def test_body_is_measured_after_decompression(vendor: Vendor) -> None:
    """A small body that expands to 100 MB is not kept."""
    bomb = gzip.compress(b" " * (limits.PROVIDER_BODY_BYTES * 5), 1)

    error = await vendor.failing({"raw": bomb, "headers": {"content-encoding": "gzip"}})

    assert (
        error.message
        == f"{vendor.name}: the reply is larger than {limits.PROVIDER_BODY_BYTES} bytes"
    )


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br"])
async def test_encoding_that_was_not_asked_for_is_refused(vendor: Vendor, encoding: str) -> None:
    """Two nested encodings would bypass the limit."""
    error = await vendor.failing({"raw": b"x", "headers": {"content-encoding": encoding}})

    assert (
        error.message
        == f"{vendor.name}: the reply has the content encoding '{encoding}', which was not"
        " asked for"
    )


async def test_body_that_is_not_what_its_encoding_says_is_a_typed_error(vendor: Vendor) -> None:
    """A broken proxy is a transport error."""
    error = await vendor.failing({"raw": b"plain", "headers": {"content-encoding": "gzip"}})

    assert isinstance(error, errors.LLMUnavailableError)


@pytest.mark.accepts("M9")
async def test_endless_body_is_cut_off(vendor: Vendor) -> None:
    """The client does not read to its end."""
    with (
        raw_server(b"HTTP/1.1 200 OK\r\n\r\n", then=b" " * 1_000_000) as address,
        pytest.raises(errors.LLMUnavailableError, match="larger than"),
    ):
        await vendor.ask(address)


@pytest.mark.accepts("M9")
async def test_body_that_drips_ends_with_the_callers_patience(vendor: Vendor) -> None:
    """The caller's timeout applies while data still arrives, and the connection is closed."""
    with (
        raw_server(b"HTTP/1.1 200 OK\r\n\r\n{", then=b" ", every_s=0.01) as address,
        pytest.raises(TimeoutError),
    ):
        async with asyncio.timeout(0.3):
            await vendor.ask(address)


@pytest.mark.parametrize(
    "payload", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", b"nonsense\r\n\r\n"]
)
async def test_connection_that_breaks_is_a_typed_error(vendor: Vendor, payload: bytes) -> None:
    """No response, half a body, or invalid HTTP."""
    with raw_server(payload) as address, pytest.raises(errors.LLMUnavailableError) as caught:
        await vendor.ask(address)

    assert (
        caught.value.message == f"{vendor.name}: the connection broke before the reply was complete"
    )


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost",
        "ftp://localhost",
        "http://[::1",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:port",
    ],
)
async def test_base_url_that_cannot_work_is_a_typed_error(vendor: Vendor, address: str) -> None:
    """It is detected by the first request, and not quoted, because it may contain a password."""
    with pytest.raises(errors.ConfigurationError) as caught:
        await vendor.ask(address)

    assert (
        caught.value.message == f"{vendor.name}: the base URL is not a valid http or https address"
    )


async def test_compressed_answer_is_read(vendor: Vendor) -> None:
    """In the requested encoding."""
    raw = in_every_api("hi")

    answer = await vendor.ask_served(
        {"raw": gzip.compress(raw), "headers": {"content-encoding": "gzip"}}
    )

    assert answer.message.text == "hi"


async def test_what_http_cannot_carry_is_cleaned_where_it_is_read(vendor: Vendor) -> None:
    """Half an emoji would break every later encoder."""
    raw = in_every_api("a\ud800b\x00")

    answer = await vendor.ask_served({"raw": raw})

    assert answer.message.text == "a?b\x00"


@pytest.mark.table(15)
@pytest.mark.parametrize("depth", range(880, 1000, 7))
async def test_nesting_just_below_what_can_be_parsed_goes_there_and_back_or_is_a_typed_error(
    vendor: Vendor, depth: int
) -> None:
    """Code that walks the parsed body, keeps its reasoning, or sends it back, may need more stack
    than the parser.
    """
    nested = '{"a":' * depth + '"\\ud800"' + "}" * depth
    call = {
        "openai": (
            '"choices": [{"message": {"tool_calls": [{"function": {"name": "add", "arguments":'
            " NESTED}}]}}]"
        ),
        "openai-responses": (
            '"output": [{"type": "reasoning", "encrypted_content": "x", "deep": NESTED}, '
            '{"type": "function_call", "name": "add", "arguments": NESTED}]'
        ),
        "anthropic": '"content": [{"type": "tool_use", "id": "c", "name": "add", "input": NESTED}]',
    }[vendor.name]

    with contextlib.suppress(errors.LLMUnavailableError):
        answer = await vendor.ask_served({"raw": f"{{{call.replace('NESTED', nested)}}}"})
        back = await vendor.ask_served(
            {"raw": in_every_api("hi")}, replace(HELLO, messages=(*HELLO.messages, answer.message))
        )

        assert answer.message.calls[0].arguments.count("{") == depth
        assert back.message.text == "hi"


# Refused before a request


@pytest.mark.parametrize("kind", ["audio/wav", "video/mp4", "image/png", "application/pdf"])
async def test_media_that_the_api_does_not_take_is_refused_before_a_request(
    vendor: Vendor, kind: str
) -> None:
    """Nothing is sent or charged, and the error has the model; an image or a document needs data or
    a URL.
    """
    media = Media(
        media_type=kind,
        data="QUJD" if kind.startswith("audio") else None,
        url="https://a.test/b" if kind.startswith("video") else None,
    )
    with StubProvider([]) as stub, pytest.raises(errors.LLMInvalidRequestError) as caught:
        await vendor.ask(
            stub.anthropic_url, replace(HELLO, messages=(UserMessage(parts=(media,)),))
        )

    assert (stub.requests, caught.value.context) == ([], {"model": "m"})


# Errors: docs/errors.md has the table of statuses, and test_provider_errors.py tests every provider
# with each


async def test_error_holds_the_words_of_the_provider_clipped(vendor: Vendor) -> None:
    """One line of at most 500 characters, with model and status in the context."""
    error = await vendor.failing(error_body(400, {"message": "too\nlong " * 1000}))

    assert error.context == {"model": "m", "status": 400}
    assert error.message == "m: " + ("too long " * 1000)[:499] + "… (status 400)"


@pytest.mark.parametrize(
    ("reply", "wait"),
    [
        (error_body(429, {"message": "slow"}, retry_after="7"), 7),
        (error_body(529, {"message": "slow"}, retry_after="7"), 7),
        (error_body(429, {"message": "slow"}, retry_after="9", retry_after_ms="1500"), 1.5),
        (error_body(429, {"message": "slow"}), None),
        (error_body(400, {"message": "bad"}, retry_after="7"), None),
    ],
)
async def test_time_to_wait_is_in_an_error_that_waiting_mends(
    vendor: Vendor, reply: StubReply, wait: float | None
) -> None:
    """Retries use `retry_after_s`."""
    error = await vendor.failing(reply)

    assert error.context.get("retry_after_s") == wait


@pytest.mark.accepts("G1")
async def test_base_url_with_a_password_is_refused_without_showing_it(vendor: Vendor) -> None:
    """It would be sent instead of the key, and httpx would log it."""
    with pytest.raises(
        errors.ConfigurationError, match="holds a user name or a password"
    ) as caught:
        await vendor.ask("http://me:planted-password@127.0.0.1:9/v1")

    assert "planted" not in caught.value.message


@pytest.mark.accepts("C7")
@pytest.mark.table(1)
async def test_large_reply_is_read_beside_the_loop(vendor: Vendor) -> None:
    """Most of the work is outside of the worker's event loop, which has to send heartbeats."""
    part = '{"type":"text","text":"a"}'
    item = f'{{"type":"message","content":[{part}]}}' if vendor.name == "openai-responses" else part
    parts = ",".join([item] * 30_000)
    body = (
        f'{{"choices":[{{"message":{{"content":[{parts}]}}}}],"content":[{parts}],'
        f'"output":[{parts}],"status":"completed"}}'
    )
    with StubProvider([{"status": 200, "raw": body}] * 2) as stub:
        await vendor.ask(stub.anthropic_url)
        here, everywhere = time.thread_time(), time.process_time()
        answer = await vendor.ask(stub.anthropic_url)
        here, everywhere = time.thread_time() - here, time.process_time() - everywhere

    assert answer.message.text == "a" * 30_000
    assert here < everywhere / 2
