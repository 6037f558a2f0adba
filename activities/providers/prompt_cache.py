"""Prompt caching for Anthropic's API (platform.claude.com, "Prompt caching").

Everything before a breakpoint is written to a cache for five minutes from its last use, at 1.25
times the price of input. A later request that begins the same way reads it for a tenth of that
price. A breakpoint therefore pays for itself with the second request that has the same beginning,
and costs a quarter more for nothing if no such request follows:

| request | breakpoints |
|---|---|
| offers no tools, or rules them out: it is the only or the last one of its turn | none |
| has `cache_control` in `extra`: the caller places breakpoints | none |
| tools and system prompt are long enough | after them, for other turns and truncated views |
| the messages are long enough | after the last message, and after the last message of the request
before |

The breakpoint of the request before is for steps with many calls: from a breakpoint, the API looks
back at most 20 blocks for a cached prefix. That makes at most three; the API allows four. The API
ignores breakpoints after less than its minimum, so an estimate in bytes is good enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from perdure.activities.provider import ModelRequest

LEAST_BYTES = 2_048
"""The API caches at least 1,024 tokens, with some models 4,096.

Except for text that is not natural language, a token has two bytes or more.
"""

_FIELD = "cache_control"
_MARK = {_FIELD: {"type": "ephemeral"}}


def pay_off(request: ModelRequest) -> bool:
    """Return whether a later request likely begins like this request, and `extra` sets no cache."""
    return (
        bool(request.tools)
        and request.options.tool_choice != "none"
        and _FIELD not in json.dumps(request.options.extra)
    )


def placed(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a request with breakpoints added."""
    front = [*body["tools"], body.get("system", "")]
    messages = list(body["messages"])
    user_indices = [index for index, message in enumerate(messages) if message["role"] == "user"]
    for index in user_indices[-2:]:
        if _is_long(front + messages[: index + 1]):
            *earlier, last = messages[index]["content"]
            messages[index] = {**messages[index], "content": [*earlier, {**last, **_MARK}]}
    return {**body, **(_front(body) if _is_long(front) else {}), "messages": messages}


def _front(body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields before the messages, with a breakpoint at their end.

    The API orders tools before the system prompt.
    """
    if "system" in body:
        return {"system": [{"type": "text", "text": body["system"], **_MARK}]}
    *earlier, last = body["tools"]
    return {"tools": [*earlier, {**last, **_MARK}]}


def _is_long(parts: Iterable[Any]) -> bool:
    """Return whether parts of a request are long enough together, reading no more than needed."""
    return any(
        bytes_ >= LEAST_BYTES
        for bytes_ in accumulate(
            len(json.dumps(part, ensure_ascii=False).encode("utf-8", "replace")) for part in parts
        )
    )
