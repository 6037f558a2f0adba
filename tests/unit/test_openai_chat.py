"""The chat completions API, over real HTTP on loopback: what is sent, how answers are read, and how badly a server may behave."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from perdure import errors, limits
from perdure.activities.models import ModelRequest
from perdure.activities.providers import OpenAIChat, ollama_url
from perdure.activities.providers.http import LONGEST_WAIT_S, retry_after_s
from perdure.activities.providers.openai_chat import body_of, usage_of
from perdure.agents import ToolDefinition
from perdure.errors import LLMError, PerdureError
from perdure.messages import AssistantMessage, Media, Text, Thinking, ToolCall, ToolMessage, ToolResult, UserMessage
from perdure.reports import StopReason, Usage
from perdure.testing.stub_provider import Reply, StubProvider
from perdure.wire import ModelAnswer

KEY = "sk-planted-secret-0123456789"
HELLO = ModelRequest(model="m", messages=(UserMessage.of("hello"),))
ADD = ToolDefinition(
    name="add",
    description="Add.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}},
    activity="add",
    is_idempotent=True,
    timeout_s=60,
    schema_digest="0",
)


async def ask(base_url: str, request: ModelRequest = HELLO, *, key: str | None = None) -> ModelAnswer:
    """One request, with the key from an environment variable or without one."""
    provider = OpenAIChat(base_url=base_url, api_key_env=key)
    try:
        return await provider.complete(request)
    finally:
        await provider.close()


async def ask_served(reply: Reply, request: ModelRequest = HELLO) -> ModelAnswer:
    """One request to a server that gives this reply."""
    with StubProvider([reply]) as stub:
        return await ask(stub.base_url, request)


async def failing(reply: Reply) -> PerdureError:
    """The error that a request to a server with this reply ends in."""
    with pytest.raises(PerdureError) as caught:
        await ask_served(reply)
    return caught.value


def body(message: dict[str, Any], finish_reason: str | None = "stop", **more: Any) -> Reply:
    """A 200 with this message."""
    return {"raw": json.dumps({"choices": [{"message": message, "finish_reason": finish_reason}], **more})}


def error_body(status: int, error: Any, **headers: str) -> Reply:
    """An error as most servers give it."""
    return {
        "status": status,
        "raw": json.dumps({"error": error}),
        "headers": {name.replace("_", "-"): text for name, text in headers.items()},
    }


@pytest.fixture
async def keyed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[OpenAIChat, StubProvider]]:
    """A provider with a key, and the server that it asks."""
    monkeypatch.setenv("TEST_KEY", KEY)
    with StubProvider([{"text": "hi"}]) as stub:
        provider = OpenAIChat(base_url=stub.base_url, api_key_env="TEST_KEY")
        yield provider, stub
        await provider.close()


@contextlib.contextmanager
def raw_server(payload: bytes, *, endless: bool = False) -> Iterator[str]:
    """The base URL of a server that sends these bytes, once or until the caller hangs up, and closes the connection."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(payload)
            while endless:
                connection.sendall(b" " * 1_000_000)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        thread.join()


# What is sent


async def test_whole_conversation_is_sent_in_order(keyed: tuple[OpenAIChat, StubProvider]) -> None:
    """System prompt first, thinking left out, each result a message of its own under its call id, tools as given."""
    provider, stub = keyed
    calls = (
        ToolCall(id="c1", name="add", arguments='{"a": 2}'),
        ToolCall(id="c2", name="add", arguments=""),
        ToolCall(id="c3", name="add", arguments="{a"),
    )
    results = (ToolResult(call_id="c1", name="add", content="2"), ToolResult(call_id="c2", name="add", content="no", is_error=True))
    messages = (UserMessage.of("2?"), AssistantMessage(parts=(Thinking(text="hm"), *calls)), ToolMessage(results=results))

    with pytest.raises(errors.LLMInvalidRequestError):
        await provider.complete(ModelRequest(model="m", system="Be brief.", messages=messages, tools=(ADD,)))

    assert stub.requests == [
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "2?"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}},
                        {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{}"}},
                        {"id": "c3", "type": "function", "function": {"name": "add", "arguments": "{a"}},
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "2"},
                {"role": "tool", "tool_call_id": "c2", "content": "no"},
            ],
            "tools": [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": ADD.parameters}}],
        }
    ]


def test_request_without_tools_and_system_prompt_has_neither() -> None:
    """Some servers refuse an empty list of tools."""
    assert body_of(HELLO) == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def test_images_are_sent_as_data_or_url() -> None:
    """Text and images keep their order."""
    parts = (Text(text="Look:"), Media(media_type="image/png", data="QUJD"), Media(media_type="image/png", url="https://example.com/a.png"))

    sent = body_of(ModelRequest(model="m", messages=(UserMessage(parts=parts),)))

    assert sent["messages"][0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]


@pytest.mark.parametrize("media", [Media(media_type="audio/wav", data="QUJD"), Media(media_type="image/png")])
async def test_media_that_the_api_does_not_take_is_refused_before_a_request(media: Media) -> None:
    """Nothing is sent, and the error names the model."""
    with StubProvider([]) as stub, pytest.raises(errors.LLMInvalidRequestError) as caught:
        await ask(stub.base_url, ModelRequest(model="m", messages=(UserMessage(parts=(media,)),)))

    assert (stub.requests, caught.value.context) == ([], {"model": "m"})


# Keys


async def test_key_is_sent_as_bearer(keyed: tuple[OpenAIChat, StubProvider]) -> None:
    """The key comes from the environment variable that was named."""
    provider, stub = keyed

    await provider.complete(HELLO)

    assert stub.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_provider_without_key_sends_no_authorization() -> None:
    """A local server needs none."""
    with StubProvider([{"text": "hi"}]) as stub:
        await ask(stub.base_url)

    assert "authorization" not in stub.headers[0]


@pytest.mark.accepts("G2")
@pytest.mark.parametrize("value", ["", KEY + "\n", KEY + "\r\nx: y", KEY + "é", KEY + " "])
async def test_key_that_is_no_header_value_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """A line break from `$(cat key)` is told as such; the key stands nowhere in the error."""
    monkeypatch.setenv("TEST_KEY", value)
    with StubProvider([]) as stub, pytest.raises(errors.ConfigurationError) as caught:
        await ask(stub.base_url, key="TEST_KEY")

    assert "TEST_KEY" in caught.value.message
    assert KEY not in "".join(traceback.format_exception(caught.value)) + repr(caught.value.to_dict())
    assert stub.requests == []


async def test_key_that_a_provider_quotes_is_cut_out_of_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the clip of the text would cut through it."""
    monkeypatch.setenv("TEST_KEY", KEY)
    said = "x" * 480 + f" bad key {KEY} used"
    with StubProvider([error_body(401, {"message": said})]) as stub, pytest.raises(errors.LLMAuthError) as caught:
        await ask(stub.base_url, key="TEST_KEY")

    assert KEY[:8] not in repr(caught.value.to_dict())


async def test_transport_error_has_no_trace_of_the_request(keyed: tuple[OpenAIChat, StubProvider]) -> None:
    """A traceback or a log handler that walks causes finds nothing of httpx, which quotes headers."""
    provider, stub = keyed
    stub.__exit__(None, None, None)

    with pytest.raises(errors.LLMUnavailableError) as caught:
        await provider.complete(HELLO)

    assert (caught.value.message, caught.value.context) == ("openai: the server cannot be reached", {"model": "m"})
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


@pytest.mark.accepts("G5")
async def test_redirect_carries_the_key_nowhere(keyed: tuple[OpenAIChat, StubProvider]) -> None:
    """A server that answers with another address gets the caller's key, but the other address does not."""
    _, other = keyed
    moved: Reply = {"status": 307, "headers": {"location": other.base_url + "/chat/completions"}, "raw": ""}
    with StubProvider([moved]) as stub, pytest.raises(errors.LLMInvalidRequestError):
        await ask(stub.base_url, key="TEST_KEY")

    assert other.requests == []


# How answers are read


async def test_answer_with_thinking_text_and_calls_is_read_in_order() -> None:
    """Thinking first, then words, then calls; the model that served is named."""
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    message = {"content": "Let me add.", "reasoning_content": "Adding helps.", "tool_calls": [call]}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}

    answer = await ask_served(body(message, "tool_calls", model="m-2026-01-01", usage=usage))

    assert answer == ModelAnswer(
        message=AssistantMessage(
            parts=(Thinking(text="Adding helps."), Text(text="Let me add."), ToolCall(id="c1", name="add", arguments='{"a": 2}'))
        ),
        stop=StopReason.TOOL_CALLS,
        usage=Usage(input_tokens=10, output_tokens=5),
        model="m-2026-01-01",
    )


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ({"content": "hi"}, (Text(text="hi"),)),
        ({"content": None}, ()),
        ({}, ()),
        ({"content": "", "reasoning": "hm"}, (Thinking(text="hm"),)),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "hi"}, 7]},
            (Thinking(text="hm"), Text(text="hi")),
        ),
        ({"content": "a\ud800b\x00"}, (Text(text="a?b\x00"),)),
        ({"tool_calls": [{"function": {"name": "add", "arguments": {"a": "ü"}}}]}, (ToolCall(id="", name="add", arguments='{"a": "ü"}'),)),
        ({"tool_calls": [{"id": None, "function": {"name": "add"}}]}, (ToolCall(id="", name="add"),)),
        ({"tool_calls": [{"id": "c", "function": {"name": "add", "arguments": "{a"}}]}, (ToolCall(id="c", name="add", arguments="{a"),)),
    ],
)
async def test_messages_of_lax_servers_are_read(message: dict[str, Any], parts: tuple[Any, ...]) -> None:
    """Content as a string, as chunks or not at all; calls without ids; arguments as an object; half an emoji."""
    answer = await ask_served(body({"role": "assistant", **message}))

    assert answer.message.parts == parts


@pytest.mark.parametrize(
    ("reason", "calls", "stop"),
    [
        ("stop", 0, StopReason.END),
        ("stop", 1, StopReason.TOOL_CALLS),
        ("tool_calls", 1, StopReason.TOOL_CALLS),
        ("function_call", 1, StopReason.TOOL_CALLS),
        ("length", 0, StopReason.MAX_TOKENS),
        ("length", 1, StopReason.MAX_TOKENS),
        ("content_filter", 0, StopReason.REFUSED),
        ("a new one", 0, StopReason.OTHER),
        (None, 0, StopReason.END),
        (None, 1, StopReason.TOOL_CALLS),
    ],
)
async def test_stop_reasons_are_mapped(reason: str | None, calls: int, stop: StopReason) -> None:
    """A known reason is kept, an unknown one is said to be so, a missing one is told by the content."""
    message = {"role": "assistant", "content": "hi", "tool_calls": [{"id": "c", "function": {"name": "add"}}] * calls}

    answer = await ask_served(body(message, reason))

    assert answer.stop is stop


async def test_refusal_is_a_stop_with_its_text() -> None:
    """A refusal comes as a normal stop in a field of its own."""
    answer = await ask_served(body({"content": None, "refusal": "I cannot."}))

    assert (answer.stop, answer.message.text) == (StopReason.REFUSED, "I cannot.")


@pytest.mark.accepts("M6")
@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (None, Usage()),
        ({"prompt_tokens": 100, "completion_tokens": 5}, Usage(input_tokens=100, output_tokens=5)),
        (
            {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30}},
            Usage(input_tokens=100, output_tokens=5, cache_read_tokens=60, cache_write_tokens=30),
        ),
        ({"prompt_tokens": 100, "prompt_cache_hit_tokens": 60}, Usage(input_tokens=100, cache_read_tokens=60)),
        ({"prompt_tokens": 100, "num_cached_tokens": 60}, Usage(input_tokens=100, cache_read_tokens=60)),
        ({"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 163}}, Usage(input_tokens=170, cache_read_tokens=163)),
        (
            {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 331, "completion_tokens_details": {"reasoning_tokens": 317}},
            Usage(input_tokens=12, output_tokens=319),
        ),
        ({"prompt_tokens": -1, "completion_tokens": "5"}, Usage()),
        ({"prompt_tokens": 10**9, "completion_tokens": float("nan"), "prompt_tokens_details": "x"}, Usage()),
        ({"prompt_tokens": True, "completion_tokens": 2.5}, Usage()),
        ("lots", Usage()),
    ],
)
def test_usage_is_measured_alike_whoever_reports_it(reported: Any, usage: Usage) -> None:
    """Input holds cached tokens, output holds thinking, and numbers that cannot be true do no harm."""
    assert usage_of(reported) == usage


# How badly a server may behave


@pytest.mark.accepts("M9")
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "empty"),
        (b"<html><body>Welcome</body></html>", "HTML"),
        (b'{"choices": [{"message": {"cont', "no JSON"),
        (b"null", "not an object"),
        (b"[]", "not an object"),
        (b'{"choices": "\xff\xfe"}', "not UTF-8"),
        (b'{"choices": ' + b"9" * 5000 + b"}", "no JSON"),
        (b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "no JSON"),
        (b'{"choices": []}', "no message"),
        (b'{"choices": NaN}', "no message"),
        (b'{"choices": [{"message": null}]}', "no message"),
        (b'{"choices": [{"message": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]}', "without a name"),
        (b'{"choices": [{"message": {"content": "half"}, "finish_reason": "insufficient_system_resource"}]}', "broken off"),
        (b" " * (limits.PROVIDER_BODY_BYTES + 1), "larger than"),
    ],
)
async def test_body_that_is_no_answer_is_a_typed_error(raw: bytes, says: str) -> None:
    """It may pass, so the turn may try again."""
    error = await failing({"raw": raw})

    assert isinstance(error, errors.LLMUnavailableError)
    assert says in error.message


@pytest.mark.parametrize("depth", range(880, 1000, 7))
async def test_nesting_just_below_what_can_be_parsed_is_an_answer_or_a_typed_error(depth: int) -> None:
    """What reads the parsed body may need more stack than what parsed it."""
    nested = '{"a":' * depth + '"\\ud800"' + "}" * depth
    reply: Reply = {"raw": '{"choices": [{"message": {"tool_calls": [{"function": {"name": "add", "arguments": ' + nested + "}}]}}]}"}

    with contextlib.suppress(errors.LLMUnavailableError):
        answer = await ask_served(reply)

        assert answer.message.calls[0].arguments.count("{") == depth


@pytest.mark.accepts("M9")
async def test_body_is_measured_after_decompression() -> None:
    """A small body that decompresses to more than the limit is not kept."""
    bomb = gzip.compress(b" " * (limits.PROVIDER_BODY_BYTES * 5))

    error = await failing({"raw": bomb, "headers": {"content-encoding": "gzip"}})

    assert error.message == f"openai: the reply is larger than {limits.PROVIDER_BODY_BYTES} bytes"


async def test_compressed_answer_is_read() -> None:
    """The encoding that was asked for works."""
    raw = body({"content": "hi"})["raw"]
    assert isinstance(raw, str)

    answer = await ask_served({"raw": gzip.compress(raw.encode()), "headers": {"content-encoding": "gzip"}})

    assert answer.message.text == "hi"


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br"])
async def test_encoding_that_was_not_asked_for_is_refused(encoding: str) -> None:
    """Two encodings on top of each other would get around any limit."""
    error = await failing({"raw": b"x", "headers": {"content-encoding": encoding}})

    assert error.message == f"openai: the reply has the content encoding '{encoding}', which was not asked for"


async def test_body_that_is_not_what_its_encoding_says_is_a_typed_error() -> None:
    """A broken proxy is a transport error."""
    error = await failing({"raw": b"plain", "headers": {"content-encoding": "gzip"}})

    assert isinstance(error, errors.LLMUnavailableError)


@pytest.mark.accepts("M9")
async def test_endless_body_is_cut_off() -> None:
    """Nobody waits for the end of a reply that has none."""
    with raw_server(b"HTTP/1.1 200 OK\r\n\r\n", endless=True) as base_url, pytest.raises(errors.LLMUnavailableError, match="larger than"):
        await ask(base_url)


@pytest.mark.parametrize("payload", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", b"nonsense\r\n\r\n"])
async def test_connection_that_breaks_is_a_typed_error(payload: bytes) -> None:
    """Nothing, half a body, or no HTTP at all."""
    with raw_server(payload) as base_url, pytest.raises(errors.LLMUnavailableError) as caught:
        await ask(base_url)

    assert caught.value.message == "openai: the connection broke before the reply was complete"


@pytest.mark.parametrize("base_url", ["", "localhost/v1", "ftp://localhost", "http://[::1", "http://127.0.0.1:99999", "http://127.0.0.1:port"])
async def test_base_url_that_cannot_work_is_a_typed_error(base_url: str) -> None:
    """It is found at the first request, and not shown: it may hold a password."""
    with pytest.raises(errors.ConfigurationError) as caught:
        await ask(base_url)

    assert caught.value.message == "openai: the base URL is no valid http or https address"


# Errors


@pytest.mark.parametrize(
    ("reply", "cls"),
    [
        (error_body(401, {"message": "no"}), errors.LLMAuthError),
        (error_body(403, {"message": "no"}), errors.LLMAuthError),
        (error_body(400, {"message": "API key not valid. Please pass a valid API key.", "code": 400}), errors.LLMAuthError),
        (error_body(400, "Incorrect API key provided: ab***yz"), errors.LLMAuthError),
        (error_body(402, {"message": "Insufficient credits", "code": 402}), errors.LLMAuthError),
        (error_body(429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}), errors.LLMAuthError),
        (error_body(429, {"message": "slow down", "code": "rate_limit_exceeded"}), errors.LLMRateLimitError),
        (error_body(408, {"message": "late"}), errors.LLMTimeoutError),
        ({"status": 504, "raw": "<html>gateway</html>"}, errors.LLMTimeoutError),
        (error_body(400, {"message": "bad"}), errors.LLMInvalidRequestError),
        (error_body(404, {"message": "no such model", "code": "model_not_found"}), errors.LLMInvalidRequestError),
        (error_body(413, {"message": "Request too large", "code": "rate_limit_exceeded"}), errors.LLMInvalidRequestError),
        ({"status": 422, "raw": '{"detail": [{"msg": "field required"}]}'}, errors.LLMInvalidRequestError),
        (error_body(400, {"message": "filtered", "code": "content_filter"}), errors.LLMRefusedError),
        (error_body(400, {"message": "Content Exists Risk"}), errors.LLMRefusedError),
        (error_body(200, {"message": "filtered", "code": "content_filter", "status": 400}), errors.LLMRefusedError),
        (error_body(400, {"message": "Failed to call a function.", "code": "tool_use_failed"}), errors.LLMUnavailableError),
        (error_body(500, {"message": "oops"}), errors.LLMUnavailableError),
        ({"status": 503, "raw": "upstream connect error"}, errors.LLMUnavailableError),
        ({"status": 529, "raw": b"\xff"}, errors.LLMUnavailableError),
        (error_body(200, {"message": "slow down", "code": 429}), errors.LLMRateLimitError),
        (error_body(200, "something"), errors.LLMUnavailableError),
        (error_body(201, "something"), errors.LLMUnavailableError),
        ({"raw": '{"choices": [{"error": {"message": "gone", "code": 502}, "finish_reason": "error"}]}'}, errors.LLMUnavailableError),
    ],
)
async def test_error_class_says_what_to_do(reply: Reply, cls: type[LLMError]) -> None:
    """The body's own code comes before the status; a body that cannot be read leaves the status."""
    error = await failing(reply)

    assert type(error) is cls


async def test_error_holds_the_words_of_the_provider_clipped() -> None:
    """One line of at most 500 characters, with model and status as context."""
    error = await failing(error_body(400, {"message": "too\nlong " * 1000}))

    assert error.context == {"model": "m", "status": 400}
    assert error.message == "m: " + ("too long " * 1000)[:499] + "… (status 400)"


async def test_error_of_a_list_and_of_a_server_behind_is_read() -> None:
    """Gemini wraps its error into a list; OpenRouter quotes the server behind it."""
    gemini = await failing({"status": 503, "raw": '[{"error": {"code": 503, "message": "overloaded"}}]'})
    router = await failing(error_body(502, {"message": "Provider returned error", "metadata": {"raw": "boom"}}))

    assert [error.message for error in (gemini, router)] == ["m: overloaded (status 503)", "m: Provider returned error: boom (status 502)"]


@pytest.mark.parametrize(
    ("reply", "wait"),
    [
        (error_body(429, {"message": "slow"}, retry_after="7"), 7),
        (error_body(529, {"message": "slow"}, retry_after="7"), 7),
        (error_body(429, {"message": "slow"}, retry_after="9", retry_after_ms="1500"), 1.5),
        (error_body(429, {"message": "Please try again in 1m2.5s."}), 62.5),
        (error_body(429, {"message": "Please try again in 120ms."}), 0.12),
        (error_body(429, {"message": "quota", "details": [{"retryDelay": "34s"}]}), 34),
        (error_body(429, {"message": "Please try again in a while"}), None),
    ],
)
async def test_time_to_wait_is_in_the_error(reply: Reply, wait: float | None) -> None:
    """Headers first, then the body; whoever retries reads `retry_after_s`."""
    error = await failing(reply)

    assert error.context.get("retry_after_s") == wait


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf", "-1", "9" * 5000 + "x"])
def test_retry_after_that_makes_no_sense_is_none(value: str) -> None:
    """The workflow then waits as long as it likes."""
    assert retry_after_s({"retry-after": value}) is None


def test_retry_after_is_a_day_at_most() -> None:
    """A number that no timer takes stays out of the workflow."""
    assert retry_after_s({"retry-after": "1e300"}) == LONGEST_WAIT_S


def test_retry_after_as_a_date_is_seconds_from_now() -> None:
    """A date that has passed means at once."""
    now = datetime.now(UTC)

    later = retry_after_s({"retry-after": format_datetime(now + timedelta(seconds=90), usegmt=True)})
    past = retry_after_s({"retry-after": format_datetime(now - timedelta(seconds=90), usegmt=True)})

    assert later is not None
    assert 85 < later <= 90
    assert past == 0


# Set-up


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"),
        ("gpu.example", "http://gpu.example:11434/v1"),
        ("https://gpu.example/", "https://gpu.example/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        (":8080", "http://127.0.0.1:8080/v1"),
        ("[::1]:11434", "http://[::1]:11434/v1"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(host: str, url: str) -> None:
    """The variable that a user of Ollama has set already works."""
    assert ollama_url(host) == url


def test_importing_the_providers_does_not_load_httpx() -> None:
    """A worker that starts does not pay for it."""
    code = "import sys, perdure.activities.providers; sys.exit('httpx' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
