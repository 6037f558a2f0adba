"""The chat completions API, over real HTTP on loopback: requests, answers and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure import errors
from perdure.activities.provider import ModelRequest
from perdure.activities.providers.openai_chat import body_of, usage_of
from perdure.errors import LLMError
from perdure.testing.stub_provider import StubProvider, StubReply
from perdure.values.answers import ModelAnswer
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from perdure.values.reports import StopReason, Usage

from ..support.loopback import ADD, HELLO, KEY, OPENAI, error_body


def body(message: dict[str, Any], finish_reason: str | None = "stop", **more: Any) -> StubReply:
    """A 200 with this message."""
    return {
        "raw": json.dumps(
            {"choices": [{"message": message, "finish_reason": finish_reason}], **more}
        )
    }


# Requests


async def test_whole_conversation_is_sent_in_order() -> None:
    """System prompt first, thinking left out, each result a message of its own under its call id,
    tools as given.
    """
    calls = (
        ToolCall(id="c1", name="add", arguments='{"a": 2}'),
        ToolCall(id="c2", name="add", arguments=""),
        ToolCall(id="c3", name="add", arguments="{a"),
    )
    results = (
        ToolResult(call_id="c1", name="add", content="2"),
        ToolResult(call_id="c2", name="add", content="no", is_error=True),
    )
    messages = (
        UserMessage.of("2?"),
        AssistantMessage(parts=(Thinking(text="hm"), *calls)),
        ToolMessage(results=results),
    )

    with StubProvider([{}, {"text": "2"}]) as stub:
        await OPENAI.ask(
            stub.anthropic_url,
            ModelRequest(model="m", system="Be brief.", messages=messages, tools=(ADD,)),
        )

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
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "add", "arguments": '{"a": 2}'},
                        },
                        {
                            "id": "c2",
                            "type": "function",
                            "function": {"name": "add", "arguments": "{}"},
                        },
                        {
                            "id": "c3",
                            "type": "function",
                            "function": {"name": "add", "arguments": "{a"},
                        },
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "2"},
                {"role": "tool", "tool_call_id": "c2", "content": "no"},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "add",
                        "description": "Add.",
                        "parameters": ADD.parameters,
                    },
                }
            ],
        }
    ]


def test_request_without_tools_and_system_prompt_has_neither() -> None:
    """Some servers refuse an empty list of tools."""
    assert body_of(HELLO) == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def test_images_are_sent_as_data_or_url() -> None:
    """Text and images keep their order."""
    parts = (
        Text(text="Look:"),
        Media(media_type="image/png", data="QUJD"),
        Media(media_type="image/png", url="https://example.com/a.png"),
    )

    sent = body_of(ModelRequest(model="m", messages=(UserMessage(parts=parts),)))

    assert sent["messages"][0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]


async def test_key_is_sent_as_bearer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key comes from the given environment variable; without one there is no such header."""
    monkeypatch.setenv("TEST_KEY", KEY)
    with StubProvider([{"text": "hi"}]) as stub:
        await OPENAI.ask(stub.anthropic_url, key="TEST_KEY")
        await OPENAI.ask(stub.anthropic_url)

    assert [headers.get("authorization") for headers in stub.headers] == [f"Bearer {KEY}", None]


# Parsing answers


async def test_answer_with_thinking_text_and_calls_is_read_in_order() -> None:
    """Thinking first, then text, then calls; the answer has the name of the model that served."""
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    message = {"content": "Let me add.", "reasoning_content": "Adding helps.", "tool_calls": [call]}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}

    answer = await OPENAI.ask_served(body(message, "tool_calls", model="m-2026-01-01", usage=usage))

    assert answer == ModelAnswer(
        message=AssistantMessage(
            parts=(
                Thinking(text="Adding helps."),
                Text(text="Let me add."),
                ToolCall(id="c1", name="add", arguments='{"a": 2}'),
            )
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
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                    {"type": "text", "text": "hi"},
                    7,
                ]
            },
            (Thinking(text="hm"), Text(text="hi")),
        ),
        ({"content": "a\ud800b\x00"}, (Text(text="a?b\x00"),)),
        (
            {"tool_calls": [{"function": {"name": "add", "arguments": {"a": "ü"}}}]},
            (ToolCall(id="", name="add", arguments='{"a": "ü"}'),),
        ),
        (
            {"tool_calls": [{"id": None, "function": {"name": "add"}}]},
            (ToolCall(id="", name="add"),),
        ),
        (
            {"tool_calls": [{"id": "c", "function": {"name": "add", "arguments": "{a"}}]},
            (ToolCall(id="c", name="add", arguments="{a"),),
        ),
    ],
)
async def test_messages_of_lax_servers_are_read(
    message: dict[str, Any], parts: tuple[Any, ...]
) -> None:
    """Content as a string, as chunks or missing; calls without ids; arguments as an object; half an
    emoji.
    """
    answer = await OPENAI.ask_served(body({"role": "assistant", **message}))

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
    """A known reason is kept, an unknown one is marked as unknown, a missing one follows from the
    content.
    """
    message = {
        "role": "assistant",
        "content": "hi",
        "tool_calls": [{"id": "c", "function": {"name": "add"}}] * calls,
    }

    answer = await OPENAI.ask_served(body(message, reason))

    assert answer.stop is stop


async def test_refusal_is_a_stop_with_its_text() -> None:
    """A refusal comes as a normal stop, in a field of its own."""
    answer = await OPENAI.ask_served(body({"content": None, "refusal": "I cannot."}))

    assert (answer.stop, answer.message.text) == (StopReason.REFUSED, "I cannot.")


@pytest.mark.accepts("M6")
@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (None, Usage()),
        ({"prompt_tokens": 100, "completion_tokens": 5}, Usage(input_tokens=100, output_tokens=5)),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            },
            Usage(input_tokens=100, output_tokens=5, cache_read_tokens=60, cache_write_tokens=30),
        ),
        (
            {"prompt_tokens": 100, "prompt_cache_hit_tokens": 60},
            Usage(input_tokens=100, cache_read_tokens=60),
        ),
        (
            {"prompt_tokens": 100, "num_cached_tokens": 60},
            Usage(input_tokens=100, cache_read_tokens=60),
        ),
        (
            {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 163}},
            Usage(input_tokens=170, cache_read_tokens=163),
        ),
        (
            {
                "prompt_tokens": 12,
                "completion_tokens": 2,
                "total_tokens": 331,
                "completion_tokens_details": {"reasoning_tokens": 317},
            },
            Usage(input_tokens=12, output_tokens=319),
        ),
    ],
)
def test_usage_is_measured_alike_whoever_reports_it(reported: Any, usage: Usage) -> None:
    """Input includes cached tokens, output includes thinking, and a missing number is not
    reported.
    """
    assert usage_of(reported) == usage


@pytest.mark.parametrize(
    "wrong", [-1, "5", 2.5, 5.0, True, float("nan"), float("inf"), 10**9 + 1, [5], {}]
)
@pytest.mark.parametrize(
    ("field", "usage"),
    [
        ("prompt_tokens", Usage(output_tokens=5)),
        ("completion_tokens", Usage(input_tokens=100, cache_read_tokens=60)),
        ("num_cached_tokens", Usage(output_tokens=5)),
        ("total_tokens", Usage(input_tokens=100, cache_read_tokens=60)),
    ],
)
def test_number_that_cannot_be_true_makes_its_sum_unknown_and_not_small(
    field: str, usage: Usage, wrong: Any
) -> None:
    """A part of the input or of the output is not a bill for all of it: 0 is "not reported"."""
    reported = {"prompt_tokens": 100, "completion_tokens": 5, "num_cached_tokens": 60}

    assert usage_of({**reported, field: wrong}) == usage


@pytest.mark.parametrize(
    "reported",
    [
        "lots",
        {"prompt_tokens": -100, "completion_tokens": -5, "total_tokens": -105},
        {"num_cached_tokens": 60},
        {"total_tokens": 105},
        {"prompt_tokens": -1, "completion_tokens": 5, "total_tokens": 105},
        {"prompt_tokens": 10**9, "num_cached_tokens": 10**9 + 1, "completion_tokens": None},
    ],
)
def test_usage_that_does_not_tell_the_whole_is_not_told(reported: Any) -> None:
    """Cached tokens, or a total that may include thinking, are not enough."""
    assert usage_of(reported) == Usage()


def test_largest_number_that_is_believed_is_a_thousand_million() -> None:
    """No model has a larger context."""
    assert usage_of({"prompt_tokens": 10**9, "completion_tokens": 10**9}) == Usage(
        input_tokens=10**9, output_tokens=10**9
    )


@pytest.mark.accepts("M9")
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b'{"choices": []}', "no message"),
        (b'{"choices": NaN}', "no message"),
        (b'{"choices": [{"message": null}]}', "no message"),
        (
            b'{"choices": [{"message": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]}',
            "without a name",
        ),
        (
            (
                b'{"choices": [{"message": {"content": "half"}, "finish_reason":'
                b' "insufficient_system_resource"}]}'
            ),
            "broken off",
        ),
    ],
)
async def test_body_that_is_no_answer_is_a_typed_error(raw: bytes, says: str) -> None:
    """The error is transient, so the turn may retry."""
    error = await OPENAI.failing({"raw": raw})

    assert isinstance(error, errors.LLMUnavailableError)
    assert says in error.message


# Errors


@pytest.mark.parametrize(
    ("reply", "cls"),
    [
        (error_body(401, {"message": "no"}), errors.LLMAuthError),
        (error_body(403, {"message": "no"}), errors.LLMAuthError),
        (
            error_body(
                400, {"message": "API key not valid. Please pass a valid API key.", "code": 400}
            ),
            errors.LLMAuthError,
        ),
        (error_body(400, "Incorrect API key provided: ab***yz"), errors.LLMAuthError),
        (error_body(402, {"message": "Insufficient credits", "code": 402}), errors.LLMAuthError),
        (
            error_body(
                429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}
            ),
            errors.LLMAuthError,
        ),
        (
            error_body(429, {"message": "slow down", "code": "rate_limit_exceeded"}),
            errors.LLMRateLimitError,
        ),
        (error_body(408, {"message": "late"}), errors.LLMTimeoutError),
        ({"status": 504, "raw": "<html>gateway</html>"}, errors.LLMTimeoutError),
        (error_body(400, {"message": "bad"}), errors.LLMInvalidRequestError),
        (
            error_body(404, {"message": "no such model", "code": "model_not_found"}),
            errors.LLMInvalidRequestError,
        ),
        (
            error_body(413, {"message": "Request too large", "code": "rate_limit_exceeded"}),
            errors.LLMInvalidRequestError,
        ),
        (
            {"status": 422, "raw": '{"detail": [{"msg": "field required"}]}'},
            errors.LLMInvalidRequestError,
        ),
        (
            error_body(400, {"message": "filtered", "code": "content_filter"}),
            errors.LLMRefusedError,
        ),
        (error_body(400, {"message": "Content Exists Risk"}), errors.LLMRefusedError),
        (
            error_body(200, {"message": "filtered", "code": "content_filter", "status": 400}),
            errors.LLMRefusedError,
        ),
        (
            error_body(400, {"message": "Failed to call a function.", "code": "tool_use_failed"}),
            errors.LLMUnavailableError,
        ),
        (error_body(500, {"message": "oops"}), errors.LLMUnavailableError),
        ({"status": 503, "raw": "upstream connect error"}, errors.LLMUnavailableError),
        ({"status": 529, "raw": b"\xff"}, errors.LLMUnavailableError),
        (error_body(200, {"message": "slow down", "code": 429}), errors.LLMRateLimitError),
        (error_body(200, "something"), errors.LLMUnavailableError),
        (error_body(201, "something"), errors.LLMUnavailableError),
        (
            {
                "raw": (
                    '{"choices": [{"error": {"message": "gone", "code": 502}, "finish_reason":'
                    ' "error"}]}'
                )
            },
            errors.LLMUnavailableError,
        ),
    ],
)
async def test_error_class_says_what_to_do(reply: StubReply, cls: type[LLMError]) -> None:
    """The body's own code overrides the status; without a readable body, the status counts."""
    error = await OPENAI.failing(reply)

    assert type(error) is cls


async def test_error_of_a_list_and_of_a_server_behind_is_read() -> None:
    """Gemini wraps its error in a list; OpenRouter quotes the server behind it."""
    gemini = await OPENAI.failing(
        {"status": 503, "raw": '[{"error": {"code": 503, "message": "overloaded"}}]'}
    )
    router = await OPENAI.failing(
        error_body(502, {"message": "Provider returned error", "metadata": {"raw": "boom"}})
    )

    assert [error.message for error in (gemini, router)] == [
        "m: overloaded (status 503)",
        "m: Provider returned error: boom (status 502)",
    ]


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
async def test_time_to_wait_is_in_the_error(reply: StubReply, wait: float | None) -> None:
    """Headers first, then the body; retries use `retry_after_s`."""
    error = await OPENAI.failing(reply)

    assert error.context.get("retry_after_s") == wait
