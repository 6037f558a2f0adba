"""Models of pydantic-ai as a provider, in this process: requests, answers and errors."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import Any, Self

import pytest
from pydantic import TypeAdapter
from pydantic_ai import exceptions as theirs
from pydantic_ai import messages as said
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers import Provider
from pydantic_ai.usage import RequestUsage

from perdure import errors
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import PydanticAI
from perdure.errors import LLMError
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
    with_unique_ids,
)
from perdure.values.options import RequestOptions
from perdure.values.reports import StopReason, Usage

from ..support.loopback import ADD, HELLO, KEY

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
HI = said.ModelResponse(parts=[said.TextPart("hi")])
CALLED = (
    UserMessage.of("2?"),
    AssistantMessage(parts=(ToolCall(id="c1", name="add", arguments='{"a": 2}'),)),
    ToolMessage(results=(ToolResult(call_id="c1", name="add", content="2"),)),
)


class Model:
    """A model that returns one response, or raises, and records its requests."""

    def __init__(self, response: said.ModelResponse | Exception = HI, **more: Any) -> None:
        self.response = response
        self.messages: list[said.ModelMessage] = []
        self.asked: list[AgentInfo] = []
        self.model = FunctionModel(self._answer, model_name="served", **more)

    def _answer(self, messages: list[said.ModelMessage], info: AgentInfo) -> said.ModelResponse:
        self.messages = messages
        self.asked.append(info)
        if isinstance(self.response, Exception):
            raise self.response
        return self.response

    async def ask(self, request: ModelRequest = HELLO) -> ModelAnswer:
        """One request."""
        provider = PydanticAI(self.model)
        try:
            return await provider.complete(request)
        finally:
            await provider.close()

    async def failing(self, request: ModelRequest = HELLO) -> errors.PerdureError:
        """The error of one request."""
        with pytest.raises(errors.PerdureError) as caught:
            await self.ask(request)
        return caught.value

    @property
    def info(self) -> AgentInfo:
        """The parameters of the last request."""
        return self.asked[-1]


async def sent(*messages: Message) -> list[list[Any]]:
    """The parts of each message in pydantic-ai's form."""
    model = Model()
    await model.ask(ModelRequest(model="m", messages=messages))
    return [list(message.parts) for message in model.messages]


def response(*parts: said.ModelResponsePart, **more: Any) -> said.ModelResponse:
    """A response with its usage."""
    return said.ModelResponse(
        **{"parts": parts, "usage": RequestUsage(input_tokens=10, output_tokens=5), **more}
    )


async def answer(*parts: said.ModelResponsePart, **more: Any) -> ModelAnswer:
    """The answer for a response."""
    return await Model(response(*parts, **more)).ask()


# Requests


async def test_conversation_is_sent_in_order() -> None:
    """Consecutive messages of users and tools are one request, errors are marked, and blank text is
    left out.
    """
    results = (
        ToolResult(call_id="c1", name="add", content="2"),
        ToolResult(call_id="c2", name="add", content="no", is_error=True),
    )
    first, second, third = await sent(
        UserMessage(parts=(Text(text="2?"), Text(text=" "))),
        AssistantMessage(
            parts=(
                Thinking(text="hm"),
                Text(text="\n"),
                ToolCall(id="c1", name="add", arguments="{"),
                ToolCall(id="c2", name="add"),
            )
        ),
        ToolMessage(results=results),
        UserMessage.of("Go on."),
    )

    assert [part.content for part in first] == ["2?"]
    assert second == [
        said.ThinkingPart("hm"),
        said.ToolCallPart("add", "{", "c1"),
        said.ToolCallPart("add", "{}", "c2"),
    ]
    assert [
        (part.tool_name, part.content, part.tool_call_id, part.outcome) for part in third[:2]
    ] == [("add", "2", "c1", "success"), ("add", "no", "c2", "failed")]
    assert third[2].content == "Go on."


async def test_media_are_sent_as_their_kinds() -> None:
    """Data as bytes, addresses as addresses; the adapter reports what its vendor does not
    accept.
    """
    data = base64.b64encode(b"GIF").decode()
    kinds = {
        "image/png": said.ImageUrl,
        "audio/mpeg": said.AudioUrl,
        "video/mp4": said.VideoUrl,
        "application/pdf": said.DocumentUrl,
    }
    urls = tuple(
        Media(media_type=kind, url=f"https://a.example/{index}") for index, kind in enumerate(kinds)
    )
    [[prompt]] = await sent(
        UserMessage(parts=(Text(text="See:"), Media(media_type="image/gif", data=data), *urls))
    )

    text, image, *rest = prompt.content
    assert (text, image.data, image.media_type) == ("See:", b"GIF", "image/gif")
    assert [(type(item), item.url, item.media_type) for item in rest] == [
        (kind, f"https://a.example/{index}", name)
        for index, (name, kind) in enumerate(kinds.items())
    ]


@pytest.mark.parametrize(
    "media", [Media(media_type="image/png"), Media(media_type="image/png", data="not base64!")]
)
async def test_media_that_cannot_be_sent_are_refused(media: Media) -> None:
    """Before any request."""
    model = Model()
    error = await model.failing(ModelRequest(model="m", messages=(UserMessage(parts=(media,)),)))

    assert (type(error), error.context["model"], model.asked) == (
        errors.LLMInvalidRequestError,
        "m",
        [],
    )


async def test_tools_and_system_prompt_are_sent_as_they_are() -> None:
    """One instruction; names, descriptions and schemas as pinned."""
    model = Model()
    await model.ask(
        ModelRequest(model="m", messages=HELLO.messages, system="Be brief.", tools=(ADD,))
    )

    assert model.info.instructions == "Be brief."
    assert [
        (tool.name, tool.description, tool.parameters_json_schema)
        for tool in model.info.function_tools
    ] == [("add", "Add.", ADD.parameters)]


async def test_calls_of_earlier_turns_are_declared_and_ruled_out() -> None:
    """Some vendors refuse calls in a request without tools."""
    model = Model()
    await model.ask(ModelRequest(model="m", messages=(*CALLED, UserMessage.of("And now?"))))

    assert [tool.name for tool in model.info.function_tools] == ["add"]
    assert (model.info.model_settings or {})["tool_choice"] == "none"


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (RequestOptions(), {}),
        (
            RequestOptions(temperature=0, max_output_tokens=9, stop_sequences=("END",)),
            {"temperature": 0, "max_tokens": 9, "stop_sequences": ["END"]},
        ),
        (RequestOptions(tool_choice="required"), {"tool_choice": "required"}),
        (RequestOptions(tool_choice="add"), {"tool_choice": ["add"]}),
        (
            RequestOptions(temperature=1, extra={"temperature": 0.5, "thinking": "low"}),
            {"temperature": 0.5, "thinking": "low"},
        ),
    ],
)
async def test_options_become_settings(options: RequestOptions, settings: dict[str, Any]) -> None:
    """Unset options are not sent; `extra` comes last; retries of the vendor's library are turned
    off.
    """
    model = Model(profile=ModelProfile(supports_thinking=True))
    await model.ask(ModelRequest(model="m", messages=HELLO.messages, tools=(ADD,), options=options))

    told = {
        **(model.info.model_settings or {}),
        **(
            {"thinking": thinks} if (thinks := model.info.model_request_parameters.thinking) else {}
        ),
    }
    assert told == {"max_retries": 0, **settings}


async def test_library_that_cannot_be_told_to_try_once_is_not_told() -> None:
    """Bedrock's warns about unknown settings."""

    class Unruly(FunctionModel):
        unsupported_settings = frozenset({"max_retries"})

    asked: list[AgentInfo] = []

    def note(_: list[said.ModelMessage], info: AgentInfo) -> said.ModelResponse:
        asked.append(info)
        return HI

    await PydanticAI(Unruly(note)).complete(HELLO)

    assert not asked[0].model_settings


@pytest.mark.parametrize(
    "name",
    [
        "extra_body",
        "max_tokens",
        "openai_previous_response_id",
        "bedrock_additional_model_requests_fields",
        "max_retries",
    ],
)
async def test_extra_may_not_break_a_reservation(name: str) -> None:
    """With a budget of money or tokens; without one it is the caller's responsibility."""
    request = ModelRequest(
        model="m", messages=HELLO.messages, options=RequestOptions(extra={name: 1})
    )
    limited = ModelRequest(
        model="m",
        messages=HELLO.messages,
        options=request.options,
        budget=Remaining(usd=Decimal(1)),
    )
    model = Model()

    await model.ask(request)
    error = await model.failing(limited)

    assert (type(error), len(model.asked)) == (errors.LLMInvalidRequestError, 1)
    assert name in error.message


async def test_ids_of_calls_are_made_to_fit() -> None:
    """Mistral requires nine letters and digits; a call and its result keep the same id, and a valid
    one is unchanged.
    """
    model = Model(profile=ModelProfile(tool_call_id_length=9))
    calls = (ToolCall(id="toolu_01A", name="add"), ToolCall(id="abcDEF123", name="add"))
    results = tuple(ToolResult(call_id=call.id, name="add", content="2") for call in calls)
    await model.ask(
        ModelRequest(
            model="m",
            messages=(*HELLO.messages, AssistantMessage(parts=calls), ToolMessage(results=results)),
            tools=(ADD,),
        )
    )

    first, second = [
        [str(vars(part)["tool_call_id"]) for part in message.parts]
        for message in model.messages[1:]
    ]
    assert first == second
    assert first[1] == "abcDEF123"
    assert len(first[0]) == 9
    assert first[0].isalnum()


# Typed answers


@pytest.mark.parametrize(
    ("profile", "request_", "mode"),
    [
        (ModelProfile(supports_json_schema_output=True), {}, "native"),
        (ModelProfile(supports_json_schema_output=True), {"tools": (ADD,)}, "text"),
        (ModelProfile(supports_json_schema_output=True), {"messages": CALLED}, "tool"),
        (ModelProfile(), {}, "tool"),
        (ModelProfile(), {"tools": (ADD,)}, "text"),
    ],
    ids=["native", "beside tools", "after calls", "as a tool", "as a tool, beside tools"],
)
async def test_schema_is_asked_for_as_the_model_can(
    profile: ModelProfile, request_: dict[str, Any], mode: str
) -> None:
    """Natively or by a tool that must be called, and never so that other tools could not be
    called.
    """
    call = said.ToolCallPart("answer", {"n": 3}) if mode == "tool" else said.TextPart('{"n": 3}')
    model = Model(response(call), profile=profile)
    got = await model.ask(
        ModelRequest(
            **{"model": "m", "messages": HELLO.messages, "response_schema": SCHEMA, **request_}
        )
    )

    asked = model.info.model_request_parameters
    schemas = [tool.parameters_json_schema for tool in asked.output_tools] + (
        [asked.output_object.json_schema] if asked.output_object else []
    )
    assert (asked.output_mode, schemas, asked.allow_text_output) == (
        mode,
        [SCHEMA] if mode != "text" else [],
        mode != "tool",
    )
    assert (json.loads(got.message.text), got.message.calls, got.stop) == (
        {"n": 3},
        (),
        StopReason.END,
    )


# Answers

DETAILS = {"thought_signature": "EqMB", "n": [1, None]}
SIGNED = response(
    said.ThinkingPart("Add ü.", id="t1", signature="EqkB", provider_name="google"),
    said.TextPart("Let me add.", provider_name="google", provider_details=DETAILS),
    said.ToolCallPart(
        "add",
        {"a": 2},
        "c1",
        provider_name="google",
        provider_details={"thought_signature": "EqMC"},
    ),
    said.TextPart("", provider_name="google", provider_details={"thought_signature": "EqMD"}),
    provider_name="google",
    provider_url="https://a.example",
    canonical_system="google",
    provider_response_id="r1",
)


async def back(message: AssistantMessage) -> said.ModelResponse:
    """An answer as part of the next request, after a round trip through history."""
    history = TypeAdapter(AssistantMessage).validate_json(
        message.model_dump_json(exclude_none=True)
    )
    model = Model()
    await model.ask(ModelRequest(model="m", messages=(*HELLO.messages, history), tools=(ADD,)))
    found = model.messages[1]
    assert isinstance(found, said.ModelResponse)
    return found


@pytest.mark.accepts("M7")
async def test_signatures_and_details_go_back_unchanged() -> None:
    """For every part, with the model that signed it; people see thought and text."""
    got = await Model(SIGNED).ask()
    found = await back(got.message)

    assert [(type(part).__name__, getattr(part, "text", "")) for part in got.message.parts] == [
        ("Thinking", "Add ü."),
        ("Text", "Let me add."),
        ("ToolCall", ""),
        ("Text", ""),
        ("Thinking", ""),
    ]
    assert [*found.parts[:2], found.parts[3]] == [*SIGNED.parts[:2], SIGNED.parts[3]]
    assert found.parts[2] == said.ToolCallPart(
        "add",
        '{"a": 2}',
        "c1",
        provider_name="google",
        provider_details={"thought_signature": "EqMC"},
    )
    assert [
        getattr(found, name)
        for name in ("provider_name", "provider_url", "canonical_system", "provider_response_id")
    ] == ["google", "https://a.example", "google", "r1"]


async def test_call_with_another_id_keeps_its_signature() -> None:
    """A turn assigns ids to calls without one, or with a duplicate."""
    got = await Model(SIGNED).ask()
    found = await back(with_unique_ids(got.message, {"c1"}, "x"))

    call = found.parts[2]
    assert isinstance(call, said.ToolCallPart)
    assert (call.tool_call_id, call.provider_details) == ("x_1", {"thought_signature": "EqMC"})


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: (*parts[:1], *parts[2:]),
        lambda parts: tuple(part for part in parts if not isinstance(part, Thinking)),
        lambda parts: (*parts[:-1], Thinking(text="", signature="EqkB")),
        lambda parts: (*parts[:-1], Thinking(text="", signature='{"parts": 1}')),
    ],
    ids=["a part is gone", "for another model", "another vendor's", "nonsense"],
)
async def test_what_does_not_fit_any_more_stays_out(
    change: Callable[[tuple[Any, ...]], tuple[Any, ...]],
) -> None:
    """Text and calls are still sent."""
    got = await Model(SIGNED).ask()
    found = await back(AssistantMessage(parts=change(got.message.parts)))

    assert [part.tool_name for part in found.tool_calls] == ["add"]
    assert not any(
        part.provider_details
        for part in found.parts
        if isinstance(part, said.TextPart | said.ToolCallPart)
    )


async def test_answer_without_signatures_is_words_and_calls_alone() -> None:
    """Without provider details nothing is added; files and the vendor's own tools are not part of a
    transcript.
    """
    file = said.FilePart(
        said.BinaryContent(data=b"GIF", media_type="image/gif"),
        provider_name="google",
        provider_details=DETAILS,
    )
    own = said.NativeToolCallPart("web_search", {"query": "x"}, provider_name="google")
    got = await answer(
        said.ThinkingPart("hm", provider_name="groq"),
        own,
        file,
        said.TextPart(""),
        said.TextPart("hi"),
        provider_name="groq",
    )

    assert got.message.parts == (Thinking(text="hm"), Text(text="hi"))


async def test_answer_is_clean() -> None:
    """Half a character, which no encoder accepts, is replaced."""
    got = await answer(said.TextPart("a\ud800"), said.ToolCallPart("add", '{"a": "\ud800"}', "c1"))

    assert got.message.parts == (
        Text(text="a?"),
        ToolCall(id="c1", name="add", arguments='{"a": "?"}'),
    )


@pytest.mark.parametrize(
    ("reason", "raw", "parts", "stop"),
    [
        ("stop", "STOP", [said.TextPart("hi")], StopReason.END),
        ("stop", "stop_sequence", [said.TextPart("hi")], StopReason.STOP_SEQUENCE),
        ("tool_call", "tool_calls", [said.ToolCallPart("add")], StopReason.TOOL_CALLS),
        ("stop", "STOP", [said.ToolCallPart("add")], StopReason.TOOL_CALLS),
        ("length", "MAX_TOKENS", [said.ToolCallPart("add")], StopReason.MAX_TOKENS),
        ("content_filter", "SAFETY", [], StopReason.REFUSED),
        (None, "a new one", [said.TextPart("hi")], StopReason.END),
        (None, None, [said.ToolCallPart("add")], StopReason.TOOL_CALLS),
    ],
)
async def test_stop_reason_is_told(
    reason: Any, raw: str | None, parts: list[said.ModelResponsePart], stop: StopReason
) -> None:
    """In our terms, for every vendor."""
    got = await answer(
        *parts, finish_reason=reason, provider_details={"finish_reason": raw} if raw else None
    )

    assert got.stop is stop


@pytest.mark.accepts("M6")
@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (
            RequestUsage(
                input_tokens=100, output_tokens=5, cache_read_tokens=60, cache_write_tokens=30
            ),
            Usage(input_tokens=100, output_tokens=5, cache_read_tokens=60, cache_write_tokens=30),
        ),
        (RequestUsage(input_tokens=-1, output_tokens=5), Usage(output_tokens=5)),
        (RequestUsage(input_tokens=10, output_tokens=10**10), Usage(input_tokens=10)),
    ],
    ids=["cached", "negative", "absurd"],
)
async def test_usage_is_told_by_one_measure(told: RequestUsage, usage: Usage) -> None:
    """Input with cached tokens; an impossible number is not reported."""
    got = await answer(said.TextPart("hi"), usage=told)

    assert (got.usage, got.model) == (usage, "served")


@pytest.mark.parametrize(
    "more", [{"finish_reason": "error"}, {"state": "suspended"}, {"state": "interrupted"}]
)
async def test_answer_that_was_broken_off_is_none(more: dict[str, Any]) -> None:
    """It was billed, with the usage that it reported."""
    error = await Model(response(said.TextPart("h"), **more)).failing()

    assert type(error) is errors.LLMUnavailableError
    assert (error.context["charged"], error.context["usage"]) == (
        True,
        Usage(input_tokens=10, output_tokens=5).model_dump(),
    )


# Streams


async def heard_of(
    model: FunctionModel | TestModel, request: ModelRequest = HELLO
) -> tuple[ModelAnswer, list[str]]:
    """The answer to a streamed request, and its stream."""
    heard: list[str] = []
    return await PydanticAI(model).stream(request, heard.append), heard


async def test_words_of_a_stream_are_heard() -> None:
    """And together they are the answer."""

    async def speak(_: list[said.ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        for word in ("All ", "is ", "well."):
            yield word

    got, heard = await heard_of(FunctionModel(stream_function=speak))

    assert heard == ["All ", "is ", "well."]
    assert got.message.parts == (Text(text="All is well."),)


async def test_calls_of_a_stream_are_not_heard() -> None:
    """They are in the answer."""

    async def call(
        _: list[said.ModelMessage], __: AgentInfo
    ) -> AsyncIterator[dict[int, DeltaToolCall]]:
        yield {0: DeltaToolCall(name="add", json_args='{"a": ', tool_call_id="c1")}
        yield {0: DeltaToolCall(json_args="2}")}

    got, heard = await heard_of(
        FunctionModel(stream_function=call),
        ModelRequest(model="m", messages=HELLO.messages, tools=(ADD,)),
    )

    assert (got.message.parts, got.stop, heard) == (
        (ToolCall(id="c1", name="add", arguments='{"a": 2}'),),
        StopReason.TOOL_CALLS,
        [],
    )


async def test_answer_that_is_given_as_a_tool_is_not_heard() -> None:
    """Text before it is not the answer's text."""

    async def call(
        _: list[said.ModelMessage], __: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        yield "Here it is."
        yield {0: DeltaToolCall(name="answer", json_args='{"n": 3}')}

    got, heard = await heard_of(
        FunctionModel(stream_function=call, profile=ModelProfile()),
        ModelRequest(model="m", messages=HELLO.messages, response_schema=SCHEMA),
    )

    assert (got.message.text, heard) == ('{"n": 3}', [])


async def test_error_of_a_stream_is_typed() -> None:
    """The earlier text is void, and may have been billed."""

    async def fail(_: list[said.ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        yield "All "
        raise theirs.ModelConnectionError("m", KEY, phase="read")

    with pytest.raises(errors.LLMUnavailableError) as caught:
        await heard_of(FunctionModel(stream_function=fail))

    assert caught.value.context == {"model": "m", "charged": True}


class Far(Provider[None]):
    """A vendor reached by some transport."""

    name = "far"
    base_url = "https://far.example"
    client = None


class FarModel(FunctionModel):
    """A model of that vendor."""

    provider = Far()  # type: ignore[assignment]  # of a function pydantic-ai says that it has none


async def test_stream_that_ends_before_the_answer_is_an_error() -> None:
    """Every vendor sends a stop reason; the text so far is not a shorter answer."""

    async def speak(_: list[said.ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        yield "All "

    with pytest.raises(
        errors.LLMUnavailableError, match="the stream ended before the answer did"
    ) as caught:
        await heard_of(FarModel(stream_function=speak))

    assert caught.value.context == {"model": "m", "charged": True}


async def test_test_model_of_pydantic_ai_answers() -> None:
    """It calls every tool, and then answers."""
    provider = PydanticAI(TestModel())
    first = await provider.complete(ModelRequest(model="m", messages=HELLO.messages, tools=(ADD,)))
    result = ToolMessage.of(first.message.calls[0], "5")
    second = await provider.complete(
        ModelRequest(model="m", messages=(*HELLO.messages, first.message, result), tools=(ADD,))
    )

    assert [call.name for call in first.message.calls] == ["add"]
    assert second.message.text == '{"add":"5"}'


# Errors


def status(
    code: int, body: object = None, category: Any = None, **more: Any
) -> theirs.ModelHTTPError:
    """The adapters' error for a status."""
    return theirs.ModelHTTPError.for_category(
        category, status_code=code, model_name="m", body=body, **more
    )


class NoCredentialsError(Exception):
    """As AWS's library has it."""


@pytest.mark.parametrize(
    ("exception", "cls", "charged"),
    [
        (status(401, category=theirs.ModelAuthenticationError), errors.LLMAuthError, False),
        (status(400, {"error": {"message": "API key not valid."}}), errors.LLMAuthError, False),
        (status(429, category=theirs.ModelQuotaExceededError), errors.LLMAuthError, False),
        (status(429, category=theirs.ModelRateLimitError), errors.LLMRateLimitError, False),
        (status(529, category=theirs.ModelOverloadedError), errors.LLMUnavailableError, False),
        (status(500, category=theirs.ModelServerError), errors.LLMUnavailableError, False),
        (status(504, category=theirs.ModelServerError), errors.LLMTimeoutError, False),
        (status(408), errors.LLMTimeoutError, False),
        (status(404, category=theirs.ModelNotFoundError), errors.LLMInvalidRequestError, False),
        (
            status(400, category=theirs.ModelContextWindowExceededError),
            errors.LLMInvalidRequestError,
            False,
        ),
        (status(400, {"code": "tool_use_failed"}), errors.LLMUnavailableError, False),
        (
            status(400, {"error": {"code": "content_filter"}}, theirs.ModelRequestRejectedError),
            errors.LLMRefusedError,
            False,
        ),
        (
            status(
                403, {"message": "It violates usage guidelines."}, theirs.ModelAuthenticationError
            ),
            errors.LLMRefusedError,
            False,
        ),
        (
            status(529, category=theirs.ModelOverloadedError, in_stream=True),
            errors.LLMUnavailableError,
            True,
        ),
        (
            theirs.ModelConnectionError("m", "no", phase="connect"),
            errors.LLMUnavailableError,
            False,
        ),
        (theirs.ModelConnectionError("m", "no", phase="read"), errors.LLMUnavailableError, True),
        (theirs.ModelConnectionError("m", "no"), errors.LLMUnavailableError, True),
        (theirs.ModelTimeoutError("m", "no", phase="connect"), errors.LLMTimeoutError, False),
        (theirs.ModelTimeoutError("m", "no", phase="read"), errors.LLMTimeoutError, True),
        (theirs.ModelRequestTimeout("m", 1), errors.LLMTimeoutError, True),
        (theirs.ModelAPIError("m", "no JSON"), errors.LLMUnavailableError, True),
        (theirs.UnexpectedModelBehavior("odd"), errors.LLMUnavailableError, True),
        (theirs.ContentFilterError("no"), errors.LLMRefusedError, True),
        (theirs.UserError("no such image"), errors.LLMInvalidRequestError, False),
        (NotImplementedError("no audio"), errors.LLMInvalidRequestError, False),
        (NoCredentialsError(), errors.LLMAuthError, False),
        (ZeroDivisionError(), errors.LLMUnavailableError, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_exception_becomes_the_error_that_says_what_to_do(
    exception: Exception, cls: type[LLMError], charged: bool
) -> None:
    """And whether it may have been billed."""
    error = await Model(exception).failing()

    assert type(error) is cls
    assert (bool(error.context.get("charged")), error.context["model"]) == (charged, "m")


@pytest.mark.parametrize(
    ("exception", "message"),
    [
        (
            status(400, {"error": {"message": "messages: too long"}}),
            "m: messages: too long (status 400)",
        ),
        (
            status(
                404, {"Error": {"Message": "no such model", "Code": "ResourceNotFoundException"}}
            ),
            "m: no such model (status 404)",
        ),
        (status(400, {"message": f"not with {KEY}"}), "m: not with [key] (status 400)"),
        (
            status(401, {"message": f"not with {KEY}"}),
            "m: the key or the account is not accepted (status 401)",
        ),
        (status(400, '{"detail": "no such role"}'), "m: no such role (status 400)"),
        (status(400, "<html>"), "m: no reason given (status 400)"),
        (
            theirs.ModelConnectionError("m", f"Illegal header value b'{KEY}'"),
            "m: the connection broke before the reply was complete",
        ),
        (theirs.UserError(f"bad {KEY}"), "m: bad [key]"),
        (ValueError(KEY), "m: the vendor's library failed (ValueError)"),
    ],
)
async def test_no_key_is_in_an_error(
    monkeypatch: pytest.MonkeyPatch, exception: Exception, message: str
) -> None:
    """Neither in its text nor in its causes; the vendor's message is kept if it helps."""
    monkeypatch.setenv("VENDOR_API_KEY", f"{KEY}\n")
    error = await Model(exception).failing()

    assert error.message == message
    assert (error.__cause__, error.__context__) == (None, None)


@pytest.mark.parametrize(
    ("exception", "seconds"),
    [
        (status(429, category=theirs.ModelRateLimitError, retry_after=2.5), 2.5),
        (status(529, headers={"Retry-After": "3"}), 3.0),
        (status(429, {"error": {"details": [{"retryDelay": "7s"}]}}), 7.0),
        (status(429, retry_after=1e300), 86_400.0),
        (status(400, retry_after=2.5), None),
    ],
)
async def test_wish_to_wait_is_kept_where_waiting_helps(
    exception: Exception, seconds: float | None
) -> None:
    """In seconds, wherever the vendor puts it."""
    error = await Model(exception).failing()

    assert error.context.get("retry_after_s") == seconds


# Models by name, and loading the library


async def test_connections_are_opened_once_and_closed() -> None:
    """Even with many concurrent requests; a later request opens them again."""
    noted: list[str] = []

    class Noted(FunctionModel):
        async def __aenter__(self) -> Self:
            noted.append("open")
            return self

        async def __aexit__(self, *_: object) -> None:
            noted.append("closed")

    provider = PydanticAI(Noted(lambda messages, info: HI))
    await asyncio.gather(provider.complete(HELLO), provider.complete(HELLO))
    await provider.close()
    await provider.complete(HELLO)
    await provider.close()

    assert noted == ["open", "closed", "open", "closed"]


@pytest.mark.parametrize("models", ["nobody", "google"])
async def test_model_that_cannot_be_made_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, models: str
) -> None:
    """An unknown name; a vendor's library that is not installed, or a missing key."""
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(errors.ConfigurationError):
        await PydanticAI(models).complete(HELLO)


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python to its end."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_library_is_loaded_with_the_first_request() -> None:
    """Building the provider, or importing a worker's module, does not load it."""
    code = (
        "import sys, perdure.providers\nfrom perdure.worker import AgentWorker\n"
        "perdure.providers.PydanticAI('google')\nsys.exit('pydantic_ai' in sys.modules)"
    )

    assert run(code).returncode == 0


@pytest.mark.slow
def test_missing_library_is_said_with_what_to_install() -> None:
    """When the provider is built, which is before the worker starts."""
    code = (
        "import sys\nsys.modules['pydantic_ai'] = None\nfrom perdure.activities.providers import"
        " PydanticAI\nPydanticAI('google')"
    )
    done = run(code)

    assert "ConfigurationError" in done.stderr
    assert 'pip install "perdure[pydantic-ai]"' in done.stderr
