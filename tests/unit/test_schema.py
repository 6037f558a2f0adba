"""The schema of a function's arguments, and invalid arguments."""

import decimal
from collections.abc import Callable
from datetime import date, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, Field, SecretStr, StringConstraints

from perdure import ToolContext, errors
from perdure.schemas import tool_arguments

if TYPE_CHECKING:
    from decimal import Decimal


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """Where something is."""

    street: str = Field(description="Street and number.")
    floor: int = 0


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


def schema_of(function: Callable[..., object], *hidden: str) -> dict[str, Any]:
    return tool_arguments.arguments_of(function, hidden).schema


def paint(  # noqa: D417 - two arguments without words are part of the test
    thing: str, colour: Colour, coats: int = 2, note: str | None = None, where: Place | None = None
) -> None:
    """Paint a thing.

    Slowly.

    Args:
        thing: What to paint.
        colour: In which colour.
        coats: How often.
    """


@pytest.mark.accepts("T16")
def test_schema_says_what_the_signature_and_the_docstring_say() -> None:
    """Types, defaults, optional, enum and nested model, with descriptions; no titles."""
    made = schema_of(paint)

    assert made == {
        "type": "object",
        "additionalProperties": False,
        "required": ["thing", "colour"],
        "properties": {
            "thing": {"type": "string", "description": "What to paint."},
            "colour": {"$ref": "#/$defs/Colour", "description": "In which colour."},
            "coats": {"type": "integer", "default": 2, "description": "How often."},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "where": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None},
        },
        "$defs": {
            "Colour": {"type": "string", "enum": ["red", "blue"]},
            "Place": {
                "type": "object",
                "description": "Where something is.",
                "required": ["street"],
                "properties": {
                    "street": {"type": "string", "description": "Street and number."},
                    "floor": {"type": "integer", "default": 0},
                },
            },
        },
    }


@pytest.mark.accepts("T16")
def test_arguments_arrive_as_the_types_of_the_signature() -> None:
    """A nested model, an enum and a date are built; what is left out has its default."""

    def visit(
        place: Place,
        colour: Colour,
        day: date,
        tags: list[str],
        pace: Literal["slow", "fast"] = "slow",
        extra: object = None,
    ) -> None: ...

    arguments = tool_arguments.arguments_of(visit).parse(
        '{"place": {"street": "Elm 1"}, "colour": "blue", "day": "2026-11-21", "tags": ["a", "b"],'
        ' "extra": {"any": [1]}}'
    )

    assert arguments == {
        "place": Place(street="Elm 1"),
        "colour": Colour.BLUE,
        "day": date(2026, 11, 21),
        "tags": ["a", "b"],
        "pace": "slow",
        "extra": {"any": [1]},
    }


GOOGLE = """Go.

Args:
    where: To which place.
"""
NUMPY = """Go.

Parameters
----------
where : str
    To which place.
"""
REST = """Go.

:param where: To which place.
"""
EPYDOC = """Go.

@param where: To which place.
"""


@pytest.mark.accepts("T16")
@pytest.mark.parametrize(
    "docstring", [GOOGLE, NUMPY, REST, EPYDOC], ids=["google", "numpy", "rest", "epydoc"]
)
def test_descriptions_are_read_from_every_docstring_style(docstring: str) -> None:
    """An argument's description goes to the argument, the rest describes the tool."""

    def go(where: str) -> None: ...

    go.__doc__ = docstring

    assert schema_of(go)["properties"] == {
        "where": {"type": "string", "description": "To which place."}
    }
    assert tool_arguments.description_of(go) == "Go."


@pytest.mark.accepts("T16")
def test_description_of_an_annotation_is_kept() -> None:
    """`Annotated[…, Field(description=…)]` describes an argument that the docstring does not
    mention, and its bounds apply.
    """

    def find(limit: Annotated[int, Field(description="At most this many.", ge=1)]) -> None: ...

    assert schema_of(find)["properties"] == {
        "limit": {"type": "integer", "minimum": 1, "description": "At most this many."}
    }


def test_default_given_as_a_field_is_the_default_of_the_field() -> None:
    """`limit: int = Field(5, …)` means 5: the function never gets the `FieldInfo` itself."""

    def find(limit: int = Field(5, description="At most this many.")) -> None: ...

    assert tool_arguments.arguments_of(find).parse("{}") == {"limit": 5}


@pytest.mark.accepts("T16")
def test_function_without_arguments_takes_an_empty_object() -> None:
    """As does the empty string that some models send instead."""

    def now() -> None: ...

    arguments = tool_arguments.arguments_of(now)

    assert arguments.schema == {"type": "object", "additionalProperties": False, "properties": {}}
    assert [arguments.parse(text) for text in ("{}", "", " \n")] == [{}, {}, {}]


@pytest.mark.accepts("T16")
def test_names_that_pydantic_keeps_for_itself_are_fine() -> None:
    """`schema`, `model_config` and `_x` are ordinary parameters."""

    def odd(schema: str, model_config: int, _x: bool, p1: str = "") -> None: ...

    arguments = tool_arguments.arguments_of(odd)

    assert list(schema_of(odd)["properties"]) == ["schema", "model_config", "_x", "p1"]
    assert arguments.parse('{"schema": "s", "model_config": 1, "_x": true}') == {
        "schema": "s",
        "model_config": 1,
        "_x": True,
        "p1": "",
    }


def test_field_name_of_ours_is_no_way_to_pass_an_argument() -> None:
    """Only the parameter's own name counts, not the internal one."""

    def go(where: str) -> None: ...

    with pytest.raises(
        ValueError, match="where: Field required; p0: Extra inputs are not permitted"
    ):
        tool_arguments.arguments_of(go).parse('{"p0": "home"}')


@pytest.mark.accepts("T16")
def test_recursive_argument_is_described() -> None:
    """A tree in the schema, and in the function's arguments."""

    def plant(tree: Tree) -> None: ...

    arguments = tool_arguments.arguments_of(plant)

    assert schema_of(plant)["properties"] == {"tree": {"$ref": "#/$defs/Tree"}}
    assert arguments.parse('{"tree": {"name": "a", "children": [{"name": "b"}]}}') == {
        "tree": Tree(name="a", children=[Tree(name="b")])
    }


def test_default_that_is_no_json_is_left_out_of_the_schema_and_still_used() -> None:
    """A sentinel is for the function; for the model, the argument is not required."""
    nothing = object()

    def find(word: Any = nothing, within: timedelta = timedelta(days=1)) -> None: ...

    assert schema_of(find)["properties"] == {
        "word": {},
        "within": {"type": "string", "format": "duration", "default": "P1D"},
    }
    assert tool_arguments.arguments_of(find).parse("{}") == {
        "word": nothing,
        "within": timedelta(days=1),
    }


@pytest.mark.accepts("T12", "T16")
def test_hidden_parameter_is_not_in_the_schema_and_cannot_be_sent() -> None:
    """It is neither shown to the model nor accepted from it."""

    def find(ctx: ToolContext[None], word: str) -> None: ...

    assert list(schema_of(find, "ctx")["properties"]) == ["word"]
    with pytest.raises(ValueError, match="ctx: Extra inputs are not permitted"):
        tool_arguments.arguments_of(find, {"ctx"}).parse('{"word": "a", "ctx": {}}')


@pytest.mark.accepts("T7")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Invalid JSON: EOF"),
        ("no json", "Invalid JSON: expected ident"),
        ('{"word": "a"} and more', "Invalid JSON: trailing characters"),
        ("[1]", "Input should be an object"),
        ("null", "Input should be an object"),
        ('"word"', "Input should be an object"),
        ("{}", "word: Field required"),
        ('{"word": 1}', "word: Input should be a valid string"),
        ('{"word": "a", "limit": "many"}', "limit: Input should be a valid integer"),
        ('{"word": "a", "limit": 1.5}', "limit: Input should be a valid integer"),
        ('{"word": "a", "limit": 1e400}', "limit: Input should be a finite number"),
        ('{"word": "a", "limit": ' + "9" * 5000 + "}", "Invalid JSON: number out of range"),
        ('{"word": "a", "wrod": "b"}', "wrod: Extra inputs are not permitted"),
        ('{"word": "a", "limit": ' + "[" * 100_000, "Invalid JSON: recursion limit exceeded"),
    ],
    ids=lambda value: value[:30],
)
def test_arguments_that_do_not_fit_say_what_is_wrong(text: str, reason: str) -> None:
    """The message is for the model: position and problem, without a link to pydantic."""

    def find(word: str, limit: int = 5) -> None: ...

    with pytest.raises(ValueError, match=reason) as caught:
        tool_arguments.arguments_of(find).parse(text)

    assert "pydantic" not in str(caught.value)


@pytest.mark.accepts("T7")
def test_only_the_first_five_mistakes_are_named() -> None:
    """A model with a hundred wrong arguments gets a short message."""

    def go() -> None: ...

    with pytest.raises(ValueError) as caught:
        tool_arguments.arguments_of(go).parse(
            "{" + ", ".join(f'"x{n}": 1' for n in range(100)) + "}"
        )

    assert str(caught.value) == "; ".join(f"x{n}: Extra inputs are not permitted" for n in range(5))


def variable(*words: str) -> None: ...
def keywords(**words: str) -> None: ...
def positional(word: str, /) -> None: ...
def hidden_import(price: "Decimal") -> None: ...


class Opaque:
    """Something that is no JSON."""


def no_json(thing: Opaque) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (variable, r"variable: a model cannot fill the parameter \*words"),
        (keywords, r"keywords: a model cannot fill the parameter \*\*words"),
        (positional, r"positional: a model cannot fill the parameter word \(positional-only\)"),
        (hidden_import, "hidden_import: an annotation cannot be resolved"),
        (
            no_json,
            (
                "no_json: parameter [a-z]+: .*Opaque cannot be read from JSON; a model can only"
                " send JSON"
            ),
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_signature_that_a_model_cannot_fill_is_a_configuration_error(
    function: Callable[..., object], reason: str
) -> None:
    """The error has the tool and the parameter."""
    with pytest.raises(errors.ConfigurationError, match=f"(?s){reason}"):
        tool_arguments.arguments_of(function)


class Line(BaseModel):
    """Part of an order."""

    count: int = 1


def order(
    euros: int,
    note: Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)] = "",
    at: datetime | None = None,
    line: Line | None = None,
    prices: list[decimal.Decimal] = [],  # noqa: B006 - it is only read
    key: SecretStr | None = None,
    cents: Annotated[int, BeforeValidator(lambda given: given * 100)] = 0,
) -> None:
    """Order something."""


@pytest.mark.accepts("A8")
@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ('{"euros": 1}', '{"euros": 1}'),
        ('{"euros":"1","note":" ADMIN "}', '{"euros":1,"note":"admin"}'),
        ('{"euros":1,"at":0}', '{"euros":1,"at":"1970-01-01T00:00:00Z"}'),
        ('{"euros":1,"line":{"count":"4","odd":1}}', '{"euros":1,"line":{"count":4}}'),
        ('{"euros":1,"prices":["0.10",2]}', '{"euros":1,"prices":[0.1,2]}'),
        ('{"euros":1,"prices":["1E+999999999"]}', '{"euros":1,"prices":["1E+999999999"]}'),
        ('{"euros":"1","euros":"2"}', '{"euros":2}'),
        ('{"euros":"1","key":"x"}', '{"euros":"1","key":"x"}'),
        ('{"euros":"1","cents":5}', '{"euros":"1","cents":5}'),
        ('{"euros":"many"}', '{"euros":"many"}'),
        ("no JSON", "no JSON"),
    ],
)
def test_arguments_are_written_as_the_function_gets_them(written: str, normal: str) -> None:
    """No default is added, and a value without a round trip through JSON is unchanged."""
    assert tool_arguments.arguments_of(order).normal(written) == normal


def _plain(text: str, count: int = 1, names: list[str] | None = None, flag: bool = False) -> None:
    """Take types of Python alone."""


def _limited(count: Annotated[int, Field(gt=0)]) -> None:
    """Take a constraint."""


def _nested(cents: list[Annotated[int, BeforeValidator(lambda given: given * 100)]]) -> None:
    """Take a validator within a list."""


def _placed(place: Place) -> None:
    """Take a type of the user."""


@pytest.mark.parametrize(
    ("function", "runs"), [(_plain, False), (_limited, True), (_nested, True), (_placed, True)]
)
def test_arguments_that_may_run_code_of_users(function: Callable[..., None], runs: bool) -> None:
    """Only these are read in a thread."""
    assert tool_arguments.arguments_of(function).runs_user_code is runs
