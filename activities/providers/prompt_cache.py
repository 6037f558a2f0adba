"""Where Anthropic's API is asked to cache a request (platform.claude.com, "Prompt caching").

What stands before a breakpoint is written to a cache for five minutes from its last use, at 1.25
times the price of input. Where a later request begins with the same, it is read from there for a
tenth of that price. So a breakpoint pays for itself with the second request that begins alike, and
one that no other request follows costs a quarter more for nothing:

| request | breakpoints |
|---|---|
| offers no tools, or rules them out: it is the only one of its turn, or the last | none |
| has `cache_control` in `extra`: somebody knows better | none |
| tools and system prompt are long enough | behind them, for other turns of the agent and for views that are cut |
| what follows is long enough | behind the last message, and behind that of the request before |

The one behind the request before is for steps of many calls: from a breakpoint the API looks for
what is cached 20 blocks back and no further. That makes three at most, and the API takes four. What
is shorter than the least that it caches is left alone by the API too, so a guess will do: bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from perdure.activities.provider import ModelRequest

LEAST_BYTES = 2_048
"""The API caches no less than 1,024 tokens, with some models 4,096.

They have two bytes or more each, but for text that is no language.
"""

_FIELD = "cache_control"
_MARK = {_FIELD: {"type": "ephemeral"}}


def pay_off(request: ModelRequest) -> bool:
    """Whether another request is likely to begin like this one, and nobody has placed breakpoints already."""
    return (
        bool(request.tools)
        and request.options.tool_choice != "none"
        and _FIELD not in json.dumps(request.options.extra)
    )


def placed(body: dict[str, Any]) -> dict[str, Any]:
    """The body of a request with breakpoints in it."""
    front = [*body["tools"], body.get("system", "")]
    messages = list(body["messages"])
    asked = [place for place, message in enumerate(messages) if message["role"] == "user"]
    for place in asked[-2:]:
        if _is_long(front + messages[: place + 1]):
            *rest, last = messages[place]["content"]
            messages[place] = {**messages[place], "content": [*rest, {**last, **_MARK}]}
    return {**body, **(_front(body) if _is_long(front) else {}), "messages": messages}


def _front(body: dict[str, Any]) -> dict[str, Any]:
    """What stands before the messages, with a breakpoint at its end.

    The API has the tools before the system prompt.
    """
    if "system" in body:
        return {"system": [{"type": "text", "text": body["system"], **_MARK}]}
    *rest, last = body["tools"]
    return {"tools": [*rest, {**last, **_MARK}]}


def _is_long(parts: Iterable[Any]) -> bool:
    """Whether parts of a request are long enough together.

    Those behind what suffices are not looked at.
    """
    return any(
        bytes_ >= LEAST_BYTES
        for bytes_ in accumulate(
            len(json.dumps(part, ensure_ascii=False).encode("utf-8", "replace")) for part in parts
        )
    )
