"""Output types: the schema in the request, and the conversion of a model's answer."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Annotated, Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, JsonValue, model_validator
from typing_extensions import TypedDict

from perdure import Agent, Task, UserMessage, errors
from perdure.activities.output_validation import validator
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import openai_chat
from perdure.agents.definitions import AgentDefinition, Target, ToolDefinition, define
from perdure.protocols.native import TYPED
from perdure.schemas import output_type
from perdure.schemas.strict_schema import Schema, plain, strict
from perdure.turn.facts import AgentResolved, TurnStarted
from perdure.turn.fold import fold
from perdure.turn.keys import AgentKey
from perdure.turn.wire import TurnRequest

from ..support.thorough import examples


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """Where it is."""

    city: str = Field(max_length=30)
    floor: int = 0


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Order(BaseModel):
    """Everything that a field can be."""

    number: int = Field(ge=1, description="As on the paper.")
    note: str | None = None
    home: Place
    work: Place | None = Field(default=None, description="If there is one.")
    holiday: Place = Field(description="Where they are now.")
    color: Color
    tags: list[str]
    stock: dict[str, int]
    shelves: dict[Color, Place]
    floors: dict[int, dict[str, bool]]
    placed: datetime
    due: date
    total: Decimal
    pair: tuple[int, str]
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    priority: Literal["high", 1, None]
    alias: str = Field(alias="anotherName")


class Node(BaseModel):
    name: str
    children: list[Node] = []


@dataclass
class Point:
    x: int
    y: int


class Label(TypedDict):
    text: str


class Strict(BaseModel, extra="forbid"):
    """A type that knows all of its fields."""

    text: Literal["a", "b"]


def schema_of(wanted: Any) -> Schema:
    """The schema of a type that has one."""
    schema = output_type.schema_of(wanted)
    assert schema is not None
    return schema


def objects(node: Any) -> Iterator[dict[str, Any]]:
    """Every object of a schema."""
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield node
        for value in node.values():
            yield from objects(value)
    if isinstance(node, list):
        for value in node:
            yield from objects(value)


def keywords(node: Any) -> Iterator[str]:
    """Every keyword of a schema, without the names of its properties and definitions."""
    if isinstance(node, list):
        for value in node:
            yield from keywords(value)
    for name, value in node.items() if isinstance(node, dict) else ():
        yield name
        for inner in value.values() if name in ("properties", "$defs") else [value]:
            yield from keywords(inner)


@pytest.mark.accepts("X1")
def test_every_object_requires_all_of_its_properties_and_allows_no_other() -> None:
    """At every depth, with optional, nested, described, list, dict, union and datetime fields."""
    sent = strict(schema_of(Order))

    found = list(objects(sent))
    assert sent in found
    assert len(found) > 8
    assert [(one["required"], one["additionalProperties"]) for one in found] == [
        (list(one["properties"]), False) for one in found
    ]


@pytest.mark.accepts("X1")
def test_nothing_is_sent_that_an_api_does_not_know() -> None:
    """Only keywords that both structured output APIs have."""
    shared = {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "enum",
        "description",
        "format",
        "$ref",
        "$defs",
    }

    assert set(keywords(strict(schema_of(Order)))) <= shared


@pytest.mark.accepts("X1")
def test_strict_mode_is_asked_for() -> None:
    """OpenAI's API is asked for strict mode, and refuses a schema that does not qualify."""
    sent = strict(schema_of(Order))
    request = ModelRequest(
        model="gpt-5-mini",
        messages=(UserMessage.of("go"),),
        response_schema=sent,
        response_name="Order",
    )

    body = openai_chat.body_of(request)

    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "Order", "schema": sent, "strict": True},
    }


@pytest.mark.accepts("X1")
def test_fields_are_written_as_a_model_can_be_held_to_them() -> None:
    """Optional is a union with null, an enum its values, a datetime a string with a format, a map a
    list of entries; limits are described in text.
    """
    fields = strict(schema_of(Order))["properties"]

    assert fields["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert fields["number"] == {"type": "integer", "description": "As on the paper. [minimum: 1]"}
    assert fields["work"] == {
        "anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}],
        "description": "If there is one.",
    }
    assert fields["placed"] == {"type": "string", "format": "date-time"}
    assert fields["tags"] == {"type": "array", "items": {"type": "string"}}
    assert fields["priority"] == {"type": ["string", "integer", "null"], "enum": ["high", 1, None]}
    assert fields["pet"] == {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}
    assert fields["anotherName"] == {"type": "string"}
    entry = {"key": {"type": "string"}, "value": {"type": "integer"}}
    assert fields["stock"]["items"] == {
        "type": "object",
        "properties": entry,
        "required": ["key", "value"],
        "additionalProperties": False,
    }
    assert strict(schema_of(Order))["$defs"]["Color"] == {"type": "string", "enum": ["red", "blue"]}


@pytest.mark.accepts("X1")
def test_two_fields_of_one_type_share_its_definition() -> None:
    """References stay inside the schema; one with a description of its own, which no API allows,
    becomes a copy with both.
    """
    sent = strict(schema_of(Order))

    assert sent["properties"]["home"] == {"$ref": "#/$defs/Place"}
    assert sent["properties"]["holiday"] == {
        **sent["$defs"]["Place"],
        "description": "Where they are now. Where it is.",
    }
    assert sent["$defs"]["Place"]["properties"]["floor"] == {
        "type": "integer",
        "description": "[default: 0]",
    }


@pytest.mark.accepts("X1")
@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (Node, r"agent clerk: output type Node: children\[\]: Node contains itself"),
        (list[Node], "contains itself"),
        (Any, "any value may stand there"),
        (JsonValue, "any value may stand there"),
        (dict[str, Any], "any value may stand there"),
        (list, "any value may stand there"),
        (object(), "output type"),
        ("Nowhere", "output is the string 'Nowhere'; give the type itself"),
        (len, "output type"),
        (lambda: 1, "it is a function"),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_type_that_no_model_can_be_held_to_is_refused_when_the_agent_is_built(
    wanted: Any, says: str
) -> None:
    """The message has the agent, the type and the position in it."""
    with pytest.raises(errors.ConfigurationError, match=says):
        Agent(name="clerk", model="scripted:clerk", output=wanted)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (
            {"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}},
            "a: there is no definition for 'https://example.org/a.json'",
        ),
        ({"$ref": "#/$defs/A"}, "there is no definition"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "A contains itself"),
        ({"type": "object", "properties": {"a": True}}, "a: any value"),
        ({"type": 5}, "any value"),
        ({"type": ["object", "null"]}, "any value"),
        ({"anyOf": []}, "any value"),
        ({"enum": [[1]]}, "a choice must be of texts"),
        ({"enum": []}, "a choice must be of texts"),
        ({"type": "array"}, "any value"),
    ],
    ids=str,
)
def test_schema_of_another_language_is_refused_by_what_is_wrong_with_it(
    schema: Schema, says: str
) -> None:
    """A start from another language may have any schema."""
    with pytest.raises(errors.InvalidRequestError, match=says):
        TurnRequest(agent="clerk", task=Task(content="go"), output_schema=schema).check()


A: Schema = {"$ref": "#/$defs/a"}


def in_levels(count: int, inner: Callable[[Schema], Schema]) -> Schema:
    """Definitions of which each refers to the next, and the last one is a string."""
    made: dict[str, Any] = {f"L{n}": inner({"$ref": f"#/$defs/L{n + 1}"}) for n in range(count)}
    return {"$defs": {**made, f"L{count}": {"type": "string"}}, "$ref": "#/$defs/L0"}


def within_each_other(keyword: str, levels: int) -> Schema:
    """Nested schemas of this depth."""
    made: Schema = {}
    for _ in range(levels):
        made = {keyword: made}
    return made


def twice(one: Schema) -> Schema:
    """An object with two fields, each with its own description."""
    return {"type": "object", "properties": {name: {**one, "description": name} for name in "ab"}}


LONG_DEFS: Schema = {"a": {"type": "string", "description": "x" * 20_000}}
TOO_LARGE: dict[str, tuple[Schema, str]] = {
    "copies of copies": (in_levels(9, twice), "comes to more than 10000 values"),
    "copies of words": (
        {
            "$defs": LONG_DEFS,
            "type": "object",
            "properties": {str(n): {**A, "description": "b"} for n in range(60)},
        },
        "comes to more than .* bytes",
    ),
    "values that are not sent": (
        {"type": "string", "allOf": [{"enum": [*range(10_000)]}]},
        "it has more than 10000 values",
    ),
    "depth that is not sent": (
        {"type": "string", "not": within_each_other("not", 130)},
        "it is nested more than 64 deep",
    ),
    "depth by references": (
        in_levels(70, lambda one: {"type": "array", "items": one}),
        r"\[\]: it is nested more than 64 deep",
    ),
}


@pytest.mark.accepts("C1")
@pytest.mark.parametrize(("schema", "says"), TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_schema_that_is_too_large_is_refused_at_the_start(schema: Schema, says: str) -> None:
    """In its original form, and in the strict form, where a described definition is repeated for
    each use.
    """
    with pytest.raises(errors.InvalidRequestError, match=says):
        TurnRequest(agent="clerk", task=Task(content="go"), output_schema=schema).check()


def test_schema_counts_as_part_of_what_is_asked() -> None:
    """It is part of every request."""
    schema: Schema = {"type": "string", "enum": ["x" * 1_000] * 1_100}

    with pytest.raises(errors.TooLargeError):
        TurnRequest(agent="clerk", task=Task(content="go"), output_schema=schema).check()


LOOK = ToolDefinition(
    name="look",
    description="",
    parameters={"type": "object"},
    activity="look",
    is_idempotent=True,
    timeout_s=1,
    schema_digest="0",
)
ORDER = Order(
    number=1,
    home=Place(city="Oslo"),
    holiday=Place(city="Rome", floor=2),
    color=Color.RED,
    tags=["new"],
    stock={"bolt": 2},
    shelves={Color.BLUE: Place(city="Bonn")},
    floors={1: {"lit": True}},
    placed=datetime.fromisoformat("2026-11-22T10:00:00+00:00"),
    due=date(2026, 12, 1),
    total=Decimal("2.5"),
    pair=(1, "a"),
    pet=Dog(kind="dog", tricks=["sit"]),
    priority=None,
    anotherName="x",
)
MAPS = ("stock", "shelves", "floors")


def entries(value: dict[str, Any]) -> list[dict[str, Any]]:
    """A map in the form of the strict schema."""
    return [{"key": key, "value": item} for key, item in value.items()]


def written(order: Order) -> dict[str, Any]:
    """An order as a model writes it with the strict schema."""
    value: dict[str, Any] = json.loads(order.model_dump_json(by_alias=True))
    value["floors"] = {key: entries(item) for key, item in value["floors"].items()}
    return {name: entries(item) if name in MAPS else item for name, item in value.items()}


places = st.builds(Place, city=st.text(max_size=30), floor=st.integers(-5, 5))
pets = st.builds(Cat, kind=st.just("cat"), lives=st.integers(0, 9)) | st.builds(
    Dog, kind=st.just("dog"), tricks=st.lists(st.text())
)
orders = st.builds(
    lambda **fields: ORDER.model_copy(update=fields),
    note=st.none() | st.text(),
    work=st.none() | places,
    tags=st.lists(st.text(), max_size=3),
    stock=st.dictionaries(st.text(), st.integers(-(2**40), 2**40), max_size=3),
    shelves=st.dictionaries(st.sampled_from(Color), places),
    floors=st.dictionaries(
        st.integers(-9, 9), st.dictionaries(st.text(), st.booleans(), max_size=2), max_size=2
    ),
    pet=pets,
    priority=st.sampled_from(["high", 1, None]),
)


@pytest.mark.slow
@given(order=orders)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_fits_the_strict_schema_comes_back_as_it_was_meant(order: Order) -> None:
    """The strict schema accepts what is written for it, and parsing returns the instance; values in
    the ordinary form are accepted, too.
    """
    schema = schema_of(Order)
    value = written(order)
    validator(strict(schema))(value)

    assert output_type.read(json.dumps(value), Order, schema) == order
    assert output_type.read(order.model_dump_json(by_alias=True), Order, schema) == order


@pytest.mark.accepts("X4")
@pytest.mark.parametrize(
    ("wanted", "text", "expected"),
    [
        (int, '{"value": 42}', 42),
        (int, "42", 42),
        (list[Place], '{"value": [{"city": "Oslo", "floor": 1}]}', [Place(city="Oslo", floor=1)]),
        (Literal["paid", "open"], '{"value": "paid"}', "paid"),
        (Place | None, '{"value": null}', None),
        (Cat | Dog, '{"value": {"kind": "cat", "lives": 9}}', Cat(kind="cat", lives=9)),
        (
            dict[str, int],
            '{"value": [{"key": "a", "value": 1}, {"key": "value", "value": 2}]}',
            {"a": 1, "value": 2},
        ),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (dict[str, int] | list[int], '{"value": []}', []),
        (dict[str, int] | None, '{"value": [{"key": "a", "value": 1}]}', {"a": 1}),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (Label, '{"text": "x"}', {"text": "x"}),
        (tuple[int, str], '{"value": [1, "a"]}', (1, "a")),
        (Color, '{"value": "red"}', Color.RED),
        (date, '{"value": "2026-11-22"}', date(2026, 11, 22)),
        (str, '{"not": "read"}', '{"not": "read"}'),
        (None, '{"text": 1}', {"text": 1}),
    ],
    ids=str,
)
def test_types_that_are_no_objects_are_wrapped_and_unwrapped(
    wanted: Any, text: str, expected: Any
) -> None:
    """Strict APIs require an object at the root; the instance is inside."""
    schema = output_type.schema_of(wanted) if wanted is not None else schema_of(Label)

    assert output_type.read(text, wanted, schema) == expected
    assert schema is None or strict(schema)["type"] == "object"


@pytest.mark.accepts("X2")
@pytest.mark.parametrize(
    "text",
    [
        '{"text": "a"}',
        ' \n{"text": "a"}\n ',
        '```json\n{"text": "a"}\n```',
        '```\n{"text":\n "a"}```',
        'Here you are:\n\n```JSON\n{"text": "a"}\n```\nAnything else?',
        '```{"text": "a"}```',
    ],
    ids=repr,
)
def test_json_is_read_plain_and_between_fences(text: str) -> None:
    """With any text around the fences."""
    assert output_type.read(text, Label, schema_of(Label)) == {"text": "a"}


def test_fences_inside_a_text_are_part_of_it() -> None:
    """Plain JSON is tried first, and for fences the outermost pair counts."""
    inner = {"text": "```py\nprint()\n```"}

    assert output_type.read(json.dumps(inner), Label, schema_of(Label)) == inner
    assert output_type.read(f"```json\n{json.dumps(inner)}\n```", Label, schema_of(Label)) == inner


@pytest.mark.accepts("X2")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is no JSON: EOF while parsing a value"),
        ("The label is a.", "it is no JSON: expected value"),
        ('{"text": "a"', "it is no JSON: EOF while parsing an object"),
        ('{"text": "a"} and more', "it is no JSON: trailing characters"),
        ('{"text": NaN}', "it is no JSON"),
        ("[" * 100_000, "it is no JSON: recursion limit exceeded"),
        ("```json\nnothing\n```", "what stands between the fences is no JSON"),
        ("``````", "what stands between the fences is no JSON"),
        ('{"text": 5}', "text: Input should be a valid string"),
        ('{"label": "a"}', "text: Field required"),
        ('["a"]', "answer: Input should be"),
        ("\ud800", "it is no JSON"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_does_not_fit_is_said_for_the_model(text: str, says: str) -> None:
    """Prose, nothing, a half, nonsense: the result is a reason, never another error."""
    with pytest.raises(ValueError, match=says):
        output_type.read(text, Label, schema_of(Label))


def test_key_that_stands_twice_is_not_lost_in_silence() -> None:
    """A list of entries can have duplicates, which a map cannot."""
    with pytest.raises(ValueError, match="the key 'a' stands twice"):
        plain(schema_of(dict[str, int]), [{"key": "a", "value": 1}, {"key": "a", "value": 2}])


def test_objection_tells_the_reason_first_and_then_the_schema() -> None:
    """A single line for people; a schema that is too long is not repeated."""
    label = output_type.objection("text:\nmissing", schema_of(Label))
    long = output_type.objection(
        "x" * 5_000, {"type": "string", "enum": [f"{number:05}" for number in range(2_000)]}
    )

    first, second = label.split("\n")
    assert first == "the answer is not what was asked for: text: missing"
    assert json.loads(second.partition("schema: ")[2]) == strict(schema_of(Label))
    assert len(long) < 1_200


def test_rules_that_are_broken_quote_nothing_of_the_value() -> None:
    """Of a schema and of a type: names that the value has made up are not in the paths."""
    value = {"text": "secret", "secret": {"count": "secret"}}
    count: JsonValue = {"type": "object", "properties": {"count": {"type": "integer"}}}
    schema: Schema = {
        "type": "object",
        "properties": {"text": {"type": "string", "enum": ["a", "b"]}},
        "additionalProperties": count,
    }

    with pytest.raises(output_type.MisfitError, match="'secret' is not one of") as by_schema:
        validator(schema)(value)
    with pytest.raises(output_type.MisfitError, match="secret: Extra inputs") as by_type:
        output_type.instance_of(Strict, value)

    assert by_schema.value.rules(schema) == "?.count: type; text: enum"
    assert by_type.value.rules(schema) == "text: literal_error; ?: extra_forbidden"


def test_objection_with_a_summary_has_the_reason_in_its_second_line() -> None:
    lines = output_type.objection("'x' is wrong", {"type": "string"}, "answer: enum").split("\n")

    assert lines[0] == "the answer is not what was asked for: answer: enum"
    assert lines[1] == "'x' is wrong"
    assert lines[2].startswith("Answer again, with nothing but JSON of this schema")


def test_answers_are_called_by_their_type() -> None:
    """APIs require a name of letters, digits, `_` and `-`, of at most 64 characters."""
    assert [
        output_type.name_of(schema) for schema in (schema_of(Order), schema_of(list[Order]), None)
    ] == ["Order", "answer", "answer"]
    assert output_type.name_of({"title": "Größe[int] " + "x" * 100}) == "Gr__e_int__" + "x" * 53


def test_schema_is_pinned_with_the_agent_and_older_definitions_have_none() -> None:
    """A definition from before typed output is one of text."""
    definition = define(
        Agent(name="clerk", model="a:b", output=Label),
        chain=[Target(model="a:b")],
        activity_of=lambda _: "",
    )
    older = AgentDefinition.model_validate_json(
        '{"name": "clerk", "instructions": "", "model": "a:b"}'
    )

    assert definition.output_schema == schema_of(Label)
    assert older.output_schema is None


@pytest.mark.parametrize("asks", ["agent", "caller"])
@pytest.mark.parametrize("tools", [(), (LOOK,)], ids=["alone", "beside tools"])
def test_schema_is_part_of_what_a_call_may_cost(
    asks: str, tools: tuple[ToolDefinition, ...]
) -> None:
    """Its bytes are in the bound of the first request, wherever it comes from; with tools twice,
    because then it is repeated in text.
    """
    schema = schema_of(Order)
    size = len(json.dumps(strict(schema), ensure_ascii=False, separators=(",", ":")).encode())
    of_agent, of_caller = (schema, None) if asks == "agent" else (None, schema)
    request = TurnRequest(agent="clerk", task=Task(content="go"), output_schema=of_caller)
    definition = AgentDefinition(
        name="clerk", instructions="", model="a:b", tools=tools, output_schema=of_agent
    )
    untyped = definition.model_copy(update={"output_schema": None})

    state = fold([TurnStarted(request), AgentResolved(AgentKey(), definition)])
    without = fold(
        [
            TurnStarted(TurnRequest(agent="clerk", task=Task(content="go"))),
            AgentResolved(AgentKey(), untyped),
        ]
    )

    assert state.tokens.base - without.tokens.base == (len(TYPED) + 2 * size if tools else size)
    assert state.output_schema(definition) == schema


@pytest.mark.parametrize(
    ("schema", "value", "says"),
    [
        (
            {
                "type": "object",
                "properties": {"a": {"type": "integer", "minimum": 3}},
                "required": ["a"],
            },
            {"a": 1},
            "a: 1 is less than the minimum",
        ),
        (
            {"type": "object", "properties": {}, "required": ["a"]},
            {},
            "answer: 'a' is a required property",
        ),
        ({"type": "string", "format": "date-time"}, "soon", "'soon' is not a 'date-time'"),
        ({"type": "string", "format": "uuid"}, "1", "is not a 'uuid'"),
        ({"type": "string", "pattern": r"^\p{Lu}"}, "small", "does not match"),
        (
            {
                "anyOf": [
                    {"type": "null"},
                    {"type": "object", "properties": {"x": {"type": "string"}}},
                ]
            },
            {"x": 1},
            "x: 1 is not of type 'string'",
        ),
        (
            {"type": "object", "patternProperties": {"^a": {"type": "integer"}}},
            {"ab": "x", "b": "y"},
            "^ab: 'x' is not of type 'integer'",
        ),
    ],
    ids=str,
)
def test_value_that_a_schema_does_not_take_is_said_with_its_place(
    schema: Schema, value: Any, says: str
) -> None:
    """The form in which the worker has a caller's type."""
    with pytest.raises(ValueError, match=says):
        validator(schema)(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "format": "date-time"}, "2026-11-22T10:00:00Z"),
        ({"type": "string", "format": "unheard-of"}, "x"),
        ({"type": "string", "pattern": "(?=only Python has this)"}, "x"),
        ({"type": "string", "pattern": "["}, "x"),
        ({"type": ["integer", "null"]}, None),
    ],
    ids=str,
)
def test_value_that_a_schema_takes_passes(schema: Schema, value: Any) -> None:
    """A pattern in another engine's syntax is skipped: the caller's type is validated in the
    end.
    """
    validator(schema)(value)


def test_pattern_that_would_take_for_ever_does_not() -> None:
    """Python's engine would need years for this; untrusted patterns are matched in linear time."""
    with pytest.raises(ValueError, match="does not match"):
        validator({"type": "string", "pattern": "^(a+)+$"})("a" * 5_000 + "b")


def test_reference_to_another_server_is_not_fetched() -> None:
    """It is an error of the request, and nothing is downloaded."""
    asked: list[str] = []

    class Schemas(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "null"}')

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Schemas) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(
            errors.InvalidRequestError, match=r"only definitions under \$defs can be used"
        ):
            validator({"not": {"$ref": f"http://127.0.0.1:{server.server_port}/schema.json"}})(
                {"a": 1}
            )
        server.shutdown()

    assert asked == []


def test_what_is_no_schema_is_refused_before_it_is_used() -> None:
    """For example, a limit that is a string."""
    with pytest.raises(errors.InvalidRequestError, match="the output schema is invalid"):
        validator({"type": "integer", "minimum": "five"})


def circle(**inner: Any) -> Schema:
    """A schema in which an unused part refers to `a`, and `a` is `inner`."""
    return {
        "$defs": {"a": inner, "b": {"$ref": "#/$defs/a"}},
        "type": "object",
        "properties": {},
        "allOf": [{"$ref": "#/$defs/a"}],
    }


B: Schema = {"$ref": "#/$defs/b"}


@pytest.mark.accepts("C1")
@pytest.mark.parametrize(
    "schema",
    [
        circle(**A),
        circle(**B),
        *(circle(**{keyword: B}) for keyword in ("not", "if", "then", "else")),
        *(circle(**{keyword: [{"type": "string"}, A]}) for keyword in ("anyOf", "oneOf", "allOf")),
        circle(dependentSchemas={"x": {"not": A}}),
        circle(allOf=[{"anyOf": [{"not": B}]}], properties={"$ref": {"type": "string"}}),
    ],
    ids=str,
)
def test_references_that_lead_back_to_where_they_begin_are_refused_at_the_start(
    schema: Schema,
) -> None:
    """For every keyword that can refer, and even in an unused part."""
    with pytest.raises(errors.InvalidRequestError, match="lead back to where they begin"):
        TurnRequest(agent="clerk", task=Task(content="go"), output_schema=schema).check()


def test_references_to_what_is_inside_are_no_circle() -> None:
    """A list of such lists ends with the value."""
    schema = circle(type="array", items=A)

    TurnRequest(agent="clerk", task=Task(content="go"), output_schema=schema).check()
    with pytest.raises(ValueError, match="1 is not of type 'array'"):
        validator(schema)([[[1]]])


IN_LISTS: dict[str, Schema] = {
    "items": {"type": "array", "items": A},
    "alternatives": {"type": "array", "items": {"anyOf": [A, {"type": "null"}]}},
    "conditions": {"type": "array", "items": {"not": {"not": A}}},
    "contained": {"type": "array", "contains": A},
}


@pytest.mark.accepts("C2")
@pytest.mark.parametrize("inner", IN_LISTS.values(), ids=IN_LISTS.keys())
@pytest.mark.table(1)
def test_answer_of_any_depth_is_held_to_a_schema_or_refused_typed(inner: Schema) -> None:
    """It never reaches Python's recursion limit, which a library used by `jsonschema` does not
    survive.
    """
    value: Any = []
    refused: set[str] = set()
    for _ in range(190):
        value = [value]
        try:
            validator({"$defs": {"a": inner}, "type": "object", "additionalProperties": A})(
                {"x": value}
            )
        except ValueError:
            continue
        except errors.InvalidRequestError as error:
            refused.add(str(error))

    assert refused == {"the output schema cannot be used: checking the answer is nested too deeply"}


@pytest.mark.accepts("C2")
@pytest.mark.slow
def test_schema_that_is_nested_too_deep_to_be_read_is_refused() -> None:
    """At every depth that a start may have."""
    schema: Schema = {}
    for depth in range(125):
        schema = {"not": schema}
        with (
            pytest.raises(errors.InvalidRequestError, match="nested more than 100 deep")
            if depth > 99
            else contextlib.nullcontext()
        ):
            validator(schema)


class Forgetful(BaseModel):
    """Its validator does not return the instance."""

    euros: int

    @model_validator(mode="after")
    def check(self) -> Any:
        """Check nothing."""


@pytest.mark.accepts("E25")
def test_validator_of_the_whole_type_that_returns_none_is_an_error_of_the_code() -> None:
    """The model cannot correct it, so it is not asked again. A type that allows None keeps it."""
    with pytest.raises(
        errors.ConfigurationError,
        match="a validator of the output type Forgetful returned None; it must return the value",
    ):
        output_type.read('{"euros": 1}', Forgetful, output_type.schema_of(Forgetful))
    optional: Any = int | None
    assert output_type.instance_of(optional, None) is None
