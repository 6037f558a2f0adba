"""Request options in the chat completions API: the exact body."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from perdure import errors
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import OpenAIChat
from perdure.activities.providers.openai_chat import body_of, limit_field_of
from perdure.testing.stub_provider import StubProvider
from perdure.values.budgets import Remaining
from perdure.values.messages import UserMessage
from perdure.values.options import RequestOptions

from ..support.loopback import ADD, HELLO, OPENAI
from ..support.recordings import Exchange, recorded

SENT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "add", "description": "Add.", "parameters": ADD.parameters},
    }
]
OURS = ("temperature", "max_tokens", "stop", "tool_choice")


def asking(tools: bool = False, budget: Remaining | None = None, **options: Any) -> ModelRequest:
    """A request with these options."""
    return replace(
        HELLO, tools=(ADD,) if tools else (), options=RequestOptions(**options), budget=budget
    )


async def test_every_option_is_in_the_body() -> None:
    """With the names of this API; `extra` is added."""
    request = asking(
        tools=True,
        temperature=0,
        max_output_tokens=500,
        stop_sequences=("\n\n", "END"),
        tool_choice="required",
        extra={"seed": 7, "user": None},
    )
    with StubProvider([{"text": "hi"}]) as stub:
        await OPENAI.ask(stub.anthropic_url, request)

    assert stub.requests == [
        {
            **SENT,
            "tools": TOOLS,
            "tool_choice": "required",
            "temperature": 0,
            "max_tokens": 500,
            "stop": ["\n\n", "END"],
            "seed": 7,
            "user": None,
        }
    ]


def test_options_that_say_nothing_are_not_sent() -> None:
    """The provider's own defaults apply; an explicit empty list of stop sequences is sent as
    none.
    """
    assert body_of(asking(tools=True, stop_sequences=())) == {**SENT, "tools": TOOLS}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ("add", {"type": "function", "function": {"name": "add"}}),
    ],
)
def test_tool_choice_is_sent_in_the_words_of_the_api(choice: str, sent: object) -> None:
    """A tool is named by an object."""
    assert body_of(asking(tools=True, tool_choice=choice)) == {
        **SENT,
        "tools": TOOLS,
        "tool_choice": sent,
    }


@pytest.mark.parametrize("choice", ["auto", "required", "none", "add"])
def test_tool_choice_without_tools_is_not_sent(choice: str) -> None:
    """The API refuses one; a last answer is requested without tools."""
    assert body_of(asking(tool_choice=choice)) == SENT


async def test_choice_of_a_tool_that_is_not_offered_is_refused_before_a_request() -> None:
    """The error lists the available tools, and nothing is charged."""
    with (
        StubProvider([{"text": "hi"}]) as stub,
        pytest.raises(errors.LLMInvalidRequestError) as caught,
    ):
        await OPENAI.ask(stub.anthropic_url, asking(tools=True, tool_choice="sub"))

    assert (
        caught.value.message
        == "tool_choice 'sub' is none of auto, required, none and the tools: add"
    )
    assert (stub.requests, caught.value.context) == ([], {"model": "m"})


def test_extra_stands_in_place_of_our_fields_and_is_not_merged_deeper() -> None:
    """It is applied last, and replaces a whole field."""
    request = asking(
        temperature=0.5,
        max_output_tokens=9,
        extra={"temperature": 1, "stop": "x", "messages": [], "stream": False},
    )

    assert body_of(request) == {
        "model": "m",
        "messages": [],
        "temperature": 1,
        "max_tokens": 9,
        "stop": "x",
        "stream": False,
    }


async def test_extra_that_asks_for_a_stream_is_refused_before_a_request() -> None:
    """It would be charged and could not be parsed."""
    with (
        StubProvider([{"text": "hi"}]) as stub,
        pytest.raises(errors.LLMInvalidRequestError, match="start the turn with live=True"),
    ):
        await OPENAI.ask(stub.anthropic_url, asking(extra={"stream": True}))

    assert stub.requests == []


@pytest.mark.parametrize("budget", [Remaining(usd=Decimal("0.5")), Remaining(tokens=1000)])
@pytest.mark.parametrize(
    "field", ["max_tokens", "max_completion_tokens", "n", "model", "messages", "tools"]
)
def test_extra_may_not_change_what_a_budget_was_reserved_for(field: str, budget: Remaining) -> None:
    """Otherwise the bill could exceed the budget."""
    with pytest.raises(
        errors.LLMInvalidRequestError,
        match=f"extra sets {field}, which a budget's reservation is computed from",
    ):
        body_of(asking(budget=budget, extra={field: 2, "seed": 7}))


@pytest.mark.parametrize("budget", [None, Remaining(time=timedelta(minutes=1), model_calls=3)])
def test_extra_may_set_any_limit_without_a_budget_of_money_or_tokens(
    budget: Remaining | None,
) -> None:
    """Then there is no reservation."""
    assert body_of(asking(budget=budget, extra={"max_tokens": 2})) == {**SENT, "max_tokens": 2}


@pytest.mark.parametrize(
    ("base_url", "field"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://API.OpenAI.com:443/v1/", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://customer.openai.azure.com/openai/v1", "max_completion_tokens"),
        ("https://api.mistral.ai/v1", "max_tokens"),
        ("https://notapi.openai.com.example/v1", "max_tokens"),
        ("https://myapi.openai.com/v1", "max_tokens"),
        ("http://127.0.0.1:11434/v1", "max_tokens"),
        ("http://[::1", "max_tokens"),
        ("", "max_tokens"),
    ],
)
def test_limit_is_called_what_the_server_calls_it(base_url: str, field: str) -> None:
    """OpenAI's reasoning models refuse the old name, other servers the new one."""
    assert limit_field_of(base_url) == field


async def test_name_of_the_limit_can_be_given() -> None:
    """A gateway to OpenAI's models has another host name."""
    with StubProvider([{"text": "hi"}]) as stub:
        provider = OpenAIChat(
            base_url=stub.base_url, api_key_env=None, limit_field="max_completion_tokens"
        )
        await provider.complete(asking(max_output_tokens=500))
        await provider.close()

    assert stub.requests == [{**SENT, "max_completion_tokens": 500}]


def has_options(exchange: Exchange) -> bool:
    """Whether a request was answered and has options that we know."""
    return exchange["response"]["status"] == 200 and any(
        field in exchange["request"]["body"] for field in OURS
    )


@pytest.mark.parametrize("exchange", list(recorded("chat", "/chat/completions", has_options)))
async def test_we_send_the_options_that_the_recorded_request_had(exchange: Exchange) -> None:
    """Known ones by their names, all others through `extra`: everything that an API has accepted
    can be sent.
    """
    asked = exchange["request"]["body"]
    extra = {
        name: value
        for name, value in asked.items()
        if name not in (*OURS, "model", "messages", "tools")
    }
    options = RequestOptions(
        temperature=asked.get("temperature"),
        max_output_tokens=asked.get("max_tokens"),
        tool_choice=asked.get("tool_choice"),
        extra=extra,
    )
    tools = tuple(
        ADD.model_copy(update={"name": tool["function"]["name"]}) for tool in asked.get("tools", ())
    )
    request = ModelRequest(
        model=asked["model"], messages=(UserMessage.of("hi"),), tools=tools, options=options
    )

    with StubProvider([{"text": "ok"}]) as stub:
        await OPENAI.ask(stub.anthropic_url, request)

    sent = stub.requests[0]
    assert {name: sent[name] for name in sent if name not in ("messages", "tools")} == {
        name: asked[name] for name in asked if name not in ("messages", "tools")
    }
