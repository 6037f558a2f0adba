"""Output types: the JSON schema of a type, and an instance of it from a model's answer. Pure.

The schema is pinned as pydantic generates it, and sent as converted by `strict`. Any type that
pydantic supports works: a model, a dataclass, a `TypedDict`, `list[Item]`, `int`, a union. `str` is
plain text without a schema.
"""

from __future__ import annotations

import json
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

_NAME_CHARACTERS = 64
_CAUSE_CHARACTERS = 300
_REASON_CHARACTERS = 1_000
_VALUES = (BaseModel, int, float, bytes, list, tuple, dict, set)
_SCHEMA_BYTES = 8 * 1024
"""A longer schema is not repeated when a model is asked again."""


def schema_of(wanted: Any, whose: str = "") -> Schema | None:
    """Return the schema of a type; None for `str` or no type.

    Error messages begin with `whose`.

    Raises:
        ConfigurationError: The type cannot be enforced: it is recursive, allows any value
            somewhere, or is not supported by pydantic.
    """
    if wanted is None or wanted is str:
        return None
    name = wanted.__name__ if _is_class(wanted) else one_line(str(wanted), _CAUSE_CHARACTERS)
    if isinstance(wanted, FunctionType):
        raise errors.ConfigurationError(f"{whose}output type {name}: it is a function; name a type")
    if isinstance(wanted, str):
        raise errors.ConfigurationError(
            f"{whose}output is the string {one_line(wanted, _NAME_CHARACTERS)!r}; give the type"
            " itself, without quotes"
        )
    if isinstance(wanted, _VALUES):
        raise errors.ConfigurationError(
            f"{whose}output is an instance of {type(wanted).__name__}; give the type"
            f" {type(wanted).__name__} itself"
        )
    try:
        made = without_titles(TypeAdapter(wanted).json_schema)
        strict(made)
    except (PydanticUserError, PydanticUndefinedAnnotation, TypeError, ValueError) as error:
        said = error.message if isinstance(error, PydanticUserError) else str(error)
        raise errors.ConfigurationError(
            f"{whose}output type {name}: {one_line(said, _CAUSE_CHARACTERS)}"
        ) from error
    made.pop("title", None)
    return {**made, "title": name} if _is_class(wanted) else made


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


def read(text: str, wanted: Any, pinned: Schema | None) -> Any:
    """Return the output of a turn from its answer, as an instance of the type `wanted`.

    Without a type it is JSON values if the turn is pinned to a schema, else text.

    Raises:
        ValueError: The answer does not fit.
    """
    schema = pinned if pinned is not None else schema_of(wanted)
    if schema is None or wanted is str:
        return text
    value = value_in(text, schema)
    return value if wanted is None else _reread(wanted, value, schema)


def read_by_agent(text: str, wanted: Any, pinned: Schema | None) -> Any:
    """Return the output of a turn for its agent's code.

    It is an instance of the agent's type, or text if it has none.

    Args:
        text: The answer.
        wanted: The agent's type as deployed.
        pinned: The schema that the answer was requested with: that of the type, of an earlier
            version of it, or of another type that the caller passed.

    Raises:
        ValueError: The answer does not fit.
    """
    if wanted is None or wanted is str:
        return text
    schema = pinned if pinned is not None else schema_of(wanted)
    value = value_in(text, schema or {})
    # a type whose fields all have defaults would otherwise accept anything
    return (
        _reread(wanted, value, schema)
        if is_version_of(wanted, schema)
        else instance_of(wanted, value, extra="forbid")
    )


def is_version_of(wanted: Any, schema: Schema | None) -> bool:
    """Return whether a schema has the name of a type, so that it is some version of it."""
    return (schema or {}).get("title") == (wanted.__name__ if _is_class(wanted) else None)


def _reread(wanted: type[T], value: Any, schema: Schema | None) -> T:
    """Return an instance of a type, ignoring extra fields of another version of it."""
    try:
        return instance_of(wanted, value)
    except ValueError:
        if not is_version_of(wanted, schema):
            raise
        return instance_of(wanted, value, extra="ignore")


def instance_of(
    wanted: type[T], value: Any, *, extra: Literal["ignore", "forbid"] | None = None
) -> T:
    """Validate JSON values as an instance of a type.

    `extra` overrides how the type treats unknown fields.

    Raises:
        ValueError: It does not fit; the message is written for the model.
        ConfigurationError: A validator of the type returned None in place of an instance.
    """
    try:
        made = TypeAdapter(wanted).validate_json(to_json(value), extra=extra)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        raise ValueError(
            "; ".join(
                f"{'.'.join(map(str, one['loc'])) or 'answer'}: {one['msg']}"
                for one in problems[:5]
            )
        ) from None
    if made is None and _is_class(wanted):
        raise errors.ConfigurationError(
            f"a validator of the output type {wanted.__name__} returned None; it must return the"
            " value that it checked"
        )
    return made


def objection(reason: str, schema: Schema) -> str:
    """Return the message to a model whose answer does not fit. Its first line is for people too."""
    sent = json.dumps(strict(schema), ensure_ascii=False)
    asked = (
        f"JSON of this schema: {sent}"
        if len(sent.encode()) <= _SCHEMA_BYTES
        else "JSON of the schema asked for."
    )
    return (
        f"the answer is not what was asked for: {one_line(reason, _REASON_CHARACTERS)}\nAnswer"
        f" again, with nothing but {asked}"
    )


def _between_fences(text: str, refused: ValueError) -> Any:
    first, last = text.find("```"), text.rfind("```")
    if last <= first:
        raise ValueError(f"it is no JSON: {refused}") from None
    language, newline, rest = (inner := text[first + 3 : last]).partition("\n")
    try:
        return from_json(
            rest if newline and language.strip().isalnum() else inner, allow_inf_nan=False
        )
    except ValueError as error:
        raise ValueError(f"what stands between the fences is no JSON: {error}") from None


def _is_class(wanted: Any) -> bool:
    return isinstance(wanted, type) and not hasattr(wanted, "__args__")
