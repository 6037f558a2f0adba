"""Streams a whole reply as events in the format of each API, as documented and sent by the vendors.

It is written without the product's code, so that it can verify what the product assembles.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from perdure.testing.stub_replies import StubReply

PIECE_CHARACTERS = 7
"""The length of the pieces of text."""

OVERLOADED = {"message": "Overloaded"}

Body = Mapping[str, Any]


def served(reply: StubReply, body: Body, *, tells_usage: bool = True) -> Iterator[bytes]:
    """Yield the events of a scripted reply, as far as it is not cut off, or up to its error."""
    events, error = _stream(body, tells_usage)
    if "error_after" in reply:
        yield from islice(events, reply["error_after"])
        yield error
    else:
        yield from islice(events, reply.get("cut_after"))


def _stream(body: Body, tells_usage: bool) -> tuple[Iterator[bytes], bytes]:
    """Return the events, and the error event with which this API ends a stream prematurely."""
    if "choices" in body:
        return completion_events(body, tells_usage=tells_usage), _event(
            {"error": {**OVERLOADED, "type": "server_error", "code": 503}}
        )
    if "output" in body:
        return response_events(body), _named(
            {"type": "error", **OVERLOADED, "code": "server_error"}
        )
    return message_events(body), _named(
        {"type": "error", "error": {**OVERLOADED, "type": "overloaded_error"}}
    )


def completion_events(body: Body, *, tells_usage: bool = True) -> Iterator[bytes]:
    """Yield the events of chat completions: deltas, finish reason, usage, `[DONE]`."""
    head = {
        "id": body.get("id", "stub"),
        "object": "chat.completion.chunk",
        "model": body.get("model", ""),
    }
    for choice in body["choices"][:1]:
        for delta in ({"role": "assistant", "content": ""}, *_deltas(choice["message"])):
            yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        yield _event(
            {
                **head,
                "choices": [
                    {"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}
                ],
            }
        )
    if tells_usage:
        yield _event({**head, "choices": [], "usage": body.get("usage")})
    yield b"data: [DONE]\n\n"


def _deltas(message: Body) -> Iterator[dict[str, Any]]:
    for name in ("reasoning_content", "reasoning", "refusal"):
        yield from ({name: piece} for piece in _pieces(message.get(name) or ""))
    content = message.get("content") or ""
    chunks: list[dict[str, Any]] = (
        content if isinstance(content, list) else [{"type": "text", "text": content}]
    )
    for chunk in chunks:
        if chunk["type"] == "thinking":
            thought = "".join(part["text"] for part in chunk["thinking"])
            yield from (
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]}
                for piece in _pieces(thought)
            )
        else:
            yield from ({"content": piece} for piece in _pieces(chunk["text"]))
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        yield {
            "tool_calls": [
                {
                    "index": index,
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": function["name"], "arguments": ""},
                }
            ]
        }
        for piece in _pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def message_events(body: Body) -> Iterator[bytes]:
    """Yield the events of messages: start, ping, blocks with deltas, stop reason with usage."""
    usage = body.get("usage") or {}
    begun = {
        **body,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield _named({"type": "message_start", "message": begun})
    yield _named({"type": "ping"})
    for index, block in enumerate(body["content"]):
        empty, deltas = _opened(block)
        yield _named({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield _named({"type": "content_block_delta", "index": index, "delta": delta})
        yield _named({"type": "content_block_stop", "index": index})
    ended = {
        name: body.get(name)
        for name in ("stop_reason", "stop_sequence", "stop_details")
        if name in body
    }
    yield _named(
        {
            "type": "message_delta",
            "delta": ended,
            "usage": {"output_tokens": usage.get("output_tokens")},
        }
    )
    yield _named({"type": "message_stop"})


def _opened(block: Body) -> tuple[Body, Iterator[dict[str, Any]]]:
    """Return the start of a block and its deltas. A block of an unknown type is sent whole."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, (
                {"type": "text_delta", "text": piece} for piece in _pieces(block["text"])
            )
        case "thinking":
            return {**block, "thinking": "", "signature": ""}, _thinking(block)
        case "tool_use":
            pieces = _pieces(json.dumps(block["input"], ensure_ascii=False))
            return {**block, "input": {}}, (
                {"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)
            )
        case _:
            return block, iter(())


def _thinking(block: Body) -> Iterator[dict[str, Any]]:
    yield from (
        {"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])
    )
    yield {"type": "signature_delta", "signature": block.get("signature", "")}


def response_events(body: Body) -> Iterator[bytes]:
    """Yield the events of responses: each output item with its deltas, then the whole body."""
    begun = {**body, "status": "in_progress", "output": [], "usage": None}
    yield _named({"type": "response.created", "response": begun})
    for index, item in enumerate(body["output"]):
        position = {"output_index": index, "item_id": item.get("id", "")}
        yield _named(
            {
                "type": "response.output_item.added",
                **position,
                "item": {**item, "status": "in_progress"},
            }
        )
        for part in item.get("content") or () if item["type"] == "message" else ():
            kind, key = ("output_text", "text") if "text" in part else ("refusal", "refusal")
            for piece in _pieces(part[key]):
                yield _named(
                    {
                        "type": f"response.{kind}.delta",
                        **position,
                        "content_index": 0,
                        "delta": piece,
                    }
                )
        for piece in _pieces(item.get("arguments") or ""):
            yield _named(
                {"type": "response.function_call_arguments.delta", **position, "delta": piece}
            )
        yield _named({"type": "response.output_item.done", **position, "item": item})
    last = body.get("status") if body.get("status") in ("incomplete", "failed") else "completed"
    yield _named({"type": f"response.{last}", "response": body})


def _pieces(text: str) -> Iterator[str]:
    for at in range(0, len(text), PIECE_CHARACTERS):
        yield text[at : at + PIECE_CHARACTERS]


def _event(data: Body) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def _named(data: Body) -> bytes:
    return f"event: {data['type']}\n".encode() + _event(data)
