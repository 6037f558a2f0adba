"""Reading a vendor's JSON. Servers that speak an API keep its rules loosely, so a value of another type than it should have counts as missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perdure.reports import StopReason

MOST_TOKENS = 100_000_000


def text(value: Any) -> str:
    """A string, or an empty one."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """A list, or an empty one."""
    return value if isinstance(value, list) else []


def tokens(value: Any) -> int:
    """A number of tokens; one that cannot be true counts as zero."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else 0


def arguments(value: Any) -> str:
    """The arguments of a tool call as JSON text, whether they come as text or as an object."""
    if isinstance(value, str):
        return value
    return "{}" if value is None else json.dumps(value, ensure_ascii=False)


def stop(known: Mapping[str, StopReason], reason: str, *, has_calls: bool) -> StopReason:
    """What `reason` means in one vocabulary: an unknown one is `OTHER`, a missing one is told by the content."""
    found = known.get(reason, StopReason.OTHER) if reason else StopReason.END
    return StopReason.TOOL_CALLS if found is StopReason.END and has_calls else found
