"""Lenient access to a vendor's JSON.

Servers implement an API loosely, so a value of the wrong type counts as missing.

Token counts are the exception, because they are money: an impossible count makes the sum that it
belongs to unknown. In a `Usage`, zero input or output means "not reported", never "none".
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
"""A token count; None if it is not reported or impossible."""


def parsed(text: str) -> Any:
    """Parse JSON, without lone surrogates, which cannot be encoded later.

    Raises:
        ValueError: The text is not JSON, or has more than `limits.REPLY_VALUES` values.
        RecursionError: It is nested too deeply.
    """
    value = json.loads(text) if len(text) < _LONG_CHARACTERS else _long(text)
    return _cleaned(value) if _SURROGATE.search(text) else value


def _long(text: str) -> Any:
    """Parse a long text.

    The parser holds the interpreter lock until its end, unless it calls Python functions for the
    values that it has parsed.
    """
    if sum(text.count(mark) for mark in _MARKS) > limits.REPLY_VALUES:
        raise ValueError(f"it has more than {limits.REPLY_VALUES} values")
    give_way = Yielder()

    def made(item: Any) -> Any:
        give_way()
        return item

    return json.loads(
        text,
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
    """Return `value` if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    """Return `value` if it is an object, else an empty dict."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return `value` if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def joined(value: Any) -> str:
    """Return a string, or the concatenated texts of a list of chunks."""
    return (
        "".join(text(mapping(chunk).get("text")) for chunk in value)
        if isinstance(value, list)
        else text(value)
    )


def tokens(value: Any, *, missing: Tokens = None) -> Tokens:
    """Return a token count, or `missing` if there is none.

    Anything but a whole number from 0 to `MOST_TOKENS` is None.
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
    """Return the usage of a request with these input (`taken`) and output (`written`) counts.

    Cached tokens are part of the input.
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
    """Return the arguments of a tool call as JSON text, given as text or as an object."""
    if isinstance(value, str):
        return value
    return "{}" if value is None else json.dumps(value, ensure_ascii=False)


def stop(known: Mapping[str, StopReason], reason: str, *, has_calls: bool) -> StopReason:
    """Map a vendor's stop reason.

    An unknown reason is `OTHER`; a missing reason is derived from the content.
    """
    known_reason = known.get(reason, StopReason.OTHER) if reason else StopReason.END
    return StopReason.TOOL_CALLS if known_reason is StopReason.END and has_calls else known_reason
