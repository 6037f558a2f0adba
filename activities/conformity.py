"""Whether a JSON value fits a schema that somebody sent, by JSON Schema 2020-12.

The schema is a stranger's, so nothing is fetched for it, and its patterns are matched by pydantic's engine, which takes linear time. A date or a
time is one if pydantic reads it as one, as the caller's type will.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from perdure import errors
from perdure.strict import Schema
from perdure.text import described, one_line

_FORMATS = {"date-time": datetime, "date": date, "time": time, "duration": timedelta, "uuid": UUID}
_PROBLEMS = 5
_CHARACTERS = 300
_ENDS = 140


def validator(schema: Schema) -> Callable[[Any], None]:
    """A function that takes a value and raises ValueError where it does not fit; the message is written for the model.

    Raises:
        InvalidRequestError: This is no schema.
    """
    import jsonschema  # type: ignore[import-untyped]  # here, because only a turn whose caller names a type needs it, and it takes 0.2 s
    import referencing

    kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"pattern": _pattern, "patternProperties": _pattern_properties})
    checker = jsonschema.FormatChecker(formats=())
    for name, wanted in _FORMATS.items():
        checker.checks(name)(functools.partial(_reads, TypeAdapter(wanted)))
    try:
        kind.check_schema(schema, format_checker=checker)
    except jsonschema.SchemaError as error:
        raise errors.InvalidRequestError(f"the output schema is none: {one_line(error.message, _CHARACTERS)}") from None
    made = kind(schema, format_checker=checker, registry=referencing.Registry())

    def validate(value: Any) -> None:
        try:
            found = sorted(made.iter_errors(value), key=lambda error: [str(part) for part in error.absolute_path])
        except Exception as error:  # a reference that leads nowhere shows when it is met
            raise errors.InvalidRequestError(f"the output schema cannot be used: {one_line(described(error), _CHARACTERS)}") from error
        if found:
            raise ValueError("; ".join(_said(jsonschema.exceptions.best_match([error])) for error in found[:_PROBLEMS]))

    return validate


def _said(error: Any) -> str:
    words = " ".join(error.message.split())  # the value, then what is wrong with it
    short = words if len(words) <= _CHARACTERS else f"{words[:_ENDS]} … {words[-_ENDS:]}"
    return f"{'.'.join(map(str, error.absolute_path)) or 'answer'}: {short}"


def _reads(adapter: TypeAdapter[Any], value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


@functools.lru_cache(maxsize=256)
def _matcher(pattern: str) -> TypeAdapter[str] | None:
    """None for a pattern of another engine, which only the caller can match."""
    try:
        return TypeAdapter(Annotated[str, Field(pattern=pattern)])
    except SchemaError:
        return None


def _matches(pattern: str, text: str) -> bool:
    matcher = _matcher(pattern)
    return matcher is None or _reads(matcher, text)


def _pattern(_: Any, pattern: str, instance: object, __: Any) -> Iterator[Any]:
    import jsonschema

    if isinstance(instance, str) and not _matches(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: dict[str, Any], instance: object, __: Any) -> Iterator[Any]:
    for pattern, schema in patterns.items() if isinstance(instance, dict) else ():
        for name, value in instance.items():  # type: ignore[attr-defined]
            if _matches(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)
