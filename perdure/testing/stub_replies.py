"""The replies and charges of the stub provider.

Replies of a script are cut at the limit of the request and converted to the format of each API.

A token is four bytes, rounded up: of the request's body for the input; of text, names and arguments
for the output. The stub counts and charges without the product's code, so that its bill can be
compared with the product's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypedDict

INPUT_TOKENS = 10
OUTPUT_TOKENS = 5
"""The reported usage of a complete answer of a stub without a price."""

TOKEN_BYTES = 4

Price = Callable[[int, int], Decimal]
"""The cost of a request in US dollars, by its input and output tokens."""


class StubCall(TypedDict):
    """A tool call of a reply."""

    name: str
    arguments: Mapping[str, Any]


class StubReply(TypedDict, total=False):
    """A reply: `text` or `calls` (or both), or a `raw` body.

    It is sent after `delay_s`, with `status` and additional `headers`. A streaming request is
    answered with an event every `pace_s`. The connection ends after `cut_after` events; an error
    follows `error_after` events. A `raw` body is sent unchanged.
    """

    text: str
    calls: Sequence[StubCall]
    raw: str | bytes
    status: int
    headers: Mapping[str, str]
    delay_s: float
    pace_s: float
    cut_after: int
    error_after: int


@dataclass(frozen=True, slots=True)
class StubBill:
    """The tokens and the cost in US dollars of a request."""

    input_tokens: int = 0
    output_tokens: int = 0
    usd: Decimal = Decimal(0)


WHOLE = StubBill(INPUT_TOKENS, OUTPUT_TOKENS)


@dataclass(frozen=True, slots=True)
class CutReply:
    """A reply after applying the limit of its request."""

    text: str | None
    calls: Sequence[StubCall]
    is_cut: bool
    tokens: int


def per_million(input_usd: Decimal | str | int, output_usd: Decimal | str | int) -> Price:
    """Return a price in US dollars per million tokens of input and output."""
    return lambda taken, written: (
        (Decimal(input_usd) * taken + Decimal(output_usd) * written) / 1_000_000
    )


def never_stops(name: str, **arguments: Any) -> StubReply:
    """Return a reply that always calls this tool.

    `StubProvider([], then=never_stops("look"))`.
    """
    return {"calls": [{"name": name, "arguments": arguments}]}


def said(reply: StubReply, limit: int | None) -> CutReply:
    """Return a reply cut off at `limit` tokens.

    A call that does not fit entirely is omitted with everything after it.
    """
    text, calls = reply.get("text"), list(reply.get("calls", ()))
    total = (
        _tokens(reply["raw"])
        if "raw" in reply
        else _tokens(text or "") + sum(map(_call_tokens, calls))
    )
    if limit is None or total <= limit:
        return CutReply(text, calls, is_cut=False, tokens=total)
    while calls and _tokens(text or "") + sum(map(_call_tokens, calls)) > limit:
        calls.pop()
    cut = (text or "").encode()[: limit * TOKEN_BYTES].decode(errors="ignore")
    return CutReply(cut if text is not None else None, calls, is_cut=True, tokens=limit)


def bill(body: Mapping[str, Any], reply: StubReply, price: Price | None) -> StubBill:
    """Return the bill of a request.

    An error status costs nothing; a 200 is charged even if its body is invalid.
    """
    if reply.get("status", 200) >= 300:
        return StubBill()
    answer = said(reply, limit_of(body))
    if price is None:
        return StubBill(
            INPUT_TOKENS,
            answer.tokens if answer.is_cut else min(OUTPUT_TOKENS, limit_of(body) or OUTPUT_TOKENS),
        )
    taken = _tokens(json.dumps(body, ensure_ascii=False))
    return StubBill(taken, answer.tokens, price(taken, answer.tokens))


def limit_of(body: Mapping[str, Any]) -> int | None:
    """Return the output limit of a request in tokens."""
    limits = (
        body.get("max_completion_tokens"),
        body.get("max_tokens"),
        body.get("max_output_tokens"),
    )
    return next((limit for limit in limits if isinstance(limit, int)), None)


def completion(
    reply: StubReply, index: int, model: str, limit: int | None = None, charged: StubBill = WHOLE
) -> dict[str, Any]:
    """Return the body of a 200 of OpenAI's chat completions API.

    Call ids are derived from the place in the script, so they are the same in a repeated reply.
    """
    answer = said(reply, limit)
    calls = [
        {
            "id": f"call_{index}_{n}",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for n, call in enumerate(answer.calls)
    ]
    message = {
        "role": "assistant",
        "content": answer.text,
        **({"tool_calls": calls} if calls else {}),
    }
    reason = "length" if answer.is_cut else "tool_calls" if calls else "stop"
    taken, written = charged.input_tokens, charged.output_tokens
    return {
        "id": f"stub-{index}",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": taken,
            "completion_tokens": written,
            "total_tokens": taken + written,
        },
    }


def message(
    reply: StubReply, index: int, model: str, limit: int | None = None, charged: StubBill = WHOLE
) -> dict[str, Any]:
    """Return the body of a 200 of Anthropic's messages API, with the same ids."""
    answer = said(reply, limit)
    calls = [
        {
            "type": "tool_use",
            "id": f"call_{index}_{n}",
            "name": call["name"],
            "input": call["arguments"],
        }
        for n, call in enumerate(answer.calls)
    ]
    text_blocks = [{"type": "text", "text": answer.text}] if answer.text else []
    return {
        "id": f"stub-{index}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [*text_blocks, *calls],
        "stop_reason": "max_tokens" if answer.is_cut else "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": charged.input_tokens, "output_tokens": charged.output_tokens},
    }


def response(
    reply: StubReply, index: int, model: str, limit: int | None = None, charged: StubBill = WHOLE
) -> dict[str, Any]:
    """Return the body of a 200 of OpenAI's responses API, with the same ids."""
    answer = said(reply, limit)
    output_message = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": answer.text, "annotations": []}],
    }
    calls = [
        {
            "type": "function_call",
            "call_id": f"call_{index}_{n}",
            "name": call["name"],
            "arguments": json.dumps(call["arguments"]),
        }
        for n, call in enumerate(answer.calls)
    ]
    taken, written = charged.input_tokens, charged.output_tokens
    return {
        "id": f"stub-{index}",
        "object": "response",
        "model": model,
        "status": "incomplete" if answer.is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if answer.is_cut else None,
        "error": None,
        "output": [*([output_message] if answer.text else []), *calls],
        "usage": {"input_tokens": taken, "output_tokens": written, "total_tokens": taken + written},
    }


def _call_tokens(call: StubCall) -> int:
    return _tokens(call["name"] + json.dumps(call["arguments"], ensure_ascii=False))


def _tokens(content: str | bytes) -> int:
    size = len(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    return -(-size // TOKEN_BYTES)
