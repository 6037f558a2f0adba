"""Reading a vendor's JSON.

Servers that speak an API keep its rules loosely, so a value of another type than it should have
counts as missing.

Numbers of tokens are the exception, because they are money: one that cannot be true makes the sum
it belongs to unknown. In a `Usage`, no input or no output means "not told", never "little".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from perdure import limits
from perdure.activities.yielding import Yielder
from perdure.text import clean
from perdure.values.reports import StopReason, Usage

MOST_TOKENS = 1_000_000_000

_LONG_CHARACTERS = 100_000
_MARKS = "{[,"

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

Tokens = int | None
"""A number of tokens; None where it is not told, or cannot be true."""


def parsed(words: str) -> Any:
    """JSON as values, without the halves of characters that nothing behind this could write.

    Raises:
        ValueError: It is no JSON, or JSON of more than `limits.REPLY_VALUES` values.
        RecursionError: It is nested too deeply.
    """
    value = json.loads(words) if len(words) < _LONG_CHARACTERS else _long(words)
    return _cleaned(value) if _SURROGATE.search(words) else value


def _long(words: str) -> Any:
    """The same for many words.

    The parser holds the interpreter to its end, unless functions in Python are called for what it
    has parsed.
    """
    if sum(words.count(mark) for mark in _MARKS) > limits.REPLY_VALUES:
        raise ValueError(f"it has more than {limits.REPLY_VALUES} values")
    give_way = Yielder()

    def made(item: Any) -> Any:
        give_way()
        return item

    return json.loads(
        words,
        object_hook=made,
        parse_int=lambda digits: made(int(digits)),
        parse_float=lambda digits: made(float(digits)),
    )


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case list():
            return [_cleaned(item) for item in value]
        case dict():
            return {clean(key): _cleaned(item) for key, item in value.items()}
        case _:
            return value


def text(value: Any) -> str:
    """A string, or an empty one."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """A list, or an empty one."""
    return value if isinstance(value, list) else []


def joined(value: Any) -> str:
    """A string, or the texts of a list of chunks."""
    return (
        "".join(text(mapping(chunk).get("text")) for chunk in value)
        if isinstance(value, list)
        else text(value)
    )


def tokens(value: Any, *, missing: Tokens = None) -> Tokens:
    """A number of tokens, or `missing` where there is none.

    None for anything but a whole number from 0 to `MOST_TOKENS`.
    """
    if value is None:
        return missing
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
        else None
    )


def usage(
    taken: Sequence[Tokens], written: Sequence[Tokens], *, cache_read: Tokens, cache_written: Tokens
) -> Usage:
    """The usage of a request that took and wrote these numbers of tokens together.

    What was cached is part of what was taken.
    """
    input_tokens = _sum(taken)
    return Usage(
        input_tokens=input_tokens,
        output_tokens=_sum(written),
        cache_read_tokens=min(cache_read or 0, input_tokens),
        cache_write_tokens=min(cache_written or 0, input_tokens),
    )


def _sum(numbers: Sequence[Tokens]) -> int:
    total = sum(number or 0 for number in numbers)
    return 0 if None in numbers or total > MOST_TOKENS else total


def arguments(value: Any) -> str:
    """The arguments of a tool call as JSON text, whether they come as text or as an object."""
    if isinstance(value, str):
        return value
    return "{}" if value is None else json.dumps(value, ensure_ascii=False)


def stop(known: Mapping[str, StopReason], reason: str, *, has_calls: bool) -> StopReason:
    """What `reason` means in one vocabulary.

    An unknown one is `OTHER`, a missing one is told by the content.
    """
    found = known.get(reason, StopReason.OTHER) if reason else StopReason.END
    return StopReason.TOOL_CALLS if found is StopReason.END and has_calls else found
