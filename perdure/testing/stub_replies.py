"""What the stub provider says and what it charges.

Replies of a script, cut at the limit of the request, in the shape of each API.

A token is four bytes, rounded up: of the request's body for the input; of text, names and arguments
for the output. The stub counts and charges on its own, without the product's code, so that its bill
can judge the product's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypedDict

INPUT_TOKENS = 10
OUTPUT_TOKENS = 5
"""What a whole answer is said to have used by a stub that has no price."""

TOKEN_BYTES = 4

Price = Callable[[int, int], Decimal]
"""What a request costs in US dollars, by its tokens of input and of output."""


class Call(TypedDict):
    """A tool call that a reply asks for."""

    name: str
    arguments: Mapping[str, Any]


class Reply(TypedDict, total=False):
    """One reply: `text` or `calls` (or both), or a `raw` body.

    After `delay_s`, with `status` and more `headers`.

    A request for a stream is answered with events: one every `pace_s`. After `cut_after` of them
    the connection ends, after `error_after` comes an error. A `raw` body goes out as it is.
    """

    text: str
    calls: Sequence[Call]
    raw: str | bytes
    status: int
    headers: Mapping[str, str]
    delay_s: float
    pace_s: float
    cut_after: int
    error_after: int


@dataclass(frozen=True, slots=True)
class Bill:
    """What a request used, and what it cost in US dollars."""

    input_tokens: int = 0
    output_tokens: int = 0
    usd: Decimal = Decimal(0)


WHOLE = Bill(INPUT_TOKENS, OUTPUT_TOKENS)


@dataclass(frozen=True, slots=True)
class Said:
    """What is left of a reply under the limit of its request."""

    text: str | None
    calls: Sequence[Call]
    is_cut: bool
    tokens: int


def per_million(input_usd: Decimal | str | int, output_usd: Decimal | str | int) -> Price:
    """So many US dollars for a million tokens of input and of output."""
    return lambda taken, written: (
        (Decimal(input_usd) * taken + Decimal(output_usd) * written) / 1_000_000
    )


def never_stops(name: str, **arguments: Any) -> Reply:
    """The reply of a model that asks for this tool whatever happens.

    `StubProvider([], then=never_stops("look"))`.
    """
    return {"calls": [{"name": name, "arguments": arguments}]}


def said(reply: Reply, limit: int | None) -> Said:
    """What a model that is cut off at `limit` tokens says.

    A call that does not fit whole is left out, with all behind it.
    """
    text, calls = reply.get("text"), list(reply.get("calls", ()))
    whole = (
        _tokens(reply["raw"])
        if "raw" in reply
        else _tokens(text or "") + sum(map(_call_tokens, calls))
    )
    if limit is None or whole <= limit:
        return Said(text, calls, is_cut=False, tokens=whole)
    while calls and _tokens(text or "") + sum(map(_call_tokens, calls)) > limit:
        calls.pop()
    cut = (text or "").encode()[: limit * TOKEN_BYTES].decode(errors="ignore")
    return Said(cut if text is not None else None, calls, is_cut=True, tokens=limit)


def bill(body: Mapping[str, Any], reply: Reply, price: Price | None) -> Bill:
    """What a request is charged with.

    An error status costs nothing; a 200 costs what it says, also where its body is nonsense.
    """
    if reply.get("status", 200) >= 300:
        return Bill()
    answer = said(reply, limit_of(body))
    if price is None:
        return Bill(
            INPUT_TOKENS,
            answer.tokens if answer.is_cut else min(OUTPUT_TOKENS, limit_of(body) or OUTPUT_TOKENS),
        )
    taken = _tokens(json.dumps(body, ensure_ascii=False))
    return Bill(taken, answer.tokens, price(taken, answer.tokens))


def limit_of(body: Mapping[str, Any]) -> int | None:
    """The most tokens that a request lets its answer have."""
    limits = (
        body.get("max_completion_tokens"),
        body.get("max_tokens"),
        body.get("max_output_tokens"),
    )
    return next((limit for limit in limits if isinstance(limit, int)), None)


def completion(
    reply: Reply, index: int, model: str, limit: int | None = None, charged: Bill = WHOLE
) -> dict[str, Any]:
    """The body of a 200 by OpenAI.

    Call ids are made from the place in the script, so they are the same in a repeated reply.
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
    reply: Reply, index: int, model: str, limit: int | None = None, charged: Bill = WHOLE
) -> dict[str, Any]:
    """The body of a 200 by Anthropic, with the same ids."""
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
    words = [{"type": "text", "text": answer.text}] if answer.text else []
    return {
        "id": f"stub-{index}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [*words, *calls],
        "stop_reason": "max_tokens" if answer.is_cut else "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": charged.input_tokens, "output_tokens": charged.output_tokens},
    }


def response(
    reply: Reply, index: int, model: str, limit: int | None = None, charged: Bill = WHOLE
) -> dict[str, Any]:
    """The body of a 200 by OpenAI's responses API, with the same ids."""
    answer = said(reply, limit)
    words = {
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
        "output": [*([words] if answer.text else []), *calls],
        "usage": {"input_tokens": taken, "output_tokens": written, "total_tokens": taken + written},
    }


def _call_tokens(call: Call) -> int:
    return _tokens(call["name"] + json.dumps(call["arguments"], ensure_ascii=False))


def _tokens(content: str | bytes) -> int:
    size = len(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    return -(-size // TOKEN_BYTES)
