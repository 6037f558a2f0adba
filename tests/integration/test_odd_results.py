"""Tools that return or raise values that can hardly be encoded: the model gets a result for each,
in both vendors' APIs, and the turn continues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from perdure import Agent, limits, tool
from perdure.testing.stub_provider import StubProvider, said_in
from perdure.text import size
from perdure.worker import AgentWorker

from ..conftest import Runtime
from ..loopback import VENDORS, Vendor
from ..thorough import some
from .odd_bodies import DIALECTS


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

NOTE = "\n[The tool ran. This is its result as str() gives it: "

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


@tool
async def fetch_async(what: str) -> Any:
    """Make it on the tool loop."""
    return made(what)


@pytest.mark.accepts("G3", "T1", "T8")
@pytest.mark.parametrize("name", ["fetch", "fetch_async"])
@pytest.mark.parametrize("vendor", some(VENDORS))
async def test_model_is_told_something_of_whatever_a_tool_returns_or_raises(
    runtime: Runtime, vendor: Vendor, name: str
) -> None:
    """All of them in one step: every call has its result, and the next request has it as in the
    report.
    """
    asked = [*WRITTEN, *REFUSED, *RAISED]
    with StubProvider(
        [
            {"calls": [{"name": name, "arguments": {"what": what}} for what in asked]},
            {"text": "done"},
        ]
    ) as stub:
        agent = Agent(name="clerk", model="vendor:m", tools=[fetch, fetch_async])
        async with runtime(
            AgentWorker(agent, providers={"vendor": vendor.make(stub.anthropic_url, None)})
        ) as client:
            report = await client.run("clerk", "go")
    results = dict(zip(asked, report.steps[0].results, strict=True))
    heard = [result for _, _, _, result in DIALECTS[vendor.name].heard(said_in(stub.requests[1]))]

    assert (report.output, heard) == ("done", [result.content for result in results.values()])
    assert {what: (results[what].content, results[what].is_error) for what in WRITTEN} == {
        what: (text, False) for what, (_, text) in WRITTEN.items()
    }
    assert {what: (results[what].content, results[what].is_error) for what in RAISED} == {
        what: (f"{name} failed: {text}", True) for what, (_, text) in RAISED.items()
    }
    assert {
        what: (NOTE in results[what].content, results[what].is_error) for what in REFUSED
    } == dict.fromkeys(REFUSED, (True, False))
    assert "object object at" in results["no data"].content.partition(NOTE)[0]
    assert {
        what for what in REFUSED if size(results[what].content) > limits.TOOL_RESULT_BYTES
    } == set()
