"""Tools that ask a person: the call waits until somebody answers, and runs on no worker.

The tool `ask` of `asking` lets the model write the options, the form, the default and the time; a
tool of `question_tool` has them in code. A question is read from a call by a pure function, because
the turn asks it itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from operator import not_
from typing import Annotated, Any

from pydantic import Field, JsonValue
from pydantic_core import from_json, to_json

from perdure import errors, limits, validation
from perdure.agents.tools import Tool, Toolbox
from perdure.base import Wire
from perdure.schemas import forms, output_type
from perdure.text import head
from perdure.validation import Must
from perdure.values.questions import Question

_ARGUMENTS = ("question", "options", "schema", "default", "expires_minutes")
_KINDS = {
    "description": validation.Text,
    "options": Annotated[object, Must("a list of texts", lambda given: _are_texts(given))],
    "expires": validation.Time,
}


class PinnedQuestion(Wire):
    """What a turn is pinned to of a tool that asks a person.

    `expires_s` is the time after which a question ends without an answer. With `is_open`, the model
    may shorten it, and says itself what may be answered.
    """

    expires_s: float
    is_open: bool = Field(default=False, exclude_if=not_)
    options: tuple[str, ...] = Field(default=(), exclude_if=not_)
    form: dict[str, JsonValue] | None = Field(default=None, exclude_if=not_)
    default: JsonValue = Field(default=None, exclude_if=lambda default: default is None)


def asking(*, expires: timedelta = limits.APPROVAL_EXPIRY) -> Toolbox:
    """Return a toolbox named "asking" with the tool `ask`, by which a model asks a person.

    A call waits as one that needs approval does: durably, without a worker, on the same list. The
    answer is a text, one of the options, or an object that fits the schema, as the model says.

    Args:
        expires: The longest time that a question waits, and the default; at most 3650 days.

    Raises:
        ConfigurationError: `expires` is not valid.
    """
    validation.check("asking", {"expires": expires}, {"expires": validation.Time})
    return Toolbox(
        "asking",
        [_tool("ask", None, _ask, PinnedQuestion(expires_s=expires.total_seconds(), is_open=True))],
    )


def question_tool(
    name: str,
    description: str,
    *,
    answer: type | None = None,
    options: Sequence[str] = (),
    default: object = None,
    expires: timedelta = limits.APPROVAL_EXPIRY,
) -> Tool:
    """Make a tool by which a model asks a person, with an answer of a fixed type.

    The model writes the question alone.

    Args:
        name: The name of the tool: 1 to 64 characters of A-Z, a-z, 0-9, _ and -.
        description: What it asks for, for the model.
        answer: A pydantic model, a dataclass or a `TypedDict`, whose fields a person fills in: they
            are texts, numbers, booleans, choices, lists, or such types again. The model reads JSON.
        options: The answers to choose from. Without them and `answer`, the answer is a text.
        default: The answer if nobody gives one in time.
        expires: The time after which a question ends without an answer; at most 3650 days.

    Raises:
        ConfigurationError: A value is not valid, the type has fields that no form has, or the
            default is no possible answer.
    """
    who = f"question {name}"
    given = {"description": description, "options": options, "expires": expires}
    validation.check(who, given, _KINDS)
    try:
        form = None if answer is None else _form_of(answer, who)
        pinned = PinnedQuestion(
            expires_s=expires.total_seconds(),
            options=tuple(options),
            form=form,
            default=from_json(to_json(default)),
        )
        check(Question(text=who, options=pinned.options, form=form, default=pinned.default))
    except ValueError as error:
        raise errors.ConfigurationError(f"{who}: {error}") from None
    return _tool(name, description, _ask_fixed, pinned)


def read(pinned: PinnedQuestion, arguments: str) -> tuple[Question, timedelta]:
    """Return the question in the arguments of a call, and how long it waits.

    Raises:
        ValueError: They are not valid; the message is written for the model.
    """
    try:
        values = from_json(arguments or "{}", allow_inf_nan=False)
    except ValueError:
        raise ValueError("its arguments are no JSON") from None
    if not isinstance(values, dict):
        raise ValueError("its arguments are no object")
    known = _ARGUMENTS if pinned.is_open else _ARGUMENTS[:1]
    unknown = next((name for name in values if name not in known), None)
    if unknown is not None:
        raise ValueError(f"there is no argument {head(unknown, 100)!r}")
    return _read(pinned, {name: value for name, value in values.items() if value is not None})


def check(question: Question) -> None:
    """Check that a question can be asked, and that its default would be an answer.

    Raises:
        ValueError: It is not so; the message is written for the model.
    """
    if not question.text.strip():
        raise ValueError("the question is empty")
    _check_length("the question", question.text, limits.QUESTION_CHARACTERS)
    if question.options and question.form is not None:
        raise ValueError("give options or a schema, not both")
    if len(question.options) > limits.QUESTION_OPTIONS:
        raise ValueError(
            f"there are {len(question.options)} options, more than {limits.QUESTION_OPTIONS}"
        )
    for option in question.options:
        if not option.strip():
            raise ValueError("an option is empty")
        _check_length("an option", option, limits.OPTION_CHARACTERS)
    if len(set(question.options)) < len(question.options):
        raise ValueError("two options are the same")
    if question.form is not None:
        forms.check(question.form)
    if question.default is not None and (wrong := misfit(question, question.default)):
        raise ValueError(f"the default is no possible answer: {wrong}")


def misfit(question: Question, answer: JsonValue) -> str:
    """Return what is wrong with an answer; empty for one that fits the question."""
    try:
        size = len(to_json(answer))
    except ValueError:
        return "the answer is nested too deeply"
    if size > limits.ANSWER_BYTES:
        return f"the answer has {size} bytes, more than {limits.ANSWER_BYTES}"
    if question.form is not None:
        return forms.misfit(question.form, answer)
    if isinstance(answer, str) and not answer.strip():
        return "the answer is empty"
    return forms.misfit(question.schema_of_answer, answer)


def _read(pinned: PinnedQuestion, values: Mapping[str, Any]) -> tuple[Question, timedelta]:
    text, options, form = values.get("question"), pinned.options, pinned.form
    if not isinstance(text, str):
        raise ValueError("question is missing, or no text")
    default = pinned.default
    if pinned.is_open:
        options, form, default = values.get("options", ()), values.get("schema"), None
        if not _are_texts(options):
            raise ValueError("options is not a list of texts")
        if form is not None and not isinstance(form, dict):
            raise ValueError("schema is not an object")
        default = _default(values.get("default"), has_form=form is not None)
    question = Question(text=text, options=tuple(options), form=form, default=default)
    if pinned.is_open:
        check(question)
    else:
        check(Question(text=text))
    return question, _expires(pinned, values.get("expires_minutes"))


def _default(given: JsonValue, *, has_form: bool) -> JsonValue:
    """Return the default in a call. That of a form may be JSON text, as the schema of `ask` has it.

    Raises:
        ValueError: The text is no JSON.
    """
    if not has_form or not isinstance(given, str):
        return given
    try:
        made: JsonValue = from_json(given, allow_inf_nan=False)
    except ValueError:
        raise ValueError("the default is no JSON") from None
    return made


def _expires(pinned: PinnedQuestion, minutes: object) -> timedelta:
    longest = timedelta(seconds=pinned.expires_s)
    if minutes is None:
        return longest
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or minutes <= 0:
        raise ValueError("expires_minutes is not a number above 0")
    return longest if minutes * 60 >= pinned.expires_s else timedelta(minutes=minutes)


def _check_length(what: str, text: str, most: int) -> None:
    if len(text) > most:
        raise ValueError(f"{what} has {len(text)} characters, more than {most}")


def _are_texts(given: object) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(item, str) for item in given)


def _form_of(answer: type, who: str) -> dict[str, JsonValue]:
    """Return the schema of a type as a form.

    Raises:
        ValueError: It is not that of an object, or has something that no form has.
        ConfigurationError: The type has no schema.
    """
    schema = output_type.schema_of(answer, f"{who}: ")
    if schema is None:
        raise ValueError("leave out answer= for a text")
    return forms.expanded(schema)


def _tool(name: str, description: str | None, function: Any, pinned: PinnedQuestion) -> Tool:
    tool: Tool = Tool(function, name=name, description=description, read_only=True)
    tool.asks = pinned
    return tool


def _ask(
    question: str,
    options: list[str] | None = None,
    schema: dict[str, Any] | None = None,
    default: str | None = None,
    expires_minutes: float | None = None,
) -> str:
    """Ask a person, and wait for the answer.

    Ask only what you can neither find out nor decide yourself, and everything in one question. The
    person sees the question alone, so it has to say all that is needed to answer it.

    Args:
        question: What you want to know.
        options: The answers to choose from; leave it out for an answer in the person's own words.
        schema: For several values, in place of options: the JSON schema of an object, with
            properties of the types string, number, integer, boolean and array, and with enum.
        default: The answer if nobody gives one in time: an option or a text; for a schema, JSON.
        expires_minutes: How long the question waits.
    """
    raise errors.ConfigurationError(_NOT_HERE)


def _ask_fixed(question: str) -> str:
    """Ask a person.

    Args:
        question: What you want to know, with all that a person needs to answer it.
    """
    raise errors.ConfigurationError(_NOT_HERE)


_NOT_HERE = "the turn asks a person itself, so this tool runs on no worker"
