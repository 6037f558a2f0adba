"""Questions to people: what a model may ask, and which answers fit."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field
from pydantic_core import to_json

from perdure import errors, limits
from perdure.agents import questions
from perdure.agents.questions import PinnedQuestion
from perdure.schemas import forms
from perdure.toolboxes import asking, question_tool
from perdure.values.questions import Question

OPEN = PinnedQuestion(expires_s=3600, is_open=True)
TEXT = {"type": "string"}


def form(**properties: Any) -> dict[str, Any]:
    """The schema of an object."""
    return {"type": "object", "properties": properties}


def nested(depth: int) -> dict[str, Any]:
    """A form whose only field is nested."""
    return form(a=nested(depth - 1)) if depth > 1 else TEXT


def read(**arguments: Any) -> tuple[Question, timedelta]:
    """The question of a call of `ask`."""
    return questions.read(OPEN, to_json(arguments).decode())


BAD = [
    ({}, "question is missing"),
    ({"question": 5}, "question is missing, or no text"),
    ({"question": "  "}, "the question is empty"),
    ({"question": "a" * 4_001}, "the question has 4001 characters, more than 4000"),
    ({"question": "a", "option": ["b"]}, "there is no argument 'option'"),
    ({"question": "a", "options": "b"}, "options is not a list of texts"),
    ({"question": "a", "options": ["b", 1]}, "options is not a list of texts"),
    ({"question": "a", "options": ["b", "b"]}, "two options are the same"),
    ({"question": "a", "options": ["b", " "]}, "an option is empty"),
    ({"question": "a", "options": ["b" * 201]}, "an option has 201 characters, more than 200"),
    ({"question": "a", "options": [f"{n}" for n in range(21)]}, "there are 21 options"),
    ({"question": "a", "options": ["b"], "schema": form(c=TEXT)}, "not both"),
    ({"question": "a", "options": ["b"], "default": "c"}, "the default is no possible answer"),
    ({"question": "a", "default": 5}, "the default is no possible answer"),
    ({"question": "a", "default": "d" * 20_000}, "bytes, more than"),
    ({"question": "a", "schema": []}, "schema is not an object"),
    ({"question": "a", "schema": {}}, "not that of an object with properties"),
    ({"question": "a", "schema": TEXT}, "not that of an object with properties"),
    ({"question": "a", "schema": form()}, "not that of an object with properties"),
    ({"question": "a", "schema": form(b=TEXT), "default": "{"}, "the default is no JSON"),
    (
        {"question": "a", "schema": form(b=TEXT), "default": '{"b": 1}'},
        "b is 1, not of type string",
    ),
    ({"question": "a", "expires_minutes": 0}, "expires_minutes is not a number above 0"),
    ({"question": "a", "expires_minutes": -1}, "expires_minutes is not a number above 0"),
    ({"question": "a", "expires_minutes": True}, "expires_minutes is not a number above 0"),
    ({"question": "a", "expires_minutes": "1"}, "expires_minutes is not a number above 0"),
]
BAD_FORMS = [
    (form(a=True), 'the property "a" is not an object'),
    (form(a={}), 'the property "a" has no type'),
    (form(a={"type": "text"}), 'the type of the property "a" is "text"'),
    (form(a={"type": ["string", "null"]}), 'the type of the property "a" is'),
    (form(a={"type": "string", "pattern": "(a+)+$"}), '"pattern", which is not supported'),
    (form(a={"$ref": "#/$defs/A"}), '"$ref", which is not supported'),
    (form(a={"allOf": [TEXT]}), '"allOf", which is not supported'),
    (form(a={"enum": []}), 'enum of the property "a" is not a list with items'),
    (form(a={"enum": [{"b": 1}]}), "is not a text, a number or a boolean"),
    (form(a={"type": "string", "maxLength": -1}), "maxLength of"),
    (form(a={"type": "integer", "minimum": "1"}), "minimum of"),
    (form(a={"type": "array", "items": 5}), 'items of the property "a" is not an object'),
    (form(a={"type": "object", "properties": []}), "are not an object"),
    ({**form(a=TEXT), "required": ["b"]}, 'requires "b", which is none of its properties'),
    ({**form(a=TEXT), "required": [1]}, "not a list of names"),
    ({**form(a=TEXT), "additionalProperties": True}, "allows additional properties"),
    (nested(limits.FORM_DEPTH + 1), "nested more than 5 deep"),
    (form(a={"type": "string", "title": "x" * 9_000}), "bytes, more than 8192"),
]


@pytest.mark.accepts("J7")
@pytest.mark.parametrize(("arguments", "reason"), BAD)
def test_question_that_cannot_be_asked(arguments: dict[str, Any], reason: str) -> None:
    """The model reads why."""
    with pytest.raises(ValueError, match="^" + ".*") as caught:
        read(**arguments)

    assert reason in str(caught.value)


@pytest.mark.accepts("J7")
@pytest.mark.parametrize("arguments", ["", "[]", "nonsense", '"a"', '{"question": NaN}', "null"])
def test_arguments_that_are_no_question(arguments: str) -> None:
    """They are text that a model wrote."""
    with pytest.raises(ValueError, match=r"question is missing|its arguments are no"):
        questions.read(OPEN, arguments)


@pytest.mark.accepts("J7")
@pytest.mark.parametrize(("schema", "reason"), BAD_FORMS)
def test_schema_that_is_not_that_of_a_form(schema: dict[str, Any], reason: str) -> None:
    """Only what people can fill in, and what is checked in linear time."""
    with pytest.raises(ValueError, match="^" + ".*") as caught:
        forms.check(schema)

    assert reason in str(caught.value)


@pytest.mark.slow
@pytest.mark.accepts("J7")
def test_schema_of_many_levels_or_alternatives_is_refused_soon() -> None:
    """Its size and its depth are limited before anything is checked."""
    wide = form(**{f"a{number}": TEXT for number in range(100_000)})

    with pytest.raises(ValueError, match="bytes, more than 8192"):
        forms.check(wide)
    with pytest.raises(ValueError, match="nested more than 5 deep"):
        forms.check(nested(200))


FIT = [
    ({"type": "number"}, 5, True),
    ({"type": "number"}, 5.5, True),
    ({"type": "number"}, True, False),
    ({"type": "integer"}, 5.0, True),
    ({"type": "integer"}, 5.5, False),
    ({"type": "number"}, float("inf"), False),
    ({"type": "boolean"}, 1, False),
    ({"type": "null"}, None, True),
    ({"enum": [1, "a"]}, True, False),
    ({"enum": [1, "a"]}, "a", True),
    ({"const": "a"}, "b", False),
    ({"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 3}, 1, False),
    ({"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 3}, 3, False),
    ({"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 3}, 2, True),
    ({"type": "number", "maximum": 3}, 4, False),
    ({"type": "string", "minLength": 2}, "a", False),
    ({"type": "array", "items": TEXT, "maxItems": 1}, ["a", "b"], False),
    ({"type": "array", "items": TEXT, "minItems": 1}, [], False),
    ({"type": "array", "items": TEXT}, ["a", 1], False),
    ({"type": "array"}, [1], True),
    ({"anyOf": [TEXT, {"type": "null"}]}, None, True),
    ({"oneOf": [TEXT, {"type": "null"}]}, 1, False),
    (form(b=TEXT), {"b": "x", "c": 1}, False),
]


@pytest.mark.accepts("J3")
@pytest.mark.parametrize(("field", "value", "fits"), FIT)
def test_answer_fits_its_field(field: dict[str, Any], value: Any, fits: bool) -> None:
    """As JSON Schema says it."""
    schema = form(a=field)
    forms.check(schema)

    assert (not forms.misfit(schema, {"a": value})) is fits


@pytest.mark.accepts("J3")
def test_misfit_names_its_place() -> None:
    """Of each value that does not fit, at most five; names that people wrote are quoted."""
    schema = form(a={"type": "array", "items": form(b={"type": "integer"})})

    assert forms.misfit(schema, {"a": [{"b": 1}, {"b": "x\x1b"}]}) == (
        'a[2].b is "x\\u001b", not of type integer'
    )
    assert forms.misfit(schema, {"a b": 1}) == '"a b" is not asked for'
    assert forms.misfit(schema, {f"x{n}": n for n in range(9)}).count("not asked for") == 5


@pytest.mark.accepts("J6")
@pytest.mark.parametrize(
    ("minutes", "expires"),
    [(None, 3600), (1, 60), (0.5, 30), (60, 3600), (10**300, 3600)],
)
def test_model_shortens_the_time_of_a_question(minutes: float | None, expires: float) -> None:
    """The agent's own is the longest."""
    assert read(question="a", expires_minutes=minutes)[1] == timedelta(seconds=expires)


class Tree(BaseModel):
    """A type that contains itself."""

    below: list[Tree] = []


class Coded(BaseModel):
    """A type with a pattern."""

    code: str = Field(pattern="a+")


class Visit(BaseModel):
    """A type whose fields people can fill in."""

    day: date
    guests: int = Field(default=2, ge=1, le=8)


@pytest.mark.accepts("J4")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"answer": Tree}, "itself"),
        ({"answer": Coded}, "pattern"),
        ({"answer": int}, "not that of an object"),
        ({"answer": str}, "leave out answer="),
        ({"answer": Visit, "options": ["a"]}, "not both"),
        ({"options": ["a", "a"]}, "two options are the same"),
        ({"options": "abc"}, "options must be a list of texts"),
        ({"options": ["a"], "default": "b"}, "the default is no possible answer"),
        ({"expires": timedelta()}, "expires must be"),
        ({"expires": 5}, "expires must be"),
    ],
)
def test_question_in_code_that_is_not_valid(options: dict[str, Any], reason: str) -> None:
    """It is refused where it is made."""
    with pytest.raises(errors.ConfigurationError, match=reason):
        question_tool("ask_it", "Ask.", **options)


@pytest.mark.accepts("J4")
def test_question_in_code_has_the_schema_of_its_type() -> None:
    """The model writes the question alone."""
    tool = question_tool("visit", "Ask.", answer=Visit, default=Visit(day=date(2026, 1, 2)))
    renamed = tool.renamed("other")

    assert tool.arguments.schema["required"] == ["question"]
    assert tool.asks is not None
    assert renamed.asks == tool.asks
    question, _ = questions.read(tool.asks, '{"question": "When?"}')
    assert question.default == {"day": "2026-01-02", "guests": 2}
    assert questions.misfit(question, {"day": "2026-01-02", "guests": 9}) == (
        "guests is 9, more than 8"
    )
    with pytest.raises(ValueError, match="no argument 'options'"):
        questions.read(tool.asks, '{"question": "When?", "options": ["now"]}')


@pytest.mark.accepts("J1")
def test_tool_that_asks_runs_on_no_worker() -> None:
    """Its function says so."""
    [ask] = asking().tools

    assert (ask.name, ask.read_only) == ("ask", True)
    with pytest.raises(errors.ConfigurationError, match="runs on no worker"):
        ask("Which?")
