"""Unusual JSON, and response bodies of every API that contain it, for a provider on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.activities.providers.anthropic import INVALID_ARGUMENTS
from perdure.testing.stub_provider import StubProvider, StubReply, said_in

ODD = {
    "surrogate": rb'"a\ud800b"',
    "nul": rb'"a\u0000b"',
    "infinite": b"1e999",
    "minus infinite": b"-Infinity",
    "nan": b"NaN",
    "big": b"1" + b"0" * 30,
    "negative": b"-5",
    "nested": b'{"a":' * 500 + b"1" + b"}" * 500,
}
"""Values that a body may hold where another one should be."""

UNREADABLE = {
    "huge": b"1" + b"0" * 5000,
    "deep list": b"[" * 100_000 + b"]" * 100_000,
    "deep object": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "bare nul": b'"a\0b"',
}
"""Values that no body may hold anywhere."""

USAGE = [
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
]


def usage(number: bytes) -> bytes:
    """A usage whose numbers all have this value."""
    return b"{" + b", ".join(b'"' + name.encode() + b'": ' + number for name in USAGE) + b"}"


@dataclass(frozen=True)
class Dialect:
    """How to write a response in a vendor's API. All arguments are JSON.

    Attributes:
        answer: Takes `text`, `calls`, `thinking`, `usage`, `stop` and `model`; the body of a 200.
        call: Takes `name`, `id` and `arguments`; a tool call in it.
        heard: The tool calls in a request: id, name, arguments and result of each.
    """

    answer: Callable[..., bytes]
    call: Callable[..., bytes]
    heard: Callable[[list[dict[str, Any]]], list[tuple[str, str, str, str]]]


def _completion(
    *,
    text: bytes = b'"hi"',
    calls: bytes = b"",
    thinking: bytes = b"null",
    usage: bytes = b"{}",
    stop: bytes = b'"stop"',
    model: bytes = b'"m"',
) -> bytes:
    message = b'{"content": %b, "tool_calls": [%b], "reasoning_content": %b}' % (
        text,
        calls,
        thinking,
    )
    return b'{"choices": [{"message": %b, "finish_reason": %b}], "usage": %b, "model": %b}' % (
        message,
        stop,
        usage,
        model,
    )


def _function_call(
    *,
    name: bytes = b'"weigh"',
    id: bytes = b'"c1"',
    arguments: bytes = b'"{}"',
) -> bytes:
    return b'{"id": %b, "function": {"name": %b, "arguments": %b}}' % (id, name, arguments)


def _of_completions(messages: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    results = {
        message["tool_call_id"]: message["content"]
        for message in messages
        if message["role"] == "tool"
    }
    return [
        (
            call["id"],
            call["function"]["name"],
            call["function"]["arguments"],
            results.pop(call["id"]),
        )
        for call in calls
    ]


def _message(
    *,
    text: bytes = b'"hi"',
    calls: bytes = b"",
    thinking: bytes = b"null",
    usage: bytes = b"{}",
    stop: bytes = b'"end_turn"',
    model: bytes = b'"m"',
) -> bytes:
    blocks = [
        b'{"type": "thinking", "thinking": %b, "signature": %b}' % (thinking, thinking),
        b'{"type": "text", "text": %b}' % text,
        calls,
    ]
    content = b", ".join(block for block in blocks if block)
    return b'{"content": [%b], "stop_reason": %b, "usage": %b, "model": %b}' % (
        content,
        stop,
        usage,
        model,
    )


# both APIs call this field `id`
def _tool_use(*, name: bytes = b'"weigh"', id: bytes = b'"c1"', arguments: bytes = b"{}") -> bytes:
    return b'{"type": "tool_use", "id": %b, "name": %b, "input": %b}' % (id, name, arguments)


def _of_messages(messages: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    blocks = [block for message in messages for block in message["content"]]
    results = {
        block["tool_use_id"]: block.get("content", "")
        for block in blocks
        if block["type"] == "tool_result"
    }
    return [
        (use["id"], use["name"], _as_text(use["input"]), results.pop(use["id"]))
        for use in blocks
        if use["type"] == "tool_use"
    ]


def _as_text(arguments: Mapping[str, Any]) -> str:
    """The model's text if it is the value of `invalid_arguments`, otherwise the arguments."""
    return (
        arguments[INVALID_ARGUMENTS]
        if INVALID_ARGUMENTS in arguments
        else json.dumps(arguments, ensure_ascii=False)
    )


def _response(
    *,
    text: bytes = b'"hi"',
    calls: bytes = b"",
    thinking: bytes = b"null",
    usage: bytes = b"{}",
    stop: bytes = b'"completed"',
    model: bytes = b'"m"',
) -> bytes:
    reasoning = b'{"type": "reasoning", "summary": [{"text": %b}], "encrypted_content": %b}' % (
        thinking,
        thinking,
    )
    message = b'{"type": "message", "content": [{"type": "output_text", "text": %b}]}' % text
    output = b", ".join(item for item in (reasoning, message, calls) if item)
    return b'{"output": [%b], "status": %b, "usage": %b, "model": %b}' % (
        output,
        stop,
        usage,
        model,
    )


def _function_call_item(
    *,
    name: bytes = b'"weigh"',
    id: bytes = b'"c1"',
    arguments: bytes = b'"{}"',
) -> bytes:
    return b'{"type": "function_call", "call_id": %b, "name": %b, "arguments": %b}' % (
        id,
        name,
        arguments,
    )


def _of_items(items: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    results = {
        item["call_id"]: item["output"]
        for item in items
        if item.get("type") == "function_call_output"
    }
    calls = [item for item in items if item.get("type") == "function_call"]
    return [
        (call["call_id"], call["name"], call["arguments"], results.pop(call["call_id"]))
        for call in calls
    ]


DIALECTS = {
    "openai": Dialect(_completion, _function_call, _of_completions),
    "openai-responses": Dialect(_response, _function_call_item, _of_items),
    "anthropic": Dialect(_message, _tool_use, _of_messages),
}


class Bodies(StubProvider):
    """Answers the first request of a turn with the reply for its task, and later ones with "done".

    Attributes:
        heard: The messages of every request, or the items of its input, by task.
    """

    def __init__(self, replies: Mapping[str, StubReply]) -> None:
        super().__init__([])
        self.heard: dict[str, list[list[dict[str, Any]]]] = {}
        self._by_task = replies

    def answer(
        self, body: dict[str, Any], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """The stub's answer; the request is recorded under its task."""
        self.heard.setdefault(_task_of(body), []).append(said_in(body))
        return super().answer(body, headers)

    def reply(self, body: Mapping[str, Any]) -> StubReply | None:
        """The reply for the task, or "done" if the request has the result of a call."""
        said = said_in(body)
        goes_on = any(
            one.get("role") == "assistant" or one.get("type") == "function_call" for one in said
        )
        return {"text": "done"} if goes_on else self._by_task[_task_of(body)]


def _task_of(body: Mapping[str, Any]) -> str:
    asked = next(message for message in said_in(body) if message.get("role") == "user")["content"]
    return asked if isinstance(asked, str) else str(asked[0]["text"])
