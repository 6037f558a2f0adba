"""Model calls without Temporal, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal

import pytest

from perdure import (
    AssistantMessage,
    RequestOptions,
    Text,
    ToolMessage,
    Usage,
    UserMessage,
    errors,
    tool,
)
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import Model, connect
from perdure.testing.stub_provider import StubProvider, said_in
from perdure.values.answers import ModelAnswer

from ..support.loopback import ANTHROPIC, KEY, OPENAI, VENDORS, Vendor

every_vendor = pytest.mark.parametrize("vendor", VENDORS)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def model_of(
    vendor: Vendor, stub: StubProvider, timeout: timedelta = timedelta(seconds=30)
) -> Model:
    """The model `m` of a vendor, served by the stub."""
    return connect(
        "vendor:m", providers={"vendor": vendor.make(stub.anthropic_url, None)}, timeout=timeout
    )


@every_vendor
async def test_question_is_answered(vendor: Vendor) -> None:
    """A string is a user message; the answer is the provider's."""
    with StubProvider([{"text": "30 days."}]) as stub:
        async with model_of(vendor, stub) as model:
            answer = await model.complete(
                "How long?", system="Be brief.", options=RequestOptions(temperature=0)
            )

    assert (answer.message.text, answer.usage, answer.model) == (
        "30 days.",
        Usage(input_tokens=10, output_tokens=5),
        "m",
    )
    assert "Be brief." in str(stub.requests[0])
    assert stub.requests[0]["temperature"] == 0


@every_vendor
async def test_conversation_with_a_tool_is_led_by_the_caller(vendor: Vendor) -> None:
    """A call is part of the answer; the caller runs the tool and sends the result with all earlier
    messages.
    """
    asked = UserMessage.of("2 + 3?")
    with StubProvider(
        [{"calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]}, {"text": "five"}]
    ) as stub:
        async with model_of(vendor, stub) as model:
            first = await model.complete([asked], tools=[add])
            result = ToolMessage.of(first.message.calls[0], str(add(2, 3)))
            second = await model.complete([asked, first.message, result], tools=[add])

    assert second.message.text == "five"
    assert said_in(stub.requests[1])[: len(said_in(stub.requests[0]))] == said_in(stub.requests[0])
    assert "Add two numbers." in str(stub.requests[0]["tools"])


@every_vendor
async def test_words_come_before_the_answer(vendor: Vendor) -> None:
    """In order and completely; the answer can be requested at any time."""
    with StubProvider([{"text": "Good morning, and how are you?", "pace_s": 0.02}]) as stub:
        async with model_of(vendor, stub) as model, model.stream("Hello") as stream:
            pieces = [piece async for piece in stream]
            answer = await stream.answer()
            again = [piece async for piece in stream]

    assert len(pieces) > 1
    assert "".join(pieces) == answer.message.text == "Good morning, and how are you?"
    assert (answer.usage, again) == (Usage(input_tokens=10, output_tokens=5), [])


@every_vendor
async def test_answer_of_a_stream_needs_no_listener(vendor: Vendor) -> None:
    """A caller may wait for the answer without reading the stream."""
    with StubProvider([{"text": "Good morning."}]) as stub:
        async with model_of(vendor, stub) as model, model.stream("Hello") as stream:
            answer = await stream.answer()

    assert answer.message.text == "Good morning."


@every_vendor
async def test_error_comes_as_its_class(vendor: Vendor) -> None:
    """There is one attempt, whole or streamed, and a reader of the stream gets the error at its
    end.
    """
    with StubProvider([{"status": 429}]) as stub:
        async with model_of(vendor, stub) as model:
            with pytest.raises(errors.LLMRateLimitError):
                await model.complete("Hello")
            async with model.stream("Hello") as stream:
                with pytest.raises(errors.LLMRateLimitError):
                    _ = [piece async for piece in stream]
                with pytest.raises(errors.LLMRateLimitError):
                    await stream.answer()

    assert len(stub.requests) == 2


@every_vendor
async def test_stream_that_is_left_is_given_up(vendor: Vendor) -> None:
    """The connection is closed, not read to its end."""
    with StubProvider([{"text": "word " * 200, "pace_s": 0.05}]) as stub:
        async with model_of(vendor, stub) as model, asyncio.timeout(5):
            async with model.stream("Hello") as stream:
                heard = await anext(stream)
            with pytest.raises(errors.InvalidRequestError):
                await stream.answer()

    assert heard


async def test_late_answer_is_an_error_that_may_have_been_billed() -> None:
    """It is unknown what the provider did in the meantime."""
    with StubProvider([{"text": "late", "delay_s": 1}]) as stub:
        async with model_of(OPENAI, stub, timedelta(milliseconds=50)) as model:
            with pytest.raises(errors.LLMTimeoutError) as caught:
                await model.complete("Hello")

    assert caught.value.context == {"model": "m", "charged": True}


class Whole:
    """A provider that cannot stream."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(
            message=AssistantMessage(parts=(Text(text="All "), Text(text="at once."))),
            usage=Usage(input_tokens=1, output_tokens=1),
        )

    async def close(self) -> None: ...


async def test_provider_that_cannot_stream_says_all_at_its_end() -> None:
    """The pieces add up to the text of the answer for any provider."""
    async with (
        connect("whole:m", providers={"whole": Whole()}) as model,
        model.stream("Hello") as stream,
    ):
        pieces = [piece async for piece in stream]

    assert pieces == ["All at once."]


async def test_stream_outside_of_its_block_is_a_typed_error() -> None:
    """Nothing would ever close it."""
    with pytest.raises(errors.InvalidRequestError, match="async with"):
        await connect("whole:m", providers={"whole": Whole()}).stream("Hello").answer()


async def test_key_and_address_come_from_the_environment_and_the_cost_from_the_price_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for workers: 10 tokens at 3 dollars per million, 5 at 15."""
    with StubProvider([{"text": "hi"}]) as stub:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", stub.anthropic_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        async with connect("anthropic:claude-sonnet-4-5") as model:
            answer = await model.complete("Hello")

    assert answer.cost == Decimal("0.000105")
    assert stub.headers[0]["x-api-key"] == KEY


async def test_usage_that_was_not_told_has_no_cost() -> None:
    """Unknown usage is not zero usage."""
    body = (
        '{"content": [{"type": "text", "text": "hi"}], "model": "claude-sonnet-4-5", "usage":'
        ' {"output_tokens": 5}}'
    )
    with StubProvider([{"raw": body}]) as stub:
        provider = ANTHROPIC.make(stub.anthropic_url, None)
        async with connect(
            "anthropic:claude-sonnet-4-5", providers={"anthropic": provider}
        ) as model:
            answer = await model.complete("Hello")

    assert (answer.usage, answer.cost) == (Usage(output_tokens=5), None)


def test_model_without_a_known_provider_is_refused() -> None:
    """Before any request."""
    with pytest.raises(errors.ConfigurationError, match="no provider named 'nobody'"):
        connect("nobody:m")
