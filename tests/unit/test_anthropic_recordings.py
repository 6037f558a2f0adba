"""Recorded traffic of the messages API: our parser agrees with an independent one, and our requests
have the recorded form.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure import errors
from perdure.activities.provider import ModelRequest
from perdure.agents.definitions import ToolDefinition
from perdure.errors import LLMError
from perdure.testing.stub_provider import StubProvider
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Message,
    Text,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from perdure.values.options import RequestOptions
from perdure.values.reports import StopReason, Usage

from ..support.loopback import ADD, ANTHROPIC
from ..support.recordings import Exchange, as_reply, recorded

STOPS = {
    "end_turn": StopReason.END,
    "max_tokens": StopReason.MAX_TOKENS,
    "tool_use": StopReason.TOOL_CALLS,
}
CLASSES = {
    400: errors.LLMInvalidRequestError,
    401: errors.LLMAuthError,
    404: errors.LLMInvalidRequestError,
}


def succeeded(exchange: Exchange) -> bool:
    """Whether it was answered."""
    status: int = exchange["response"]["status"]
    return status == 200


def is_ours(exchange: Exchange) -> bool:
    """Whether it was answered and one of our agents could have sent it: its system prompt is not
    among its messages.
    """
    return succeeded(exchange) and all(
        message["role"] != "system" for message in exchange["request"]["body"]["messages"]
    )


def of_type(body: dict[str, Any], *types: str) -> list[dict[str, Any]]:
    """The blocks of these types in a recorded answer."""
    return [block for block in body["content"] if block["type"] in types]


def as_part(block: dict[str, Any]) -> Text | Media:
    """A recorded block of a user as one of ours."""
    if block["type"] == "text":
        return Text(text=block["text"])
    source = block["source"]
    return Media(
        media_type=source.get("media_type", "image/png"),
        data=source.get("data"),
        url=source.get("url"),
    )


def as_message(message: dict[str, Any]) -> Message:
    """A recorded message as one of ours."""
    content = (
        message["content"]
        if isinstance(message["content"], list)
        else [{"type": "text", "text": message["content"]}]
    )
    parts = tuple(as_part(block) for block in content)
    if message["role"] == "assistant":
        return AssistantMessage(parts=tuple(part for part in parts if isinstance(part, Text)))
    return UserMessage(parts=parts)


def as_tool(tool: dict[str, Any]) -> ToolDefinition:
    """A recorded tool as one of ours."""
    return ADD.model_copy(
        update={
            "name": tool["name"],
            "description": tool["description"],
            "parameters": tool["input_schema"],
        }
    )


def as_options(asked: dict[str, Any]) -> RequestOptions:
    """The options of a recorded request: known ones by their names, all others as `extra`."""
    choice = asked.get("tool_choice", {}).get("type")
    ours = ("model", "max_tokens", "messages", "system", "tools", "temperature", "tool_choice")
    return RequestOptions(
        temperature=asked.get("temperature"),
        max_output_tokens=asked["max_tokens"],
        tool_choice="required" if choice == "any" else choice,
        extra={name: value for name, value in asked.items() if name not in ours},
    )


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """A message with its content as blocks, as we always send it."""
    content = message["content"]
    return {
        "role": message["role"],
        "content": [{"type": "text", "text": content}] if isinstance(content, str) else content,
    }


@pytest.mark.accepts("M5", "M6")
@pytest.mark.parametrize("exchange", list(recorded("messages", "/v1/messages")))
async def test_recorded_response_is_read_as_it_was_meant(exchange: Exchange) -> None:
    """Message, stop reason, usage and model of an answer; the class of an error."""
    response, body = exchange["response"], exchange["response"]["body"]
    if response["status"] != 200:
        with pytest.raises(LLMError) as caught:
            await ANTHROPIC.ask_served(as_reply(response))

        assert type(caught.value) is CLASSES[response["status"]]
        assert body["error"]["message"] in caught.value.message
        return
    usage = body["usage"]
    read, written = (
        usage.get("cache_read_input_tokens", 0),
        usage.get("cache_creation_input_tokens", 0),
    )

    answer = await ANTHROPIC.ask_served(as_reply(response))

    assert answer.message.text == "".join(block["text"] for block in of_type(body, "text"))
    assert [(call.id, call.name, json.loads(call.arguments)) for call in answer.message.calls] == [
        (block["id"], block["name"], block["input"]) for block in of_type(body, "tool_use")
    ]
    assert (answer.stop, answer.model) == (STOPS[body["stop_reason"]], body["model"])
    assert answer.usage == Usage(
        input_tokens=usage["input_tokens"] + read + written,
        output_tokens=usage["output_tokens"],
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


@pytest.mark.accepts("M7")
@pytest.mark.parametrize("exchange", list(recorded("messages", "/v1/messages", succeeded)))
async def test_recorded_answer_goes_back_as_it_came(exchange: Exchange) -> None:
    """Each block unchanged, thinking with its signature, each call followed by its result; only
    blank text is left out.
    """
    body = exchange["response"]["body"]
    answer = await ANTHROPIC.ask_served(as_reply(exchange["response"]))
    results = tuple(
        ToolResult(call_id=call.id, name=call.name, content="done") for call in answer.message.calls
    )
    messages = (
        UserMessage.of("hello"),
        answer.message,
        ToolMessage(results=results),
        UserMessage.of("Go on."),
    )

    with StubProvider([{}, {"text": "ok"}]) as stub:
        await ANTHROPIC.ask(stub.anthropic_url, ModelRequest(model="m", messages=messages))

    said, after = stub.requests[0]["messages"][1:]
    assert said["content"] == [
        {name: value for name, value in block.items() if name != "caller"}
        for block in body["content"]
        if block.get("text", "x").strip()
    ]
    assert [block["tool_use_id"] for block in after["content"][:-1]] == [
        block["id"] for block in of_type(body, "tool_use")
    ]


@pytest.mark.parametrize("exchange", list(recorded("messages", "/v1/messages", is_ours)))
async def test_we_ask_as_the_recorded_request_asked(exchange: Exchange) -> None:
    """Messages, tools and options of an answered request have the same form when one of our agents
    sends it.
    """
    asked = exchange["request"]["body"]
    system = asked.get("system", "")
    request = ModelRequest(
        model=asked["model"],
        system=system
        if isinstance(system, str)
        else "\n\n".join(block["text"] for block in system),
        messages=tuple(as_message(message) for message in asked["messages"]),
        tools=tuple(as_tool(tool) for tool in asked.get("tools", ())),
        options=as_options(asked),
    )

    with StubProvider([{"text": "ok"}]) as stub:
        await ANTHROPIC.ask(stub.anthropic_url, request)

    sent = stub.requests[0]
    assert sent == {
        **asked,
        "messages": [plain(message) for message in asked["messages"]],
        **({"system": sent["system"]} if system else {}),
    }
