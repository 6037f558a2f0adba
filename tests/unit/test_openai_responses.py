"""The responses API over real HTTP on loopback: its requests, answers and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import errors
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import reasoning
from perdure.activities.providers.openai_responses import answer_of, body_of, usage_of
from perdure.errors import LLMError
from perdure.testing.stub_provider import StubProvider, StubReply
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import Remaining
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
)
from perdure.values.options import RequestOptions
from perdure.values.reports import StopReason, Usage

from ..support.clerk import in_its_own_time
from ..support.loopback import ADD, HELLO, KEY, RESPONSES, error_body

INCLUDE = ["reasoning.encrypted_content"]
SENT = {
    "model": "m",
    "input": [{"role": "user", "content": "hello"}],
    "store": False,
    "include": INCLUDE,
}
TOOLS = [
    {
        "type": "function",
        "name": "add",
        "description": "Add.",
        "parameters": ADD.parameters,
        "strict": False,
    }
]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
REASONED = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [
        {"type": "summary_text", "text": "First\n\nthis."},
        {"type": "summary_text", "text": "Then ü."},
    ],
    "content": [],
    "encrypted_content": "gAAA",
}


def said(*parts: dict[str, Any]) -> dict[str, Any]:
    """A message of the model."""
    return {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": list(parts),
    }


def words(text: Any) -> dict[str, Any]:
    """Words in a message."""
    return {"type": "output_text", "text": text, "annotations": []}


def called(call_id: Any = "c1", name: Any = "add", arguments: Any = '{"a": 2}') -> dict[str, Any]:
    """A call."""
    return {
        "id": "fc_1",
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def body(*output: Any, status: Any = "completed", **more: Any) -> StubReply:
    """A 200 with this output."""
    return {
        "raw": json.dumps(
            {
                "status": status,
                "error": None,
                "incomplete_details": None,
                "output": list(output),
                **more,
            }
        )
    }


def asking(tools: bool = False, budget: Remaining | None = None, **options: Any) -> ModelRequest:
    """A request with these options."""
    return replace(
        HELLO, tools=(ADD,) if tools else (), options=RequestOptions(**options), budget=budget
    )


def sent_back(*messages: Message) -> list[dict[str, Any]]:
    """The items of these messages in a request."""
    items: list[dict[str, Any]] = body_of(ModelRequest(model="m", messages=messages))["input"]
    return items


def thought(item: dict[str, Any]) -> Thinking:
    """The part that an item becomes."""
    found = reasoning.thought_of(item)
    assert found is not None
    return found


# Requests


async def test_whole_conversation_is_sent_in_order() -> None:
    """System prompt as instructions, each part as an item, each result under its call id; nothing
    is stored.
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
        AssistantMessage(parts=(Text(text="Let me."), *calls)),
        ToolMessage(results=results),
    )

    with StubProvider([{}, {"text": "2"}]) as stub:
        await RESPONSES.ask(
            stub.anthropic_url,
            ModelRequest(model="m", system="Be brief.", messages=messages, tools=(ADD,)),
        )

    assert stub.requests == [
        {
            "model": "m",
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": "2?"},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Let me.", "annotations": []}],
                },
                {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 2}'},
                {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "{}"},
                {"type": "function_call", "call_id": "c3", "name": "add", "arguments": "{a"},
                {"type": "function_call_output", "call_id": "c1", "output": "2"},
                {"type": "function_call_output", "call_id": "c2", "output": "no"},
            ],
            "store": False,
            "include": INCLUDE,
            "tools": TOOLS,
        }
    ]


def test_request_without_tools_and_system_prompt_has_neither() -> None:
    """Options that are not set are not in it, either."""
    assert body_of(HELLO) == SENT


@pytest.mark.parametrize(
    ("model", "is_asked"),
    [
        ("gpt-5", True),
        ("gpt-5.2-chat-latest", True),
        ("o3", True),
        ("qwen3", True),
        ("a deployment", True),
        ("gpt-4o", False),
        ("gpt-4.1-nano", False),
        ("ft:gpt-4o-mini:mine", False),
        ("gpt-3.5-turbo", False),
        ("chatgpt-4o-latest", False),
        ("gpt-5-chat-latest", False),
    ],
)
def test_reasoning_is_not_asked_of_models_that_refuse_to_be_asked(
    model: str, is_asked: bool
) -> None:
    """OpenAI answers 400 for models without reasoning: "Encrypted content is not supported with
    this model.".
    """
    assert body_of(replace(HELLO, model=model)).get("include") == (INCLUDE if is_asked else None)


def test_images_and_files_are_sent_as_data_or_url() -> None:
    """In their order within the text; data of a file have a name, whose suffix gives the type."""
    parts = (
        Text(text="Look:"),
        Media(media_type="image/png", data="QUJD"),
        Media(media_type="image/png", url="https://example.com/a.png"),
        Media(media_type="application/pdf", data="QUJD"),
        Media(media_type="application/pdf", url="https://example.com/a.pdf"),
    )

    assert sent_back(UserMessage(parts=parts)) == [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look:"},
                {
                    "type": "input_image",
                    "image_url": "data:image/png;base64,QUJD",
                    "detail": "auto",
                },
                {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
                {
                    "type": "input_file",
                    "filename": "file.pdf",
                    "file_data": "data:application/pdf;base64,QUJD",
                },
                {"type": "input_file", "file_url": "https://example.com/a.pdf"},
            ],
        }
    ]


async def test_key_is_sent_as_bearer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key comes from the given environment variable; without one there is no such header."""
    monkeypatch.setenv("TEST_KEY", KEY)
    with StubProvider([{"text": "hi"}]) as stub:
        await RESPONSES.ask(stub.anthropic_url, key="TEST_KEY")
        await RESPONSES.ask(stub.anthropic_url)

    assert [headers.get("authorization") for headers in stub.headers] == [f"Bearer {KEY}", None]


# Options


async def test_every_option_is_in_the_body() -> None:
    """With the names of this API; `extra` is added, and overrides ours."""
    request = asking(
        tools=True,
        temperature=0,
        max_output_tokens=500,
        tool_choice="required",
        extra={"reasoning": {"effort": "low"}, "include": []},
    )
    with StubProvider([{"text": "hi"}]) as stub:
        await RESPONSES.ask(stub.anthropic_url, request)

    ours = {"temperature": 0, "max_output_tokens": 500, "tool_choice": "required"}
    assert stub.requests == [
        {**SENT, "tools": TOOLS, **ours, "reasoning": {"effort": "low"}, "include": []}
    ]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ("add", {"type": "function", "name": "add"}),
    ],
)
def test_tool_choice_is_sent_in_the_words_of_the_api(choice: str, sent: object) -> None:
    """A tool is named by an object; without tools there is no choice."""
    assert body_of(asking(tools=True, tool_choice=choice)) == {
        **SENT,
        "tools": TOOLS,
        "tool_choice": sent,
    }
    assert body_of(asking(tool_choice=choice)) == SENT


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"stop_sequences": ("END",)},
            "this API has no stop sequences; set RequestOptions(stop_sequences=()) to send none",
        ),
        ({"extra": {"background": True}}, "background answer, which is not supported"),
        ({"extra": {"stream": True}}, "stream"),
        ({"tools": True, "tool_choice": "sub"}, "tool_choice 'sub' is none of"),
    ],
)
async def test_option_that_the_api_cannot_keep_is_refused_before_a_request(
    options: dict[str, Any], says: str
) -> None:
    """Nothing is charged, and the error has a suggestion."""
    with (
        StubProvider([{"text": "hi"}]) as stub,
        pytest.raises(errors.LLMInvalidRequestError) as caught,
    ):
        await RESPONSES.ask(stub.anthropic_url, asking(**options))

    assert says in caught.value.message
    assert (stub.requests, caught.value.context) == ([], {"model": "m"})


def test_no_stop_sequences_on_purpose_are_none() -> None:
    """A text protocol needs that for this API."""
    assert body_of(asking(stop_sequences=())) == SENT


@pytest.mark.parametrize("budget", [Remaining(usd=Decimal("0.5")), Remaining(tokens=1000)])
@pytest.mark.parametrize(
    "field",
    [
        "max_output_tokens",
        "input",
        "instructions",
        "previous_response_id",
        "conversation",
        "prompt",
        "model",
        "tools",
    ],
)
def test_extra_may_not_change_what_a_budget_was_reserved_for(field: str, budget: Remaining) -> None:
    """Neither the input, nor what the provider adds to it, nor the length of the answer."""
    with pytest.raises(
        errors.LLMInvalidRequestError,
        match=f"extra sets {field}, which a budget's reservation is computed from",
    ):
        body_of(asking(budget=budget, extra={field: 2, "seed": 7}))


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (SCHEMA, True),
        ({**SCHEMA, "required": []}, False),
        ({"anyOf": [SCHEMA, {"type": "null"}]}, False),
    ],
)
def test_answer_is_held_to_its_schema_strictly_where_that_is_taken(
    schema: dict[str, Any], strict: bool
) -> None:
    """As `text.format`."""
    request = replace(HELLO, response_schema=schema, response_name="count")

    assert body_of(request)["text"] == {
        "format": {"type": "json_schema", "name": "count", "schema": schema, "strict": strict}
    }


def test_schema_beside_tools_is_for_openais_own_models_only() -> None:
    """Servers with grammar-based decoding would never produce a call."""
    request = replace(asking(tools=True), response_schema=SCHEMA)

    assert "text" in body_of(request, is_own=True)
    assert "text" not in body_of(request, is_own=False)


# Reasoning


@pytest.mark.accepts("M7")
@pytest.mark.parametrize("led_to", [said(words("2")), called()], ids=["words", "call"])
async def test_reasoning_goes_back_as_it_came_and_where_it_stood(led_to: dict[str, Any]) -> None:
    """It keeps its id, every summary and the encrypted content through the stored transcript."""
    answer = await RESPONSES.ask_served(body(said(words("Well.")), REASONED, led_to))
    kept = AssistantMessage.model_validate_json(answer.message.model_dump_json())

    first, *back = sent_back(kept)
    assert (kept.parts[0], first["content"][0]["text"]) == (Text(text="Well."), "Well.")
    assert back[0] == REASONED
    assert [item["type"] for item in back] == ["reasoning", led_to["type"]]


def test_what_is_shown_of_reasoning_is_its_text_and_stands_there_only() -> None:
    """The signature has the lengths instead; together they are shorter than the item twice."""
    kept = thought(REASONED)

    assert kept.text == "First\n\nthis.\n\nThen ü."
    assert "First" not in (kept.signature or "")
    assert '"text":12' in (kept.signature or "")


TEXTS = st.text(st.characters(codec="utf-8"), max_size=9) | st.sampled_from(
    ["", "\n\n", "a\n\nb", '"text":3']
)
SHOWN = st.lists(
    st.fixed_dictionaries({"type": st.just("summary_text"), "text": TEXTS})
    | st.just({"type": "other"}),
    max_size=4,
)


@pytest.mark.accepts("M7")
@in_its_own_time
@given(
    st.fixed_dictionaries(
        {
            "id": TEXTS,
            "type": st.just("reasoning"),
            "summary": SHOWN,
            "content": SHOWN,
            "encrypted_content": st.just("x"),
        }
    )
)
def test_any_reasoning_is_the_same_after_the_way_there_and_back(item: dict[str, Any]) -> None:
    """With any number of texts, empty ones and blank lines included."""
    assert reasoning.item_of(thought(item)) == item


@pytest.mark.parametrize(
    ("item", "kept"),
    [
        ({"type": "reasoning", "id": "rs_1", "summary": []}, None),
        ({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}, None),
        ({"type": "reasoning", "id": "rs_1", "summary": [{"text": "hm"}]}, Thinking(text="hm")),
        (
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": 7,
                "content": [{"text": 7}],
                "encrypted_content": 7,
            },
            None,
        ),
    ],
)
def test_reasoning_that_only_the_provider_has_is_shown_and_does_not_go_back(
    item: dict[str, Any], kept: Thinking | None
) -> None:
    """The provider did not store it, so its id is useless."""
    assert reasoning.thought_of(item) == kept
    assert sent_back(
        AssistantMessage(parts=(kept or Thinking(text="hm"), Text(text="2")))
    ) == sent_back(AssistantMessage(parts=(Text(text="2"),)))


def test_reasoning_in_the_open_goes_back_without_its_nulls() -> None:
    """In the form that vLLM and llama.cpp produce and accept."""
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "encrypted_content": None,
    }

    assert sent_back(AssistantMessage(parts=(thought(item), Text(text="2"))))[0] == {
        name: value for name, value in item.items() if value is not None
    }


@pytest.mark.parametrize(
    "foreign",
    [
        Thinking(text="hm"),
        Thinking(text="hm", signature="EqQBCkYIBxgC"),
        Thinking(text="", redacted="EqQBCkYIBxgC"),
        Thinking(text="hm", signature="{}"),
        Thinking(text="hm", signature="[" * 100_000),
        Thinking(text="hm", signature='{"type": "thinking"}'),
    ],
)
def test_thinking_of_another_vendor_stays_out(foreign: Thinking) -> None:
    """This API could not parse it."""
    assert sent_back(AssistantMessage(parts=(foreign, Text(text="2")))) == sent_back(
        AssistantMessage(parts=(Text(text="2"),))
    )


async def test_reasoning_that_led_to_a_tool_of_the_vendor_stays_out() -> None:
    """The tool call is not in the transcript, and the API refuses reasoning without it; the text of
    the reasoning is kept.
    """
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    answer = await RESPONSES.ask_served(
        body(REASONED, search, {**REASONED, "id": "rs_2"}, said(words("2")))
    )

    assert [part.text for part in answer.message.parts if isinstance(part, Thinking)] == [
        "First\n\nthis.\n\nThen ü."
    ] * 2
    assert [item.get("id", item["type"]) for item in sent_back(answer.message)] == [
        "rs_2",
        "message",
    ]


def test_reasoning_that_led_to_nothing_stays_out() -> None:
    """The API refuses reasoning without a following item, as in an answer that was truncated during
    reasoning.
    """
    kept = thought(REASONED)
    messages = (
        UserMessage.of("2?"),
        AssistantMessage(parts=(Text(text="So:"), kept, kept, Text(text=""))),
        AssistantMessage(parts=(kept,)),
    )

    assert [
        item.get("type", "user") for item in sent_back(*messages, UserMessage.of("Go on."))
    ] == ["user", "message", "user"]


# Parsing answers


async def test_answer_with_reasoning_text_and_calls_is_read_in_order() -> None:
    """Each item is a part; calls of the vendor's own tools are left out; the answer has the name of
    the model that served.
    """
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 40},
        "total_tokens": 150,
    }
    second = called("c2", "look", "{}")

    answer = await RESPONSES.ask_served(
        body(
            search,
            REASONED,
            said(words("Let me add.")),
            called(),
            second,
            model="m-2026-01-01",
            usage=usage,
        )
    )

    assert answer == ModelAnswer(
        message=AssistantMessage(
            parts=(
                thought(REASONED),
                Text(text="Let me add."),
                ToolCall(id="c1", name="add", arguments='{"a": 2}'),
                ToolCall(id="c2", name="look", arguments="{}"),
            )
        ),
        stop=StopReason.TOOL_CALLS,
        usage=Usage(
            input_tokens=100, output_tokens=50, cache_read_tokens=60, cache_write_tokens=30
        ),
        model="m-2026-01-01",
    )


def test_last_event_of_a_stream_is_read_like_a_body() -> None:
    """`response.completed` has the whole answer as its `response`."""
    event: dict[str, Any] = {
        "type": "response.completed",
        "response": {"status": "completed", "output": [said(words("hi"))]},
        "sequence_number": 9,
    }

    assert answer_of(event["response"], "m").message.text == "hi"


@pytest.mark.parametrize(
    ("item", "parts"),
    [
        (said(words("a"), words("b")), (Text(text="a"), Text(text="b"))),
        (said(words("")), ()),
        (said(words(None), {"type": "new"}), ()),
        ({"type": "message", "content": None}, ()),
        ({"type": "message"}, ()),
        (said(words("a\ud800b\x00")), (Text(text="a?b\x00"),)),
        (called(None), (ToolCall(id="", name="add", arguments='{"a": 2}'),)),
        (called(arguments={"a": "ü"}), (ToolCall(id="c1", name="add", arguments='{"a": "ü"}'),)),
        (called(arguments=None), (ToolCall(id="c1", name="add"),)),
        (called(arguments="{a"), (ToolCall(id="c1", name="add", arguments="{a"),)),
        ({"type": "custom_tool_call", "name": "math", "input": "4 + 4"}, ()),
        (7, ()),
    ],
)
async def test_items_of_lax_servers_are_read(item: Any, parts: tuple[Any, ...]) -> None:
    """Missing content, calls without ids, arguments as an object, half an emoji, unknown kinds."""
    answer = await RESPONSES.ask_served(body(item))

    assert answer.message.parts == parts


@pytest.mark.parametrize(
    ("status", "details", "calls", "stop"),
    [
        ("completed", None, 0, StopReason.END),
        ("completed", None, 1, StopReason.TOOL_CALLS),
        ("complete", None, 0, StopReason.END),
        ("incomplete", {"reason": "max_output_tokens"}, 0, StopReason.MAX_TOKENS),
        ("incomplete", {"reason": "max_output_tokens"}, 1, StopReason.MAX_TOKENS),
        ("incomplete", {"reason": "content_filter"}, 0, StopReason.REFUSED),
        ("incomplete", {"reason": "a new one"}, 0, StopReason.OTHER),
        ("incomplete", None, 0, StopReason.OTHER),
        ("a new one", None, 0, StopReason.OTHER),
        (None, None, 0, StopReason.END),
        (None, None, 1, StopReason.TOOL_CALLS),
    ],
)
async def test_stop_reasons_are_mapped(
    status: str | None, details: Any, calls: int, stop: StopReason
) -> None:
    """A complete answer is an end or has calls; for an incomplete one, the reason counts."""
    answer = await RESPONSES.ask_served(
        body(said(words("hi")), *[called()] * calls, status=status, incomplete_details=details)
    )

    assert answer.stop is stop


@pytest.mark.parametrize(("tokens", "stop"), [(19, StopReason.END), (20, StopReason.MAX_TOKENS)])
async def test_answer_as_long_as_it_may_be_was_cut_off_where_the_server_does_not_say_so(
    tokens: int, stop: StopReason
) -> None:
    """llama.cpp calls it completed."""
    reply = body(said(words("hi")), usage={"input_tokens": 10, "output_tokens": tokens})

    assert (await RESPONSES.ask_served(reply, asking(max_output_tokens=20))).stop is stop


def test_openai_says_itself_when_an_answer_was_cut_off() -> None:
    """Its answers are taken as reported."""
    usage = {"input_tokens": 10, "output_tokens": 20}

    assert (
        answer_of({"status": "completed", "output": [said(words("hi"))], "usage": usage}, "m").stop
        is StopReason.END
    )


async def test_refusal_is_a_stop_with_its_text() -> None:
    """A refusal comes in a complete answer, as its own content."""
    answer = await RESPONSES.ask_served(body(said({"type": "refusal", "refusal": "I cannot."})))

    assert (answer.stop, answer.message.text) == (StopReason.REFUSED, "I cannot.")


@pytest.mark.accepts("M6")
@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (None, Usage()),
        ({"input_tokens": 100, "output_tokens": 5}, Usage(input_tokens=100, output_tokens=5)),
        (
            {
                "input_tokens": 100,
                "output_tokens": 5,
                "total_tokens": 105,
                "input_tokens_details": None,
            },
            Usage(input_tokens=100, output_tokens=5),
        ),
        (
            {
                "input_tokens": 100,
                "output_tokens": 5,
                "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            },
            Usage(input_tokens=100, output_tokens=5, cache_read_tokens=60, cache_write_tokens=30),
        ),
        ({"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}, Usage()),
        ({"input_tokens": "100", "output_tokens": 5}, Usage(output_tokens=5)),
        (
            {
                "input_tokens": 100,
                "output_tokens": 5,
                "input_tokens_details": {"cached_tokens": -1},
            },
            Usage(output_tokens=5),
        ),
        ("lots", Usage()),
    ],
)
def test_usage_is_measured_as_elsewhere(reported: Any, usage: Usage) -> None:
    """Input includes cached tokens, output includes reasoning, and a missing or impossible number
    is not reported.
    """
    assert usage_of(reported) == usage


@pytest.mark.accepts("M9")
@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ({"raw": '{"output": null}'}, "no message"),
        ({"raw": '{"output": "hi"}'}, "no message"),
        (body(called(name="")), "without a name"),
        (body(called(name=7)), "without a name"),
        (body(status="queued"), "was not finished (queued)"),
        (body(said(words("ha")), status="in_progress"), "was not finished (in_progress)"),
        (body(status="cancelled"), "was not finished (cancelled)"),
        (body(status="failed"), "was not finished (failed)"),
    ],
)
async def test_body_that_is_no_answer_is_a_typed_error(reply: StubReply, says: str) -> None:
    """The error is transient, so the turn may retry."""
    error = await RESPONSES.failing(reply)

    assert isinstance(error, errors.LLMUnavailableError)
    assert says in error.message


# Errors


def failed(code: str, message: str = "no") -> StubReply:
    """A 200 with a failed response."""
    return body(status="failed", error={"code": code, "message": message})


@pytest.mark.parametrize(
    ("reply", "cls"),
    [
        (error_body(401, {"message": "no"}), errors.LLMAuthError),
        (error_body(400, {"message": "Incorrect API key provided: ab***yz"}), errors.LLMAuthError),
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
        (error_body(504, {"message": "late"}), errors.LLMTimeoutError),
        (
            error_body(400, {"message": "Encrypted content is not supported with this model."}),
            errors.LLMInvalidRequestError,
        ),
        (
            error_body(400, {"message": "wrong input", "code": "invalid_prompt"}),
            errors.LLMInvalidRequestError,
        ),
        (
            error_body(
                400,
                {
                    "message": "Your prompt was flagged as potentially violating our usage policy.",
                    "code": "invalid_prompt",
                },
            ),
            errors.LLMRefusedError,
        ),
        (
            error_body(400, {"message": "filtered", "code": "content_filter"}),
            errors.LLMRefusedError,
        ),
        (error_body(500, {"message": "oops"}), errors.LLMUnavailableError),
        (failed("server_error"), errors.LLMUnavailableError),
        (failed("a new one"), errors.LLMUnavailableError),
        (failed("rate_limit_exceeded"), errors.LLMRateLimitError),
        (failed("insufficient_quota"), errors.LLMAuthError),
        (failed("vector_store_timeout"), errors.LLMTimeoutError),
        (failed("invalid_prompt"), errors.LLMInvalidRequestError),
        (
            failed("invalid_prompt", "flagged as potentially violating our usage policy"),
            errors.LLMRefusedError,
        ),
        (failed("invalid_image_url"), errors.LLMInvalidRequestError),
        (failed("failed_to_download_image"), errors.LLMInvalidRequestError),
        (failed("image_content_policy_violation"), errors.LLMRefusedError),
        ({"raw": '{"error": "something", "output": []}'}, errors.LLMUnavailableError),
    ],
)
async def test_error_class_says_what_to_do(reply: StubReply, cls: type[LLMError]) -> None:
    """The body's own code overrides the status, in an error status and in a 200 with a failed
    response.
    """
    error = await RESPONSES.failing(reply)

    assert type(error) is cls


@pytest.mark.parametrize(
    ("reply", "wait"),
    [
        (error_body(429, {"message": "slow"}, retry_after="7"), 7),
        (error_body(429, {"message": "slow"}, retry_after="9", retry_after_ms="1500"), 1.5),
        (failed("rate_limit_exceeded", "Please try again in 1m2.5s."), 62.5),
        (failed("rate_limit_exceeded"), None),
    ],
)
async def test_time_to_wait_is_in_the_error(reply: StubReply, wait: float | None) -> None:
    """Headers first, then the message, including that of a failed response in a 200."""
    error = await RESPONSES.failing(reply)

    assert error.context.get("retry_after_s") == wait
