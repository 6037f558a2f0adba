"""The messages API over real HTTP on loopback: its requests, answers and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from perdure import errors
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import Anthropic
from perdure.activities.providers.anthropic import (
    MAX_OUTPUT_TOKENS,
    SILENT_ERROR,
    body_of,
    usage_of,
)
from perdure.errors import LLMError
from perdure.testing.stub_provider import StubProvider, StubReply
from perdure.values.answers import ModelAnswer
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    canonical,
)
from perdure.values.reports import StopReason, Usage

from ..support.loopback import ADD, ANTHROPIC, HELLO, KEY

THOUGHT = {"type": "thinking", "thinking": "Adding helps.", "signature": "EqkBCkYI"}
HIDDEN_TEXT = {"type": "thinking", "thinking": "", "signature": "EqkBCkYJ"}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgB"}


def body(*content: Any, stop_reason: str | None = "end_turn", **more: Any) -> StubReply:
    """A 200 with these blocks."""
    return {
        "raw": json.dumps(
            {"type": "message", "content": content, "stop_reason": stop_reason, **more}
        )
    }


def error_body(status: int, kind: str, message: str = "no") -> StubReply:
    """An error as Anthropic gives it."""
    return {
        "status": status,
        "raw": json.dumps({"type": "error", "error": {"type": kind, "message": message}}),
    }


def sent(*messages: Message, **more: Any) -> list[dict[str, Any]]:
    """The messages of a request in the form of the API."""
    turns: list[dict[str, Any]] = body_of(ModelRequest(model="m", messages=messages, **more), 9)[
        "messages"
    ]
    return turns


# Requests


async def test_whole_conversation_is_sent_in_order() -> None:
    """System prompt apart, blocks in order, all results in the user message after the calls, errors
    marked, tools as given.
    """
    calls = (
        ToolCall(id="c1", name="add", arguments='{"a": 2}'),
        ToolCall(id="c2", name="add", arguments=""),
    )
    results = (
        ToolResult(call_id="c1", name="add", content="2"),
        ToolResult(call_id="c2", name="add", content="no", is_error=True),
    )
    messages = (
        UserMessage.of("2?"),
        AssistantMessage(
            parts=(Thinking(text="hm", signature="sig"), Text(text="Let me add."), *calls)
        ),
        ToolMessage(results=results),
    )
    with StubProvider([{}, {"text": "2"}]) as stub:
        await ANTHROPIC.ask(
            stub.anthropic_url,
            ModelRequest(model="m", system="Be brief.", messages=messages, tools=(ADD,)),
        )

    assert stub.requests == [
        {
            "model": "m",
            "max_tokens": MAX_OUTPUT_TOKENS,
            "system": "Be brief.",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "2?"}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "sig"},
                        {"type": "text", "text": "Let me add."},
                        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 2}},
                        {"type": "tool_use", "id": "c2", "name": "add", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": "2"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "c2",
                            "content": "no",
                            "is_error": True,
                        },
                    ],
                },
            ],
            "tools": [{"name": "add", "description": "Add.", "input_schema": ADD.parameters}],
        }
    ]


async def test_key_and_version_are_sent_as_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key comes from the given environment variable; without one there is no such header."""
    monkeypatch.setenv("TEST_KEY", KEY)
    with StubProvider([{"text": "hi"}]) as stub:
        await ANTHROPIC.ask(stub.anthropic_url, key="TEST_KEY")
        await ANTHROPIC.ask(stub.anthropic_url)

    assert [
        (headers.get("x-api-key"), headers["anthropic-version"]) for headers in stub.headers
    ] == [(KEY, "2023-06-01"), (None, "2023-06-01")]


async def test_output_limit_is_the_constructors() -> None:
    """The API requires one."""
    with StubProvider([{"text": "hi"}]) as stub:
        provider = Anthropic(base_url=stub.anthropic_url, api_key_env=None, max_output_tokens=500)
        await provider.complete(HELLO)
        await provider.close()

    assert stub.requests[0]["max_tokens"] == 500


def test_output_limit_below_one_is_refused_when_the_provider_is_built() -> None:
    """Every request would fail."""
    with pytest.raises(errors.ConfigurationError, match="at least 1, not 0"):
        Anthropic(max_output_tokens=0)


def test_request_without_tools_and_system_prompt_has_neither() -> None:
    """The API refuses a blank system prompt."""
    assert body_of(replace(HELLO, system=" \n"), 9) == {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    }


def test_messages_of_one_role_in_a_row_are_sent_as_one() -> None:
    """Results come first, then the user's text after them, then the next task."""
    call = ToolCall(id="c1", name="add")

    turns = sent(
        AssistantMessage(parts=(call,)),
        ToolMessage.of(call, "2"),
        UserMessage.of("Go on."),
        UserMessage.of("And 3?"),
    )

    assert [turn["role"] for turn in turns] == ["assistant", "user"]
    assert turns[1]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "2"},
        {"type": "text", "text": "Go on."},
        {"type": "text", "text": "And 3?"},
    ]


def test_images_and_pdf_are_sent_as_data_or_url() -> None:
    """Text and media keep their order."""
    image, pdf = "image/png", "application/pdf"
    parts = (
        Text(text="Look:"),
        Media(media_type=image, data="QUJD"),
        Media(media_type=image, url="https://example.com/a.png"),
        Media(media_type=pdf, data="QUJD"),
        Media(media_type=pdf, url="https://example.com/a.pdf"),
    )

    turns = sent(UserMessage(parts=parts))

    assert turns[0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": {"type": "base64", "media_type": image, "data": "QUJD"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "document", "source": {"type": "base64", "media_type": pdf, "data": "QUJD"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
    ]


@pytest.mark.parametrize(
    ("arguments", "sent_as"),
    [
        ('{"a": 2}', {"a": 2}),
        ("", {}),
        ("{a", {"invalid_arguments": "{a"}),
        ("[1]", {"invalid_arguments": "[1]"}),
        ("null", {"invalid_arguments": "null"}),
        ('{"a": NaN}', {"invalid_arguments": '{"a": NaN}'}),
        ('{"a": 1e400}', {"invalid_arguments": '{"a": 1e400}'}),
        ("9" * 5000, {"invalid_arguments": "9" * 5000}),
        ("[" * 100_000, {"invalid_arguments": "[" * 100_000}),
    ],
)
def test_arguments_that_are_no_object_are_quoted_in_one(
    arguments: str, sent_as: dict[str, Any]
) -> None:
    """The API accepts only objects, and the model has to see what it wrote."""
    turns = sent(AssistantMessage(parts=(ToolCall(id="c1", name="add", arguments=arguments),)))

    assert turns[0]["content"][0]["input"] == sent_as


def test_call_of_another_vendors_model_fits_the_api_and_stays_paired() -> None:
    """Two ids that differ only in an invalid character remain different; a name that no tool can
    have is sent in a valid form.
    """
    calls = (
        ToolCall(id="functions.add:0", name="the tool"),
        ToolCall(id="functions.add.0", name="x" * 65),
        ToolCall(id="ok-1_", name="add"),
    )
    results = tuple(ToolResult(call_id=call.id, name=call.name, content="2") for call in calls)

    asked, answered = (
        turn["content"]
        for turn in sent(AssistantMessage(parts=calls), ToolMessage(results=results))
    )

    ids = [block["id"] for block in asked]
    assert ids == [block["tool_use_id"] for block in answered]
    assert len(set(ids)) == 3
    assert ids[2] == "ok-1_"
    for word in (*ids, *(block["name"] for block in asked)):
        assert len(word) <= 64
        assert word.replace("-", "").replace("_", "").isalnum()


def test_calls_of_earlier_turns_are_declared_for_an_agent_without_tools() -> None:
    """The API refuses calls without tools; the model may not choose these."""
    call = ToolCall(id="c1", name="add")
    messages = (
        UserMessage.of("2?"),
        AssistantMessage(parts=(call, call)),
        ToolMessage.of(call, "2"),
        UserMessage.of("Thanks."),
    )

    request = body_of(ModelRequest(model="m", messages=messages), 9)

    assert request["tools"] == [{"name": "add", "input_schema": {"type": "object"}}]
    assert request["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("result", "block"),
    [
        ({"content": ""}, {}),
        ({"content": " \n"}, {}),
        ({"content": "", "is_error": True}, {"content": SILENT_ERROR, "is_error": True}),
    ],
)
def test_blank_results_are_sent_in_a_way_the_api_takes(
    result: dict[str, Any], block: dict[str, Any]
) -> None:
    """An error without text gets a default text."""
    turns = sent(ToolMessage(results=(ToolResult(call_id="c1", name="add", **result),)))

    assert turns[0]["content"] == [{"type": "tool_result", "tool_use_id": "c1", **block}]


def test_blank_text_and_thinking_of_another_vendor_are_not_sent() -> None:
    """The API refuses both; a message of nothing else is left out, its neighbours merged."""
    turns = sent(
        UserMessage.of("a"),
        AssistantMessage(parts=(Thinking(text="hm"), Text(text="\n\n"))),
        UserMessage.of("b"),
    )

    assert turns == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    ]


@pytest.mark.accepts("M7")
async def test_thinking_goes_back_unchanged_in_its_place() -> None:
    """Signed, without text (the vendor may omit it), redacted, and between calls; also after a turn
    through history.
    """
    call = {"type": "tool_use", "id": "c1", "name": "add", "input": {"b": 1, "a": [2.0]}}
    blocks = [THOUGHT, REDACTED, {"type": "text", "text": "Let me add."}, HIDDEN_TEXT, call]
    answer = await ANTHROPIC.ask_served(body(*blocks, stop_reason="tool_use"))
    message = AssistantMessage.model_validate_json(canonical(answer.message))

    turns = sent(UserMessage.of("2?"), message, ToolMessage.of(message.calls[0], "3"))

    assert turns[1] == {"role": "assistant", "content": blocks}


# Parsing answers


async def test_answer_with_thinking_text_and_calls_is_read_in_order() -> None:
    """Blocks without a place in a transcript are left out; the answer has the name of the model
    that served.
    """
    blocks = (
        THOUGHT,
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "text", "text": "Let me add.", "citations": None},
        REDACTED,
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": "ü"}},
    )

    answer = await ANTHROPIC.ask_served(
        body(
            *blocks,
            stop_reason="tool_use",
            model="m-1",
            usage={"input_tokens": 10, "output_tokens": 5},
        )
    )

    assert answer == ModelAnswer(
        message=AssistantMessage(
            parts=(
                Thinking(text="Adding helps.", signature="EqkBCkYI"),
                Text(text="Let me add."),
                Thinking(text="", redacted="EmwKAhgB"),
                ToolCall(id="c1", name="add", arguments='{"a": "ü"}'),
            )
        ),
        stop=StopReason.TOOL_CALLS,
        usage=Usage(input_tokens=10, output_tokens=5),
        model="m-1",
    )


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        ({"type": "tool_use", "name": "add"}, (ToolCall(id="", name="add"),)),
        (
            {"type": "tool_use", "id": 7, "name": "add", "input": "{a"},
            (ToolCall(id="", name="add", arguments="{a"),),
        ),
        (
            {"type": "tool_use", "id": "c", "name": "add", "input": [1]},
            (ToolCall(id="c", name="add", arguments="[1]"),),
        ),
        ({"type": "text", "text": ""}, ()),
        ({"type": "text", "text": None}, ()),
        ({"type": "thinking", "thinking": "hm"}, (Thinking(text="hm"),)),
        ({"type": "thinking"}, ()),
        ({"type": "redacted_thinking", "data": None}, ()),
        ({"type": ["text"]}, ()),
        ("text", ()),
        (None, ()),
    ],
)
async def test_blocks_of_lax_servers_are_read(block: Any, parts: tuple[Any, ...]) -> None:
    """Calls without ids, input as text, invalid blocks."""
    answer = await ANTHROPIC.ask_served(body(block))

    assert answer.message.parts == parts


@pytest.mark.parametrize(
    ("reason", "calls", "stop"),
    [
        ("end_turn", 0, StopReason.END),
        ("end_turn", 1, StopReason.TOOL_CALLS),
        ("tool_use", 1, StopReason.TOOL_CALLS),
        ("stop_sequence", 0, StopReason.STOP_SEQUENCE),
        ("stop_sequence", 1, StopReason.STOP_SEQUENCE),
        ("max_tokens", 1, StopReason.MAX_TOKENS),
        ("model_context_window_exceeded", 0, StopReason.MAX_TOKENS),
        ("refusal", 0, StopReason.REFUSED),
        ("pause_turn", 0, StopReason.OTHER),
        ("a new one", 0, StopReason.OTHER),
        (None, 0, StopReason.END),
        (None, 1, StopReason.TOOL_CALLS),
    ],
)
async def test_stop_reasons_are_mapped(reason: str | None, calls: int, stop: StopReason) -> None:
    """A known reason is kept, an unknown one is marked as unknown, a missing one follows from the
    content.
    """
    blocks = [
        {"type": "text", "text": "hi"},
        *[{"type": "tool_use", "id": "c", "name": "add", "input": {}}] * calls,
    ]

    answer = await ANTHROPIC.ask_served(body(*blocks, stop_reason=reason))

    assert answer.stop is stop


async def test_refusal_without_words_has_those_of_its_explanation() -> None:
    """A stream filter may stop the model before its first token; the error has the reason."""
    details = {"type": "refusal", "category": "cyber", "explanation": "This looks harmful."}

    answer = await ANTHROPIC.ask_served(body(stop_reason="refusal", stop_details=details))

    assert (answer.stop, answer.message.text) == (StopReason.REFUSED, "This looks harmful.")


@pytest.mark.accepts("M6")
@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (None, Usage()),
        ({"input_tokens": 100, "output_tokens": 5}, Usage(input_tokens=100, output_tokens=5)),
        (
            {
                "input_tokens": 10,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 30,
                "output_tokens": 5,
            },
            Usage(input_tokens=100, output_tokens=5, cache_read_tokens=60, cache_write_tokens=30),
        ),
        ({"input_tokens": 10, "cache_read_input_tokens": None}, Usage(input_tokens=10)),
        (
            {"input_tokens": 0, "cache_read_input_tokens": 60, "output_tokens": 5},
            Usage(input_tokens=60, output_tokens=5, cache_read_tokens=60),
        ),
        ("lots", Usage()),
    ],
)
def test_usage_is_measured_alike_whoever_reports_it(reported: Any, usage: Usage) -> None:
    """Input includes cached tokens, which this API counts separately; a missing number is not
    reported.
    """
    assert usage_of(reported) == usage


@pytest.mark.parametrize(
    "wrong", [-1, "5", 2.5, 5.0, True, float("nan"), float("inf"), 10**9 + 1, [5], {}]
)
@pytest.mark.parametrize(
    ("field", "usage"),
    [
        ("input_tokens", Usage(output_tokens=5)),
        ("cache_read_input_tokens", Usage(output_tokens=5)),
        ("cache_creation_input_tokens", Usage(output_tokens=5)),
        ("output_tokens", Usage(input_tokens=100, cache_read_tokens=60, cache_write_tokens=30)),
    ],
)
def test_number_that_cannot_be_true_makes_its_sum_unknown_and_not_small(
    field: str, usage: Usage, wrong: Any
) -> None:
    """A part of the input is not a bill for all of it: 0 is "not reported"."""
    reported = {
        "input_tokens": 10,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 30,
        "output_tokens": 5,
    }

    assert usage_of({**reported, field: wrong}) == usage


def test_sum_that_cannot_be_true_is_not_told() -> None:
    """A thousand million tokens and as many from a cache."""
    assert usage_of(
        {"input_tokens": 10**9, "cache_read_input_tokens": 10**9, "output_tokens": 10**9}
    ) == Usage(output_tokens=10**9)


def test_input_that_is_told_by_the_cache_alone_is_not_told() -> None:
    """The cached tokens are only a part of the input."""
    assert usage_of({"cache_read_input_tokens": 60, "output_tokens": 5}) == Usage(output_tokens=5)


@pytest.mark.accepts("M9")
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b'{"content": null}', "no message"),
        (b'{"content": NaN}', "no message"),
        (b'{"content": "hi"}', "no message"),
        (b'{"content": [{"type": "tool_use", "input": {}}]}', "without a name"),
        (b'{"choices": [{"message": {"content": "hi"}}]}', "no message"),
    ],
)
async def test_body_that_is_no_answer_is_a_typed_error(raw: bytes, says: str) -> None:
    """The error is transient, so the turn may retry."""
    error = await ANTHROPIC.failing({"raw": raw})

    assert isinstance(error, errors.LLMUnavailableError)
    assert says in error.message


# Errors


@pytest.mark.parametrize(
    ("reply", "cls"),
    [
        (error_body(401, "authentication_error", "invalid x-api-key"), errors.LLMAuthError),
        (error_body(402, "billing_error"), errors.LLMAuthError),
        (error_body(400, "billing_error"), errors.LLMAuthError),
        (
            error_body(
                400,
                "invalid_request_error",
                "Your credit balance is too low to access the Anthropic API.",
            ),
            errors.LLMAuthError,
        ),
        (
            error_body(
                400, "invalid_request_error", "You have reached your specified API usage limits."
            ),
            errors.LLMAuthError,
        ),
        (
            error_body(
                400,
                "invalid_request_error",
                "You have reached your specified workspace API usage limits.",
            ),
            errors.LLMAuthError,
        ),
        (error_body(403, "permission_error"), errors.LLMAuthError),
        (error_body(429, "rate_limit_error"), errors.LLMRateLimitError),
        (error_body(504, "timeout_error"), errors.LLMTimeoutError),
        (error_body(400, "invalid_request_error"), errors.LLMInvalidRequestError),
        (error_body(404, "not_found_error"), errors.LLMInvalidRequestError),
        (error_body(413, "request_too_large"), errors.LLMInvalidRequestError),
        (
            error_body(400, "invalid_request_error", "Output blocked by content filtering policy"),
            errors.LLMRefusedError,
        ),
        (error_body(500, "api_error"), errors.LLMUnavailableError),
        (error_body(529, "overloaded_error"), errors.LLMUnavailableError),
        (error_body(200, "overloaded_error"), errors.LLMUnavailableError),
        (error_body(200, "api_error"), errors.LLMUnavailableError),
        (error_body(200, "rate_limit_error"), errors.LLMRateLimitError),
        (error_body(200, "timeout_error"), errors.LLMTimeoutError),
        (error_body(200, "invalid_request_error"), errors.LLMInvalidRequestError),
        (error_body(200, "authentication_error"), errors.LLMAuthError),
        (error_body(201, "a new one"), errors.LLMUnavailableError),
        ({"raw": '{"error": "something"}'}, errors.LLMUnavailableError),
    ],
)
async def test_error_class_says_what_to_do(reply: StubReply, cls: type[LLMError]) -> None:
    """By the status, and inside a 200 by the type; payment and filter errors come as a plain
    400.
    """
    error = await ANTHROPIC.failing(reply)

    assert type(error) is cls


async def test_error_quotes_the_words_of_the_provider() -> None:
    """With the status, which callers may look up."""
    error = await ANTHROPIC.failing(error_body(529, "overloaded_error", "Overloaded"))

    assert error.message == "m: Overloaded (status 529)"
