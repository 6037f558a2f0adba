"""Tools as values: what `@tool` accepts and refuses, and how the tool relates to its function."""

import contextlib
import functools
import inspect
import json
import re
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perdure import Agent, Tool, Toolbox, ToolContext, errors, limits, tool
from perdure.agents import tool_context, tools
from perdure.agents.definitions import Target, define, define_tool


@tool(timeout=timedelta(seconds=20), read_only=True)
def add(a: int, b: int = 1) -> int:  # noqa: D417 - an argument without words is part of the test
    """Add two numbers.

    Slowly.

    Args:
        a: The first.
    """
    return a + b


@tool
async def wait(seconds: float) -> float:
    """Wait."""
    return seconds


class Shelf:
    def __init__(self, books: list[str]) -> None:
        self.books = books

    @tool(name="find_book", idempotent=True)
    def find(self, word: str) -> list[str]:
        """Find a book."""
        return [book for book in self.books if word in book]

    def count(self) -> int:
        """Count the books."""
        return len(self.books)


@pytest.mark.accepts("T43")
def test_only_a_read_only_tool_can_be_local() -> None:
    """The error says why, also for a tool from a schema; copies of a local tool are local."""
    usual = tool(name="add")(add.function)
    made = tool(read_only=True, local=True)(add.function)

    for idempotent in (False, True):
        with pytest.raises(errors.ConfigurationError, match="local, but not read-only"):
            tool(local=True, idempotent=idempotent)(add.function)
    with pytest.raises(errors.ConfigurationError, match="local, but not read-only"):
        Tool.from_schema(
            add.function, name="add", description="", parameters={"type": "object"}, local=True
        )
    assert [usual.local, made.local, made.renamed("plus").local] == [False, True, True]


def test_tool_reads_name_description_and_timeout_from_the_function_and_the_decorator() -> None:
    """Sections of the docstring are not part of the description; read-only implies idempotent."""
    assert (
        add.name,
        add.description,
        add.timeout,
        add.read_only,
        add.idempotent,
        add.is_async,
    ) == ("add", "Add two numbers.\n\nSlowly.", timedelta(seconds=20), True, True, False)
    assert (wait.name, wait.timeout, wait.read_only, wait.idempotent, wait.is_async) == (
        "wait",
        limits.TOOL_CALL,
        False,
        False,
        True,
    )


async def test_tool_can_still_be_called_as_the_function() -> None:
    """Sync, async and bound."""
    assert (add(2, b=3), await wait(0.5), Shelf(["blue", "red"]).find("u")) == (5, 0.5, ["blue"])


def test_bound_method_keeps_what_the_decorator_said() -> None:
    """The schema has no `self`, and two instances are two tools."""
    first, second = Shelf(["a"]), Shelf([])

    assert (first.find.name, first.find.idempotent, first.find.description) == (
        "find_book",
        True,
        "Find a book.",
    )
    assert list(_properties(first.find)) == ["word"]
    assert (first.find("a"), second.find("a")) == (["a"], [])


def test_bound_method_without_decorator_is_a_tool() -> None:
    """`tools=[shelf.count]` is enough."""
    agent = Agent(name="librarian", model="openai:x", tools=[Shelf(["a", "b"]).count])
    [item] = agent.toolset().values()

    assert (item.name, item.description, item.arguments.schema["properties"], item()) == (
        "count",
        "Count the books.",
        {},
        2,
    )


def test_method_that_is_not_bound_is_refused_with_the_way_out() -> None:
    """The agent has the class's function instead of an instance's method."""
    agent = Agent(name="librarian", model="openai:x", tools=[Shelf.find])

    with pytest.raises(
        errors.ConfigurationError,
        match=(
            r"find_book is a method: give the agent the bound one, as in tools=\[thing.find_book\]"
        ),
    ):
        define(agent, chain=[Target(model="openai:x")], activity_of=lambda item: item.name)


@pytest.mark.accepts("T17")
@pytest.mark.parametrize("name", ["two words", "a.b", "größe", "a" * 65, "a\n", "a/b", "<lambda>"])
def test_name_that_no_provider_accepts_is_refused_when_the_tool_is_built(name: str) -> None:
    """The message has the rules and how to set another name."""
    with pytest.raises(errors.ConfigurationError) as caught:
        tool(name=name)(lambda: None)

    assert (
        str(caught.value)
        == f"tool name {name!r}: use 1 to 64 of A-Z, a-z, 0-9, _ and -; pass name= to choose"
        " another"
    )


@pytest.mark.accepts("T17")
@pytest.mark.parametrize("name", ["a", "A-b_9", "-", "x" * 64])
def test_name_within_the_rules_is_accepted(name: str) -> None:
    """Including one at the limit."""
    assert tool(name=name)(lambda: None).name == name


@pytest.mark.accepts("T17")
def test_function_whose_own_name_breaks_the_rules_is_refused() -> None:
    """Python allows more than providers do; a plain function in `tools=` is validated, too."""

    def größe() -> None: ...

    with pytest.raises(errors.ConfigurationError, match="tool name 'größe'"):
        Agent(name="tailor", model="openai:x", tools=[größe])


@pytest.mark.parametrize(
    "item", [functools.partial(print, "a"), Shelf([])], ids=["partial", "instance"]
)
def test_what_is_no_named_function_is_refused_typed(item: Any) -> None:
    """An object without a name raises a configuration error instead of an `AttributeError`."""
    with pytest.raises(errors.ConfigurationError):
        Agent(name="broken", model="openai:x", tools=[item])


@pytest.mark.parametrize("timeout", [timedelta(0), timedelta(seconds=-1)])
def test_timeout_of_nothing_is_refused(timeout: timedelta) -> None:
    """Such a tool could never run."""
    with pytest.raises(
        errors.ConfigurationError,
        match="tool add: timeout must be a timedelta, longer than zero and at most 3650 days, not",
    ):
        tool(name="add", timeout=timeout)(lambda: None)


@pytest.mark.accepts("L5")
@pytest.mark.parametrize("limit", [0, -1])
def test_iterations_below_one_are_refused_when_the_agent_is_built(limit: int) -> None:
    """The message has the agent, the limit and how to turn it off."""
    with pytest.raises(errors.ConfigurationError) as caught:
        Agent(name="adder", model="openai:x", max_iterations=limit)

    assert (
        str(caught.value)
        == "agent adder: max_iterations must be a whole number from 1 to 1000000000, or"
        f" 'unlimited', not {limit}"
    )


@pytest.mark.accepts("L5")
def test_one_iteration_and_unlimited_are_accepted() -> None:
    """The smallest limit, and none."""
    made = [
        define(
            Agent(name="adder", model="openai:x", max_iterations=limit),
            chain=[Target(model="openai:x")],
            activity_of=str,
        ).max_iterations
        for limit in (1, "unlimited")
    ]

    assert made == [1, None]


@pytest.mark.parametrize(("field", "value"), [("name", "two words"), ("name", ""), ("model", "")])
def test_agent_that_cannot_work_is_refused_when_it_is_built(field: str, value: str) -> None:
    """Not at the first turn."""
    fields: dict[str, Any] = {"name": "adder", "model": "openai:x", field: value}

    with pytest.raises(errors.ConfigurationError):
        Agent(**fields)


@pytest.mark.accepts("T10")
def test_tools_stand_in_the_order_given() -> None:
    """The agent's own first, then toolbox by toolbox."""
    boxes = [Toolbox("second", [_named("z"), _named("a")]), Toolbox("first", [_named("m")])]
    agent = Agent(name="adder", model="openai:x", tools=[wait, add], toolboxes=boxes)

    definition = define(agent, chain=[Target(model="openai:x")], activity_of=lambda item: item.name)

    assert [item.name for item in definition.tools] == ["wait", "add", "z", "a", "m"]


@pytest.mark.accepts("T4")
@pytest.mark.parametrize(
    ("fields", "sources"),
    [
        (
            {"toolboxes": [Toolbox("maths", [add]), Toolbox("sums", [add])]},
            ["toolbox 'maths'", "toolbox 'sums'"],
        ),
        (
            {"tools": [add], "toolboxes": [Toolbox("maths", [add])]},
            ["the agent's tools", "toolbox 'maths'"],
        ),
        ({"tools": [add, add]}, ["the agent's tools", "the agent's tools"]),
    ],
    ids=["two boxes", "agent and box", "agent twice"],
)
def test_duplicate_names_are_refused_naming_tool_and_both_sources(
    fields: dict[str, Any], sources: list[str]
) -> None:
    """The same function twice is refused, too: the second one could never be called."""
    agent = Agent(name="adder", model="openai:x", **fields)

    with pytest.raises(errors.DuplicateToolError) as caught:
        agent.toolset()

    assert (
        caught.value.message
        == f"agent adder: the tool 'add' comes from {sources[0]} and from {sources[1]}; rename one"
        " with @tool(name=…), or take toolbox.prefixed(…)"
    )
    assert caught.value.context == {"agent": "adder", "tool": "add", "sources": sources}


@pytest.mark.accepts("T12")
def test_context_parameter_is_found_by_its_annotation() -> None:
    """With any name, at any position, with or without the type of the deps."""

    def plain(word: str, about: ToolContext) -> None: ...  # type: ignore[type-arg]
    def typed(c: ToolContext[str], word: str) -> None: ...
    def none(ctx: str) -> None: ...

    assert [tool(function).context_parameter for function in (plain, typed, none)] == [
        "about",
        "c",
        None,
    ]
    assert [list(_properties(tool(function))) for function in (plain, typed, none)] == [
        ["word"],
        ["word"],
        ["ctx"],
    ]


def test_schema_digest_changes_with_the_arguments_and_with_nothing_else() -> None:
    """Another body or timeout has the same schema; another default, type or description does
    not.
    """

    def search(word: str, limit: int = 5) -> None: ...

    def same(word: str, limit: int = 5) -> object: ...

    def other(word: str, limit: int = 6) -> None: ...

    digests = [tool(name="search")(function).digest for function in (search, same, other)]

    assert digests[0] == digests[1] == tool(timeout=timedelta(seconds=1))(search).digest
    assert digests[0] != digests[2]
    assert len(digests[0]) == 8


class Colour(StrEnum):
    RED = "red"


class Place(BaseModel):
    street: str


@dataclass
class Point:
    x: int


@pytest.mark.accepts("T8")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (5, "5"),
        (0.1, "0.1"),
        ([1, "a"], '[1,"a"]'),
        ((1, 2), "[1,2]"),
        ({3}, "[3]"),
        ({"a": {"b": None}}, '{"a":{"b":null}}'),
        ({"é": "ü"}, '{"é":"ü"}'),
        (Colour.RED, "red"),
        (Place(street="Elm 1"), '{"street":"Elm 1"}'),
        ([Point(1)], '[{"x":1}]'),
        (datetime(2026, 11, 21, 8, 30, tzinfo=UTC), '"2026-11-21T08:30:00Z"'),
        (timedelta(minutes=5), '"PT5M"'),
        (Decimal("0.10"), '"0.10"'),
        (Path("a/b"), '"a/b"'),
        (b"bytes", '"bytes"'),
        (float("nan"), "NaN"),
        ([float("inf")], "[Infinity]"),
        (10**5000, "1" + "0" * 5000),
    ],
    ids=lambda value: type(value).__name__,
)
def test_result_is_text_as_it_is_or_json(value: object, text: str) -> None:
    """Values that JSON supports, and those that pydantic can encode."""
    assert tool_context.encode(value) == text


@pytest.mark.accepts("T8")
def test_generator_is_encoded_as_the_list_that_it_makes() -> None:
    """A tool may be a generator."""

    def found() -> Iterator[int]:
        yield from (1, 2)

    assert json.loads(tool_context.encode(found())) == [1, 2]


def _endless() -> list[object]:
    out: list[object] = []
    out.append(out)
    return out


def _deep() -> list[object]:
    out: list[object] = []
    for _ in range(100_000):
        out = [out]
    return out


@pytest.mark.accepts("T8")
@pytest.mark.parametrize(
    "value",
    [object(), b"\xff", ["\ud800"], {"a": lambda: None}, _endless(), _deep()],
    ids=["object", "bytes", "surrogate", "function", "endless", "deep"],
)
def test_result_that_cannot_be_encoded_says_so(value: object) -> None:
    """A `ValueError` with the type, for any failure of the encoder."""
    with pytest.raises(ValueError, match=f"^{type(value).__name__} cannot be encoded as JSON: "):
        tool_context.encode(value)


@pytest.mark.accepts("T8")
def test_awaitable_result_names_the_mistake() -> None:
    """A sync wrapper around an async function, as in a decorator that forgets to await."""
    with _late() as coroutine, pytest.raises(ValueError, match="declare it with async def"):
        tool_context.encode(coroutine)


def test_coroutine_that_is_refused_as_a_result_is_closed() -> None:
    """Otherwise Python would warn that it was never awaited."""
    with _late() as coroutine:
        with pytest.raises(ValueError):
            tool_context.encode(coroutine)

        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


@contextlib.contextmanager
def _late() -> Iterator[Coroutine[None, None, str]]:
    async def late() -> str:
        return "late"

    coroutine = late()
    try:
        yield coroutine
    finally:
        coroutine.close()


def _named(name: str) -> tools.Tool:
    def nothing() -> None: ...

    return tool(name=name)(nothing)


def _properties(item: tools.Tool) -> dict[str, Any]:
    properties = item.arguments.schema["properties"]
    assert isinstance(properties, dict)
    return properties


@pytest.mark.accepts("G1")
def test_context_that_is_printed_shows_no_dependency() -> None:
    """A tool may put its context into a log or a result; the lifespan's object may contain a
    password.
    """
    context = ToolContext(
        deps="planted-secret",
        turn_id="t",
        call_id="c",
        idempotency_key="k",
        effect_key="k",
        attempt=1,
        labels={},
        beat=lambda *_: None,
        read_secret=lambda _: "planted-secret",
    )

    assert "planted" not in f"{context} {context!r}"


def find(invoice: str) -> str | None:
    """Find a payment."""
    return invoice


@pytest.mark.accepts("T46")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effect_scope": "turn"}, "effect_scope= needs effect="),
        ({"may_recur": True}, "may_recur= needs effect="),
        ({"settle": timedelta(seconds=1)}, "settle= needs verify="),
        ({"effect": ["invoice"], "read_only": True}, "read-only, so it has no effect"),
        ({"effect": "invoice"}, "effect must be a function of the arguments, or a list"),
        ({"effect": [1]}, "effect must be a function of the arguments, or a list"),
        ({"effect": ["invoice"], "effect_scope": "all"}, "effect_scope must be"),
        ({"on_unknown": "ask"}, "on_unknown must be"),
        ({"verify": "find"}, "verify must be a tool or a function"),
        ({"verify": tool(find)}, "verify= is the tool find, which is not read-only"),
    ],
)
def test_options_about_an_effect_have_to_fit(options: dict[str, Any], message: str) -> None:
    """What is declared is enforced, so what makes no sense is refused."""
    with pytest.raises(errors.ConfigurationError, match=re.escape(message)):
        tool(**options)(find)


@pytest.mark.accepts("T47")
def test_read_back_takes_arguments_of_the_call() -> None:
    """A parameter that the tool does not have is refused when the agent is defined."""

    @tool(verify=find)
    def pay(amount: int) -> str:
        return "paid"

    with pytest.raises(errors.ConfigurationError, match="verify= takes 'invoice', which is no"):
        define_tool(pay, "pay")
