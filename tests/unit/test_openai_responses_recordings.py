"""Recorded traffic of the responses API: our parser agrees with an independent one, and our
requests have the recorded form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perdure import errors
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import reasoning
from perdure.agents.definitions import ToolDefinition
from perdure.errors import LLMError
from perdure.testing.stub_provider import StubProvider
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from perdure.values.options import RequestOptions
from perdure.values.reports import StopReason, Usage

from ..support.loopback import ADD, RESPONSES
from ..support.recordings import Exchange, as_reply, recorded

CLASSES = {400: errors.LLMInvalidRequestError, 401: errors.LLMAuthError}
OURS = (
    "model",
    "instructions",
    "input",
    "tools",
    "tool_choice",
    "max_output_tokens",
    "temperature",
    "stream",
    "include",
    "store",
)


def is_answered(exchange: Exchange) -> bool:
    """Whether there is an answer: neither an error nor a background response."""
    return bool(
        exchange["response"]["status"] == 200 and exchange["response"]["body"]["status"] != "queued"
    )


def is_ours(exchange: Exchange) -> bool:
    """Whether it was answered and one of our agents could have sent it: its tools are functions,
    and it uses no server-side state.
    """
    asked = exchange["request"]["body"]
    return (
        is_answered(exchange)
        and not asked.get("previous_response_id")
        and all(tool["type"] == "function" for tool in asked.get("tools", ()))
    )


def of_type(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The items of this type in a recorded answer."""
    return [item for item in body["output"] if item["type"] == kind]


@pytest.mark.accepts("M5", "M6")
@pytest.mark.parametrize("exchange", list(recorded("responses", "/v1/responses")))
async def test_recorded_response_is_read_as_it_was_meant(exchange: Exchange) -> None:
    """Message, stop reason, usage and model of an answer; the class of an error, and of a
    background response.
    """
    response, body = exchange["response"], exchange["response"]["body"]
    if not is_answered(exchange):
        with pytest.raises(LLMError) as caught:
            await RESPONSES.ask_served(as_reply(response))

        assert type(caught.value) is CLASSES.get(response["status"], errors.LLMUnavailableError)
        assert (
            "was not finished" if response["status"] == 200 else body["error"]["message"]
        ) in caught.value.message
        return
    usage, calls = body["usage"], of_type(body, "function_call")

    answer = await RESPONSES.ask_served(as_reply(response))

    assert answer.message.text == "".join(
        part["text"] for item in of_type(body, "message") for part in item["content"]
    )
    assert [(call.id, call.name, call.arguments) for call in answer.message.calls] == [
        (call["call_id"], call["name"], call["arguments"]) for call in calls
    ]
    assert (answer.stop, answer.model) == (
        StopReason.TOOL_CALLS if calls else StopReason.END,
        body["model"],
    )
    assert answer.usage == Usage(
        input_tokens=usage["input_tokens"],
        output_tokens=usage["output_tokens"],
        cache_read_tokens=usage["input_tokens_details"]["cached_tokens"],
    )


def as_sent(item: dict[str, Any]) -> dict[str, Any] | None:
    """A recorded item as it has to be sent: complete reasoning unchanged, others without fields
    that refer to server-side state.
    """
    if item["type"] == "reasoning":
        return item if "encrypted_content" in item else None
    if item["type"] == "function_call":
        return {name: item[name] for name in ("type", "call_id", "name", "arguments")}
    words = [
        {"type": "output_text", "text": part["text"], "annotations": []} for part in item["content"]
    ]
    return {"type": "message", "role": "assistant", "content": words}


@pytest.mark.accepts("M7")
@pytest.mark.parametrize("exchange", list(recorded("responses", "/v1/responses", is_ours)))
async def test_recorded_answer_goes_back_as_it_came(exchange: Exchange) -> None:
    """Item by item, reasoning unchanged, each call followed by its result."""
    body = exchange["response"]["body"]
    answer = await RESPONSES.ask_served(as_reply(exchange["response"]))
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
        await RESPONSES.ask(stub.anthropic_url, ModelRequest(model="m", messages=messages))

    _, *said, last = stub.requests[0]["input"]
    assert said == [
        *filter(None, map(as_sent, body["output"])),
        *(
            {"type": "function_call_output", "call_id": call["call_id"], "output": "done"}
            for call in of_type(body, "function_call")
        ),
    ]
    assert last == {"role": "user", "content": "Go on."}


def as_part(part: dict[str, Any]) -> Text | Media:
    """A recorded part of a user as one of ours."""
    return (
        Text(text=part["text"])
        if part["type"] == "input_text"
        else Media(media_type="image/png", url=part["image_url"])
    )


def as_messages(items: list[dict[str, Any]]) -> Iterator[Message]:
    """Recorded items as our messages."""
    for item in items:
        if item.get("type") == "function_call":
            yield AssistantMessage(
                parts=(
                    ToolCall(id=item["call_id"], name=item["name"], arguments=item["arguments"]),
                )
            )
        elif item.get("type") == "function_call_output":
            yield ToolMessage(
                results=(ToolResult(call_id=item["call_id"], name="tool", content=item["output"]),)
            )
        elif item.get("type") == "reasoning":
            thought = reasoning.thought_of(item)
            assert thought is not None
            yield AssistantMessage(parts=(thought,))
        elif item["role"] == "assistant":
            yield AssistantMessage(parts=(Text(text=item["content"]),))
        else:
            yield (
                UserMessage.of(item["content"])
                if isinstance(item["content"], str)
                else UserMessage(parts=tuple(map(as_part, item["content"])))
            )


def joined(messages: Iterator[Message]) -> Iterator[Message]:
    """Consecutive items of a model as one answer."""
    said: tuple[Any, ...] = ()
    for message in messages:
        if isinstance(message, AssistantMessage):
            said += message.parts
            continue
        if said:
            yield AssistantMessage(parts=said)
        said = ()
        yield message


def as_tool(tool: dict[str, Any]) -> ToolDefinition:
    """A recorded tool as one of ours."""
    return ADD.model_copy(
        update={
            "name": tool["name"],
            "description": tool["description"] or "",
            "parameters": tool["parameters"],
        }
    )


@pytest.mark.parametrize("exchange", list(recorded("responses", "/v1/responses", is_ours)))
async def test_we_ask_as_the_recorded_request_asked(exchange: Exchange) -> None:
    """Items, tools and options of an answered request have the same form when one of our agents
    sends it.
    """
    asked = exchange["request"]["body"]
    items = (
        [{"role": "user", "content": asked["input"]}]
        if isinstance(asked["input"], str)
        else asked["input"]
    )
    request = ModelRequest(
        model=asked["model"],
        system=asked.get("instructions", ""),
        messages=tuple(joined(as_messages(items))),
        tools=tuple(map(as_tool, asked.get("tools", ()))),
        options=RequestOptions(
            temperature=asked.get("temperature"),
            max_output_tokens=asked.get("max_output_tokens"),
            tool_choice=asked.get("tool_choice"),
            extra={name: value for name, value in asked.items() if name not in OURS},
        ),
    )

    with StubProvider([], then={"text": "ok"}) as stub:
        await RESPONSES.ask(stub.anthropic_url, request)

    sent = stub.requests[0]
    assert sent["input"] == [
        {name: value for name, value in item.items() if name != "id" or item["type"] == "reasoning"}
        for item in items
        if item.get("content") != ""
    ]
    assert [(tool["name"], tool["parameters"]) for tool in sent.get("tools", ())] == [
        (tool["name"], tool["parameters"]) for tool in asked.get("tools", ())
    ]
    rest = {
        name: value
        for name, value in sent.items()
        if name not in ("input", "tools", "store", "include")
    }
    assert rest == {
        name: value
        for name, value in asked.items()
        if value != "" and name not in ("input", "tools", "store", "include", "stream")
    }
    assert sent["store"] is False
