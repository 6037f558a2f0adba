"""Streamed answers equal whole ones, or are errors, in every API. Over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from perdure import Usage, errors, limits
from perdure.activities.provider import ModelRequest, listen
from perdure.activities.providers.chat_stream import ChatStream
from perdure.activities.providers.http import Parts
from perdure.activities.providers.message_stream import MessageStream
from perdure.activities.providers.response_stream import ResponseStream
from perdure.activities.providers.sse import EventReader
from perdure.testing import stub_streams
from perdure.testing.stub_provider import StubProvider, StubReply, completion, message, response
from perdure.values.reports import StopReason

from ..support.loopback import ADD, KEY, VENDORS, Vendor, error_body, raw_server

SHAPES = {"openai": completion, "openai-responses": response, "anthropic": message}
STREAM = {"content-type": "text/event-stream"}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
WITH_TOOL = ModelRequest(model="m", messages=(), tools=(ADD,))
REPLIES: dict[str, StubReply] = {
    "text": {"text": "Good morning, and how are you? 🌍 Grüße."},
    "one word": {"text": "a"},
    "a call": {"calls": [{"name": "add", "arguments": {"a": 2, "b": "ü\n\\"}}]},
    "words and calls": {
        "text": "Let me see.",
        "calls": [{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {}}],
    },
}

every_vendor = pytest.mark.parametrize("vendor", VENDORS)


def events(vendor: Vendor, reply: StubReply) -> list[bytes]:
    """The events of a reply in this vendor's form."""
    return list(stub_streams.served({}, SHAPES[vendor.name](reply, 0, "m")))


def raw(*pieces: bytes) -> StubReply:
    """A stream of these bytes."""
    return {"raw": b"".join(pieces), "headers": STREAM}


def parts_of(vendor: Vendor) -> Parts:
    """The assembler for this vendor's streams."""

    def unheard(_: str) -> None: ...

    made: dict[str, Parts] = {
        "openai": ChatStream(unheard),
        "openai-responses": ResponseStream(unheard),
        "anthropic": MessageStream("m", unheard),
    }
    return made[vendor.name]


def put_together(vendor: Vendor, stream: bytes) -> dict[str, Any] | None:
    """The body assembled from a stream of these bytes, without a server."""
    parts = parts_of(vendor)
    for event in EventReader("stub").feed(stream):
        if parts.take(event.name, None if event.data == "[DONE]" else json.loads(event.data)):
            break
    return parts.body()


# Equal to whole answers


@every_vendor
@pytest.mark.parametrize("reply", REPLIES.values(), ids=list(REPLIES))
async def test_streamed_answer_is_the_whole_one(vendor: Vendor, reply: StubReply) -> None:
    """Message, stop reason, usage and model; the streamed text is its text."""
    with StubProvider([reply]) as stub:
        whole = await vendor.ask(stub.anthropic_url, WITH_TOOL)
        streamed, heard = await vendor.hear(stub.anthropic_url, WITH_TOOL)

    assert streamed == whole
    assert streamed.usage == Usage(input_tokens=10, output_tokens=5)
    assert "".join(heard) == whole.message.text
    assert [bool(body.get("stream")) for body in stub.requests] == [False, True]


@every_vendor
async def test_limit_of_an_answer_is_told_at_the_end_of_a_stream(vendor: Vendor) -> None:
    """A stop at the model's limit differs from a connection that breaks."""
    request = replace(
        WITH_TOOL, options=WITH_TOOL.options.model_copy(update={"max_output_tokens": 2})
    )

    answer, heard = await vendor.hear_served({"text": "Good morning, and how are you?"}, request)

    assert (answer.stop, answer.message.text, "".join(heard)) == (
        StopReason.MAX_TOKENS,
        "Good mor",
        "Good mor",
    )


@every_vendor
async def test_server_that_cannot_stream_answers_whole(vendor: Vendor) -> None:
    """It ignores the request for a stream; there is no live text, and the answer counts."""
    body = json.dumps(SHAPES[vendor.name]({"text": "hi"}, 0, "m"))

    answer, heard = await vendor.hear_served({"raw": body})

    assert (answer.message.text, heard) == ("hi", [])


@every_vendor
async def test_words_are_heard_before_the_answer_is_there(vendor: Vendor) -> None:
    """The server has sent half of the stream, and its end does not come."""
    stream = events(vendor, {"text": "Good morning, how are you today, and tomorrow?"})
    half, heard = b"".join(stream[: len(stream) // 2]), asyncio.Queue[str]()
    with raw_server(HEAD + half, then=b": more to come\n\n", every_s=0.01) as address:
        provider = vendor.make(address, None)
        asking = asyncio.ensure_future(listen(provider, WITH_TOOL, heard.put_nowait))
        async with asyncio.timeout(60):
            first = await heard.get()
        is_over = asking.done()
        asking.cancel()
        await asyncio.wait({asking})
        await provider.close()

    assert (first.strip(), is_over) == ("Good mo", False)


@every_vendor
async def test_stream_is_read_no_further_than_the_answer(vendor: Vendor) -> None:
    """A server that keeps the connection open after it does not delay the answer."""
    with raw_server(
        HEAD + b"".join(events(vendor, {"text": "hi"})), then=b": still here\n\n", every_s=0.01
    ) as address:
        async with asyncio.timeout(60):
            answer, _ = await vendor.hear(address)

    assert answer.message.text == "hi"


# Truncated streams


@pytest.mark.table(3)
@pytest.mark.accepts("M8")
@every_vendor
@pytest.mark.parametrize("reply", REPLIES.values(), ids=list(REPLIES))
def test_stream_cut_anywhere_is_no_answer_or_the_whole_one(
    vendor: Vendor, reply: StubReply
) -> None:
    """After every single byte: half a text, or half a call, never becomes an answer."""
    stream = b"".join(events(vendor, reply))
    whole = put_together(vendor, stream)
    assert whole is not None
    said = ("choices", "output", "content")
    bodies = [put_together(vendor, stream[:length]) for length in range(len(stream))]

    assert bodies[0] is bodies[len(stream) // 2] is None
    assert [
        body
        for body in bodies
        if body is not None
        and [body.get(name) for name in said] != [whole.get(name) for name in said]
    ] == []


@pytest.mark.table(1)
@pytest.mark.accepts("M8")
@every_vendor
async def test_stream_cut_before_its_end_is_a_failure_that_may_be_billed(vendor: Vendor) -> None:
    """After every event but the last two: the ends of chat completions are the reason and the
    usage.
    """
    count = len(events(vendor, REPLIES["words and calls"]))
    ends = 3 if vendor.name == "openai" else 1
    for length in range(count - ends + 1):
        error = await vendor.failing_stream({**REPLIES["words and calls"], "cut_after": length})

        assert type(error) is errors.LLMUnavailableError
        assert error.message == f"{vendor.name}: the stream ended before the answer did"
        assert error.context == {"model": "m", "charged": True}


@pytest.mark.accepts("M8")
@every_vendor
async def test_connection_that_breaks_in_a_stream_is_a_failure(vendor: Vendor) -> None:
    """In the middle of an HTTP chunk."""
    event = events(vendor, {"text": "hi"})[0]
    payload = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding:"
        b" chunked\r\n\r\n%x\r\n%b\r\n5\r\nda" % (len(event), event)
    )

    with raw_server(payload) as address, pytest.raises(errors.LLMUnavailableError) as caught:
        await vendor.hear(address)

    assert (
        caught.value.message == f"{vendor.name}: the connection broke before the reply was complete"
    )
    assert caught.value.context == {"model": "m", "charged": True}


@pytest.mark.accepts("M8")
@every_vendor
async def test_error_in_a_stream_is_a_failure_by_what_came_before(vendor: Vendor) -> None:
    """Before any output it is not charged; after output, it may be billed, and the usage is
    unknown.
    """
    count = len(events(vendor, {"text": "Good morning"}))
    for length in range(count - 3):
        error = await vendor.failing_stream({"text": "Good morning", "error_after": length})

        assert type(error) is errors.LLMUnavailableError
        assert "Overloaded" in error.message
        assert error.context.get("charged", False) is (
            length > (1 if vendor.name == "openai-responses" else 0)
        )
        assert "usage" not in error.context


@every_vendor
async def test_error_before_the_stream_is_read_as_ever(vendor: Vendor) -> None:
    """With its status, its message and its pause."""
    error = await vendor.failing_stream(error_body(429, {"message": "slow down"}, retry_after="7"))

    assert type(error) is errors.LLMRateLimitError
    assert error.context == {"model": "m", "status": 429, "retry_after_s": 7.0}


@every_vendor
async def test_key_in_an_error_of_a_stream_is_cut_out(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some servers quote it."""
    monkeypatch.setenv("TEST_KEY", KEY)
    said = json.dumps({"type": "error", "error": {"message": f"bad key {KEY}"}}).encode()
    with (
        StubProvider([raw(b"event: error\ndata: " + said + b"\n\n")]) as stub,
        pytest.raises(errors.LLMUnavailableError) as caught,
    ):
        await vendor.hear(stub.anthropic_url, key="TEST_KEY")

    assert caught.value.message == "m: bad key [key] (status 200)"


# Invalid streams


@pytest.mark.table(6)
@pytest.mark.accepts("M8", "M9")
@every_vendor
@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"data: {\n\n", "not readable JSON"),
        (b"data: <html>\n\n", "HTML"),
        (b"data: 5\n\n", "not an object"),
        (b"data: null\n\n", "not an object"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "not readable JSON"),
        (b"data: \xff\n\n", "not UTF-8"),
        (b"data: " + b"x" * (limits.STREAM_LINE_BYTES + 1), "a line of more than"),
        ((b": " + b"x" * 1_000 + b"\n\n") * 20_000, "larger than"),
    ],
)
async def test_stream_that_cannot_be_read_is_a_typed_error(
    vendor: Vendor, bad: bytes, says: str
) -> None:
    """Even after a valid beginning. It is transient, and may be billed."""
    error = await vendor.failing_stream(raw(*events(vendor, {"text": "hi"})[:2], bad))

    assert isinstance(error, errors.LLMUnavailableError)
    assert says in error.message
    assert error.context["charged"] is True


@every_vendor
@pytest.mark.parametrize("body", [b"", b"\n\n", b"hello", b": nothing\n\n", b"data:\n\n"])
async def test_stream_without_an_event_is_no_answer(vendor: Vendor, body: bytes) -> None:
    """Empty, or with comments only."""
    error = await vendor.failing_stream(raw(body))

    assert error.message == f"{vendor.name}: the stream ended before the answer did"


@every_vendor
async def test_page_for_browsers_is_told_as_such(vendor: Vendor) -> None:
    """From a wrong base URL that answers 200."""
    error = await vendor.failing_stream(
        {"raw": b"<html>hello</html>", "headers": {"content-type": "text/html; charset=utf-8"}}
    )

    assert "it looks like an HTML page" in error.message


@pytest.mark.accepts("M9")
@every_vendor
@pytest.mark.table(1)
async def test_stream_is_measured_after_decompression(vendor: Vendor) -> None:
    """A small stream that expands to 100 MB is not kept."""
    bomb = gzip.compress((b": " + b" " * 1_000 + b"\n\n") * 100_000)

    error = await vendor.failing_stream(
        {"raw": bomb, "headers": {**STREAM, "content-encoding": "gzip"}}
    )

    assert (
        error.message
        == f"{vendor.name}: the reply is larger than {limits.PROVIDER_BODY_BYTES} bytes"
    )


@pytest.mark.accepts("C8")
@every_vendor
@pytest.mark.table(1)
async def test_stream_that_comes_at_once_leaves_room_on_the_loop(vendor: Vendor) -> None:
    """With 100,000 events in one chunk, the loop is never blocked for all of them."""
    stream = gzip.compress(b"data: {}\n\n" * 100_000)
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.0005)
            longest = max(longest, time.thread_time() - before)

    watching = asyncio.create_task(watch())
    began = time.thread_time()
    await vendor.failing_stream({"raw": stream, "headers": {**STREAM, "content-encoding": "gzip"}})
    watching.cancel()

    assert longest < (time.thread_time() - began) / 4


@every_vendor
async def test_compressed_stream_is_read(vendor: Vendor) -> None:
    """In the requested encoding."""
    stream = gzip.compress(b"".join(events(vendor, {"text": "hi"})))

    answer, _ = await vendor.hear_served(
        {"raw": stream, "headers": {**STREAM, "content-encoding": "gzip"}}
    )

    assert answer.message.text == "hi"


@pytest.mark.accepts("M9")
@every_vendor
@pytest.mark.parametrize("drip", [b": still thinking\n\n", b" "])
@pytest.mark.table(2)
async def test_stream_that_drips_ends_with_the_callers_patience(
    vendor: Vendor, drip: bytes
) -> None:
    """The caller's timeout applies while data still arrives, and the connection is closed."""
    with raw_server(HEAD, then=drip, every_s=0.01) as address, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await vendor.hear(address)
