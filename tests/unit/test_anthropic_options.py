"""Request options in the messages API: the exact body, and a stop at a requested sequence."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from perdure import errors
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import Anthropic
from perdure.activities.providers.anthropic import body_of
from perdure.testing.stub_provider import StubProvider
from perdure.values.budgets import Remaining
from perdure.values.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from perdure.values.options import RequestOptions
from perdure.values.reports import StopReason

from ..support.loopback import ADD, ANTHROPIC, HELLO

SENT = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
}
TOOLS = [{"name": "add", "description": "Add.", "input_schema": ADD.parameters}]


def asking(tools: bool = False, budget: Remaining | None = None, **options: Any) -> ModelRequest:
    """A request with these options."""
    return replace(
        HELLO, tools=(ADD,) if tools else (), options=RequestOptions(**options), budget=budget
    )


async def test_every_option_is_in_the_body() -> None:
    """With the names of this API; the limit of the options overrides the provider's; `extra` is
    added.
    """
    request = asking(
        tools=True,
        temperature=0,
        max_output_tokens=500,
        stop_sequences=("\n\nB", "END"),
        tool_choice="required",
        extra={"top_k": 7},
    )
    with StubProvider([{"text": "hi"}]) as stub:
        provider = Anthropic(base_url=stub.anthropic_url, api_key_env=None, max_output_tokens=9)
        await provider.complete(request)
        await provider.close()

    assert stub.requests == [
        {
            **SENT,
            "max_tokens": 500,
            "tools": TOOLS,
            "tool_choice": {"type": "any"},
            "temperature": 0,
            "stop_sequences": ["\n\nB", "END"],
            "top_k": 7,
        }
    ]


def test_options_that_say_nothing_are_not_sent() -> None:
    """The provider's own defaults apply; an explicit empty list of stop sequences is sent as
    none.
    """
    assert body_of(asking(tools=True, stop_sequences=()), 9) == {**SENT, "tools": TOOLS}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        ("none", {"type": "none"}),
        ("add", {"type": "tool", "name": "add"}),
    ],
)
def test_tool_choice_is_sent_in_the_words_of_the_api(choice: str, sent: object) -> None:
    """`required` is `any` here."""
    assert body_of(asking(tools=True, tool_choice=choice), 9) == {
        **SENT,
        "tools": TOOLS,
        "tool_choice": sent,
    }


@pytest.mark.parametrize("choice", ["auto", "required", "none", "add"])
def test_tool_choice_without_tools_is_not_sent(choice: str) -> None:
    """The API refuses one; a last answer is requested without tools."""
    assert body_of(asking(tool_choice=choice), 9) == SENT


@pytest.mark.parametrize("choice", [None, "required", "add"])
def test_calls_of_earlier_turns_cannot_be_chosen(choice: str | None) -> None:
    """Their tools are declared only because the API requires it."""
    call = ToolCall(id="c1", name="add")
    messages = (UserMessage.of("2?"), AssistantMessage(parts=(call,)), ToolMessage.of(call, "2"))

    body = body_of(
        ModelRequest(model="m", messages=messages, options=RequestOptions(tool_choice=choice)), 9
    )

    assert body["tool_choice"] == {"type": "none"}


async def test_choice_of_a_tool_that_is_not_offered_is_refused_before_a_request() -> None:
    """The error lists the available tools, and nothing is charged."""
    with (
        StubProvider([{"text": "hi"}]) as stub,
        pytest.raises(errors.LLMInvalidRequestError) as caught,
    ):
        await ANTHROPIC.ask(stub.anthropic_url, asking(tools=True, tool_choice="sub"))

    assert (
        caught.value.message
        == "tool_choice 'sub' is none of auto, required, none and the tools: add"
    )
    assert (stub.requests, caught.value.context) == ([], {"model": "m"})


def test_extra_stands_in_place_of_our_fields_and_is_not_merged_deeper() -> None:
    """It is applied last, and replaces a whole field."""
    extra = {
        "max_tokens": 2,
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "adaptive"},
    }

    body = body_of(asking(tools=True, tool_choice="add", max_output_tokens=500, extra=extra), 9)

    assert body == {**SENT, "tools": TOOLS, **extra}


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"stream": True}, "start the turn with live=True"),
        (
            {"max_tokens": 100_000, "system": "x"},
            "extra sets max_tokens, system, which a budget's reservation is computed from",
        ),
    ],
)
async def test_extra_that_is_unreadable_or_beyond_the_budget_is_refused_before_a_request(
    extra: dict[str, Any], says: str
) -> None:
    """A stream cannot be read here, and only the reserved limit is paid for."""
    with (
        StubProvider([{"text": "hi"}]) as stub,
        pytest.raises(errors.LLMInvalidRequestError, match=says),
    ):
        await ANTHROPIC.ask(
            stub.anthropic_url, asking(budget=Remaining(usd=Decimal(1)), extra=extra)
        )

    assert stub.requests == []


async def test_stop_at_a_sequence_is_told() -> None:
    """This API reports which one; the chat completions API does not."""
    raw = (
        '{"content": [{"type": "text", "text": "one"}], "stop_reason": "stop_sequence",'
        ' "stop_sequence": "END"}'
    )

    answer = await ANTHROPIC.ask_served({"raw": raw}, asking(stop_sequences=("END",)))

    assert (answer.stop, answer.message.text) == (StopReason.STOP_SEQUENCE, "one")
