"""Results and exceptions of tools that can hardly be encoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel

from perdure import tool


@dataclass
class Weight:
    """A tool's return type."""

    grams: Any
    note: Any = None


class Model(BaseModel):
    """The same by pydantic, which writes numbers that are not finite as null unless a model says
    otherwise.
    """

    grams: Any


class Unit(Enum):
    """A member whose value is no Unicode."""

    GRAM = "g\ud800"


class SpeechlessError(Exception):
    """An exception whose `__str__` raises."""

    def __str__(self) -> str:
        raise ValueError("no words")


def nested(wrap: Callable[[Any], Any], depth: int = 100_000) -> Any:
    """A value nested in this number of others."""
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def endless() -> Any:
    """A value that contains itself."""
    weight = Weight(1)
    weight.note = [weight]
    return weight


WRITTEN: dict[str, tuple[object, str]] = {
    "text": ("a\ud800b\0", "a?b\0"),
    "bytes": (b"a\0b", '"a\\u0000b"'),
    "numbers": (
        [float("nan"), float("inf"), -float("inf"), 10**30],
        f"[NaN,Infinity,-Infinity,{10**30}]",
    ),
    "huge": (Weight(10**5000), '{"grams":1' + "0" * 5000 + ',"note":null}'),
    "object": (Weight(float("nan"), "a\0b"), '{"grams":NaN,"note":"a\\u0000b"}'),
    "model": (Model(grams=-float("inf")), '{"grams":null}'),
    "decimal": (Decimal("NaN"), '"NaN"'),
    "nested": (nested(lambda value: [value], 200), "[" * 200 + "1" + "]" * 200),
}
"""Values that can be encoded, with their encoding."""
REFUSED: dict[str, object] = {
    "surrogate in a list": ["\ud800"],
    "surrogate in an object": Weight(1, "\ud800"),
    "surrogate in a model": Model(grams="\ud800"),
    "surrogate as a key": {"\ud800": 1},
    "surrogate as a member": Unit.GRAM,
    "huge key": {10**5000: 1},
    "bytes that are no UTF-8": b"\xff",
    "surrogate in bytes": Weight(1, b"\xed\xa0\x80"),
    "deep list": nested(lambda value: [value]),
    "deep tuple": nested(lambda value: (value,)),
    "deep dict": nested(lambda value: {"a": value}),
    "deep object": nested(Weight, 1000),
    "endless": endless(),
    "no data": object(),
}
"""Values that cannot: the result says that the tool ran, with the `str` of the value."""


RAISED: dict[str, tuple[Exception, str]] = {
    "raised surrogate": (ValueError("a\ud800b\0"), "ValueError: a?b\0"),
    "raised number": (ValueError(10**5000), "ValueError: no message"),
    "raised without words": (SpeechlessError(), "SpeechlessError: no message"),
    "raised group": (
        ExceptionGroup("\ud800", [ValueError("\0")]),
        "ExceptionGroup: ? (1 sub-exception)",
    ),
    "raised depth": (RecursionError("too deep"), "RecursionError: too deep"),
}
"""Exceptions, with their error results."""


def made(what: str) -> Any:
    """Return or raise one of these values."""
    if what in RAISED:
        raise RAISED[what][0]
    return REFUSED[what] if what in REFUSED else WRITTEN[what][0]


@tool
def fetch(what: str) -> Any:
    """Make it in a thread."""
    return made(what)
