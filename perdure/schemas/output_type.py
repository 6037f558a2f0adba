"""Output types: the JSON schema of a type, and an instance of it from a model's answer. Pure.

The schema is pinned as pydantic generates it, and sent as converted by `strict`. Any type that
pydantic supports works: a model, a dataclass, a `TypedDict`, `list[Item]`, `int`, a union. `str` is
plain text without a schema.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any, Literal

from pydantic import (
    BaseModel,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import from_json, to_json

from perdure import errors
from perdure.base import T
from perdure.schemas.strict_schema import Schema, plain, strict
from perdure.schemas.tool_arguments import without_titles
from perdure.text import clean, one_line

OBJECTION = "the answer is not what was asked for"
"""The beginning of the message to a model whose answer does not fit."""
_NAME_CHARACTERS = 64
_CAUSE_CHARACTERS = 300
_REASON_CHARACTERS = 1_000
_VALUES = (BaseModel, int, float, bytes, list, tuple, dict, set)
_SCHEMA_BYTES = 8 * 1024
"""A longer schema is not repeated when a model is asked again."""


class MisfitError(ValueError):
    """A value does not fit a type or a schema.

    `problems` are the rules that it breaks, each with the path to the part that breaks the rule.
    """

    def __init__(self, message: str, problems: Iterable[tuple[Sequence[str | int], str]]) -> None:
        super().__init__(message)
        self._problems = tuple(problems)

    def rules(self, *schemas: Schema | None) -> str:
        """Return the rules that the value breaks, each with its path, without words of the value.

        A name in a path that is not a property in one of the schemas is a word of the value: `?`.
        """
        names = frozenset(_properties(list(schemas)))
        return "; ".join(
            f"{'.'.join(_part(part, names) for part in path) or 'answer'}: {rule}"
            for path, rule in self._problems
        )


def broken_rules(error: ValueError, *schemas: Schema | None) -> str:
    """Return the rules that an answer breaks, by the error of its check, without its words."""
    if isinstance(error, MisfitError):
        return error.rules(*schemas)
    return "it is no JSON of the schema"


def _part(part: str | int, names: Collection[str]) -> str:
    return str(part) if isinstance(part, int) or part in names else "?"


def _properties(node: object) -> Iterator[str]:
    """Yield the names of the properties that a schema has at any depth."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            properties = node.get("properties")
            yield from properties if isinstance(properties, dict) else ()
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def schema_of(expected_type: Any, whose: str = "") -> Schema | None:
    """Return the schema of a type; None for `str` or no type.

    Error messages begin with `whose`.

    Raises:
        ConfigurationError: The type cannot be enforced: it is recursive, allows any value
            somewhere, or is not supported by pydantic.
    """
    if expected_type is None or expected_type is str:
        return None
    name = (
        expected_type.__name__
        if _is_class(expected_type)
        else one_line(str(expected_type), _CAUSE_CHARACTERS)
    )
    if isinstance(expected_type, FunctionType):
        raise errors.ConfigurationError(f"{whose}output type {name}: it is a function; name a type")
    if isinstance(expected_type, str):
        raise errors.ConfigurationError(
            f"{whose}output is the string {one_line(expected_type, _NAME_CHARACTERS)!r}; give the"
            " type itself, without quotes"
        )
    if isinstance(expected_type, _VALUES):
        raise errors.ConfigurationError(
            f"{whose}output is an instance of {type(expected_type).__name__}; give the type"
            f" {type(expected_type).__name__} itself"
        )
    try:
        is_class = _is_class(expected_type)
        made = dict(_of_class(expected_type) if is_class else _generated(expected_type))
    except (PydanticUserError, PydanticUndefinedAnnotation, TypeError, ValueError) as error:
        cause = error.message if isinstance(error, PydanticUserError) else str(error)
        raise errors.ConfigurationError(
            f"{whose}output type {name}: {one_line(cause, _CAUSE_CHARACTERS)}"
        ) from error
    made.pop("title", None)
    return {**made, "title": name} if is_class else made


def _generated(expected_type: Any) -> Schema:
    made = without_titles(TypeAdapter(expected_type).json_schema)
    strict(made)
    return made


_of_class = functools.lru_cache(maxsize=100)(_generated)
"""The schema of a class, which each answer is compared with. Other types may be equal and differ:
`int | str` has another schema than `str | int`."""


def name_of(schema: Schema | None) -> str:
    """Return the name of an answer's schema in requests: letters, digits, `_` and `-`."""
    title = str((schema or {}).get("title") or "answer")
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in title)[
        :_NAME_CHARACTERS
    ]


def value_in(text: str, schema: Schema) -> Any:
    """Parse the JSON in an answer: the whole text, or the part between its fences.

    Raises:
        ValueError: The answer holds no JSON; the message is written for the model.
    """
    text = clean(text)
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        value = _between_fences(text, error)
    return plain(schema, value)


def read(text: str, expected_type: Any, pinned: Schema | None) -> Any:
    """Return the output of a turn from its answer, as an instance of the type `expected_type`.

    Without a type it is JSON values if the turn is pinned to a schema, else text.

    Raises:
        ValueError: The answer does not fit.
    """
    schema = pinned if pinned is not None else schema_of(expected_type)
    if schema is None or expected_type is str:
        return text
    value = value_in(text, schema)
    return value if expected_type is None else _reread(expected_type, value, schema)


def read_by_agent(text: str, expected_type: Any, pinned: Schema | None) -> Any:
    """Return the output of a turn for its agent's code.

    It is an instance of the agent's type, or text if it has none.

    Args:
        text: The answer.
        expected_type: The agent's type as deployed.
        pinned: The schema that the answer was requested with: that of the type, of an earlier
            version of it, or of another type that the caller passed.

    Raises:
        ValueError: The answer does not fit.
    """
    if expected_type is None or expected_type is str:
        return text
    schema = pinned if pinned is not None else schema_of(expected_type)
    value = value_in(text, schema or {})
    # a type whose fields all have defaults would otherwise accept anything
    return (
        _reread(expected_type, value, schema)
        if is_version_of(expected_type, schema)
        else instance_of(expected_type, value, extra="forbid")
    )


def is_version_of(expected_type: Any, schema: Schema | None) -> bool:
    """Return whether a schema has the name of a type, so that it is some version of it."""
    return (schema or {}).get("title") == (
        expected_type.__name__ if _is_class(expected_type) else None
    )


def _reread(expected_type: type[T], value: Any, schema: Schema | None) -> T:
    """Return an instance of a type, ignoring extra fields of another version of it."""
    try:
        return instance_of(expected_type, value)
    except ValueError:
        if not is_version_of(expected_type, schema):
            raise
        return instance_of(expected_type, value, extra="ignore")


def instance_of(
    expected_type: type[T], value: Any, *, extra: Literal["ignore", "forbid"] | None = None
) -> T:
    """Validate JSON values as an instance of a type.

    `extra` overrides how the type treats unknown fields.

    Raises:
        MisfitError: It does not fit; the message is written for the model.
        ConfigurationError: A validator of the type returned None in place of an instance.
    """
    try:
        made = TypeAdapter(expected_type).validate_json(to_json(value), extra=extra)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        message = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'answer'}: {problem['msg']}"
            for problem in problems[:5]
        )
        raise MisfitError(
            message, [(problem["loc"], problem["type"]) for problem in problems[:5]]
        ) from None
    if made is None and _is_class(expected_type):
        raise errors.ConfigurationError(
            f"a validator of the output type {expected_type.__name__} returned None; it must return"
            " the value that it checked"
        )
    return made


def objection(reason: str, schema: Schema, summary: str = "") -> str:
    """Return the message to a model whose answer does not fit.

    Its first line is for people, too. It has the reason, or else a `summary` that quotes nothing.
    """
    sent = json.dumps(strict(schema), ensure_ascii=False)
    expected = (
        f"JSON of this schema: {sent}"
        if len(sent.encode()) <= _SCHEMA_BYTES
        else "JSON of the schema asked for."
    )
    lines = [one_line(line, _REASON_CHARACTERS) for line in (summary, reason) if line]
    return "\n".join(
        [f"{OBJECTION}: {lines[0]}", *lines[1:], f"Answer again, with nothing but {expected}"]
    )


def _between_fences(text: str, refused: ValueError) -> Any:
    first, last = text.find("```"), text.rfind("```")
    if last <= first:
        raise ValueError(f"it is no JSON: {refused}") from None
    language, newline, body = (inner := text[first + 3 : last]).partition("\n")
    try:
        return from_json(
            body if newline and language.strip().isalnum() else inner, allow_inf_nan=False
        )
    except ValueError as error:
        raise ValueError(f"what stands between the fences is no JSON: {error}") from None


def _is_class(expected_type: Any) -> bool:
    return isinstance(expected_type, type) and not hasattr(expected_type, "__args__")
