"""Validates JSON values against schemas from callers, by JSON Schema 2020-12.

The schemas are untrusted: nothing is fetched for them, and their patterns are matched by pydantic's
engine, which takes linear time. A date or a time is valid if pydantic can parse it, as the caller's
type will.

Small schemas can demand any amount of work: with twenty levels of two references each, a million
checks. The work is therefore counted and limited. Keywords with superlinear cost in `jsonschema`
are implemented here: it compares the items of a list pairwise, and matches patterns of properties
with Python's engine.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from perdure import errors, limits
from perdure.activities.yielding import Yielder
from perdure.schemas import output_type
from perdure.schemas.strict_schema import Schema
from perdure.text import described, one_line

Keyword = Callable[[Any, Any, Any, Any], Iterator[Any] | None]
"""The check of a keyword: takes a validator, the keyword's value, the instance and the schema.

It yields errors.
"""

_FORMATS = {"date-time": datetime, "date": date, "time": time, "duration": timedelta, "uuid": UUID}
_PROBLEMS = 5
_LOOKED_AT = 100
_CHARACTERS = 300
_DEPTH = 100
"""The limit of nested keyword checks, and of a schema's depth.

It must stay below Python's recursion limit, because `jsonschema` looks things up in a library that
does not survive a RecursionError.
"""
_ENDS = 140
_TYPES = 7
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
_HASHED = frozenset({"enum", "const"})
_REFUSED = frozenset({"$dynamicRef", "unevaluatedItems", "unevaluatedProperties"})
_REFERENCE = "#/$defs/"

_REPETITION = re.compile(r"(\)?)\{(\d{0,9}),?(\d{0,9})\}")
_PATTERN_ATOMS = 5_000
_MATCH_STEPS = 25_000
_ATOMS_A_STEP = 80
_COMPILE_STEPS = 30


def validator(schema: Schema) -> Callable[[Any], None]:
    """Return a function that raises MisfitError if a value does not fit the schema.

    The message is written for the model. The function raises InvalidRequestError if the check of a
    value takes more than `limits.CHECK_STEPS`.

    Raises:
        InvalidRequestError: The schema is invalid, or cannot be used here.
    """
    import jsonschema  # type: ignore[import-untyped]  # only imported if a caller names a type; takes 0.2 s
    import referencing

    _check_dialect(schema)
    checker = jsonschema.FormatChecker(formats=())
    for name, python_type in _FORMATS.items():
        checker.checks(name)(functools.partial(_is_valid, TypeAdapter(python_type)))
    try:
        jsonschema.Draft202012Validator.check_schema(schema, format_checker=checker)
    except jsonschema.SchemaError as error:
        raise _invalid(error.message) from None
    work = _CheckWork()
    definitions = schema.get("$defs")
    limited_keywords = _Keywords(
        work, definitions if isinstance(definitions, dict) else {}, jsonschema.ValidationError
    )
    keywords: dict[str, Keyword] = {
        **jsonschema.Draft202012Validator.VALIDATORS,
        **limited_keywords.checks(),
    }
    kind = jsonschema.validators.extend(
        jsonschema.Draft202012Validator,
        {name: work.counted(name, check) for name, check in keywords.items()},
    )
    made = kind(schema, format_checker=checker, registry=referencing.Registry())

    def validate(value: Any) -> None:
        misfits = _misfits(made, value)
        if misfits:
            problems = [jsonschema.exceptions.best_match([error]) for error in misfits[:_PROBLEMS]]
            raise output_type.MisfitError(
                "; ".join(map(_message_of, problems)),
                [(tuple(problem.absolute_path), problem.validator) for problem in problems],
            )

    return validate


def _misfits(checker: Any, value: Any) -> list[Any]:
    """Return the first errors of a value, in the order of their paths.

    Raises:
        InvalidRequestError: The check takes too much work, or the schema cannot be used.
    """
    try:
        misfits = itertools.islice(checker.iter_errors(value), _LOOKED_AT)
        return sorted(misfits, key=lambda error: [str(part) for part in error.absolute_path])
    except errors.InvalidRequestError:
        raise
    except Exception as error:
        raise _unusable(one_line(described(error), _CHARACTERS)) from error


class _CheckWork:
    """The work of one check: what is left of its limit, and caches."""

    def __init__(self) -> None:
        self._left = limits.CHECK_STEPS
        self._yield = Yielder()
        self._depth = 0
        self._matchers: dict[str, TypeAdapter[str] | None] = {}
        self._choices: dict[int, frozenset[object]] = {}

    def spend(self, steps: int) -> None:
        """Count steps of about a microsecond.

        Raises:
            InvalidRequestError: The limit is exceeded.
        """
        self._left -= steps
        self._yield()
        if self._left < 0:
            raise _unusable(
                f"checking the answer takes more than {limits.CHECK_STEPS} steps; simplify the"
                " schema"
            )

    def counted(self, name: str, keyword: Keyword) -> Keyword:
        """Wrap a keyword's check so that it counts its work, including its error messages."""

        def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            self.spend(1 if name in _HASHED else 1 + _length(value) + _length(instance))
            if self._depth == _DEPTH:
                raise _unusable("checking the answer is nested too deeply")
            self._depth += 1
            try:
                for error in keyword(validator, value, instance, schema) or ():
                    self.spend(4 + len(error.message) // 64)
                    yield error
            finally:
                self._depth -= 1

        return check

    def among(self, values: list[Any], value: object) -> bool:
        """Return whether a value is among the values of a keyword."""
        if id(values) not in self._choices:
            self._choices[id(values)] = frozenset(_comparable(item, self) for item in values)
        return _comparable(value, self) in self._choices[id(values)]

    def matches(self, pattern: str, text: str) -> bool:
        """Return whether a pattern matches.

        A pattern that is too costly, or that only another engine supports, counts as matching.
        """
        atoms = _atoms(pattern)
        steps = atoms * len(text) // _ATOMS_A_STEP
        if atoms > _PATTERN_ATOMS or steps > _MATCH_STEPS:
            return True
        if pattern not in self._matchers:
            self.spend(atoms * _COMPILE_STEPS)
            self._matchers[pattern] = _matcher(pattern)
        self.spend(steps)
        matcher = self._matchers[pattern]
        return matcher is None or _is_valid(matcher, text)


class _Keywords:
    """The keywords implemented here. `wrong` creates a validation error from a message."""

    def __init__(
        self, work: _CheckWork, definitions: Mapping[str, Any], wrong: Callable[[str], Any]
    ) -> None:
        self._work = work
        self._definitions = definitions
        self._wrong = wrong

    def checks(self) -> dict[str, Keyword]:
        return {
            "$ref": self._reference,
            "uniqueItems": self._unique,
            "enum": self._choice,
            "const": self._constant,
            "pattern": self._pattern,
            "patternProperties": self._by_pattern,
            "additionalProperties": self._additional,
        }

    def _reference(self, validator: Any, target: str, instance: object, _: Any) -> Iterator[Any]:
        yield from validator.descend(instance, self._definitions[target.removeprefix(_REFERENCE)])

    def _unique(self, _: Any, is_wanted: bool, instance: object, __: Any) -> Iterator[Any]:
        if (
            is_wanted
            and isinstance(instance, list)
            and len({_comparable(item, self._work) for item in instance}) < len(instance)
        ):
            yield self._wrong(f"{instance!r} has non-unique elements")

    def _choice(self, _: Any, values: list[Any], instance: object, __: Any) -> Iterator[Any]:
        if not self._work.among(values, instance):
            yield self._wrong(f"{instance!r} is not one of {values!r}")

    def _constant(self, _: Any, value: object, instance: object, __: Any) -> Iterator[Any]:
        if _comparable(instance, self._work) != _comparable(value, self._work):
            yield self._wrong(f"{value!r} was expected")

    def _pattern(self, _: Any, pattern: str, instance: object, __: Any) -> Iterator[Any]:
        if isinstance(instance, str) and not self._work.matches(pattern, instance):
            yield self._wrong(f"{instance!r} does not match {pattern!r}")

    def _by_pattern(
        self, validator: Any, patterns: dict[str, Any], instance: object, _: Any
    ) -> Iterator[Any]:
        for pattern, schema in patterns.items() if isinstance(instance, dict) else ():
            for name, value in instance.items():  # type: ignore[attr-defined]
                self._work.spend(1)
                if self._work.matches(pattern, name):
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)

    def _additional(
        self, validator: Any, additional: Any, instance: object, schema: Any
    ) -> Iterator[Any]:
        patterns = schema.get("patternProperties", {})
        for name, value in instance.items() if isinstance(instance, dict) else ():
            self._work.spend(1)
            if name in schema.get("properties", {}) or any(
                self._work.matches(pattern, name) for pattern in patterns
            ):
                continue
            if additional is False:
                yield self._wrong(
                    f"Additional properties are not allowed ({name!r} was unexpected)"
                )
            else:
                yield from validator.descend(value, additional, path=name)


def _check_dialect(schema: Schema) -> None:
    """Reject keywords at any depth that are not supported here, or only by other dialects.

    Raises:
        InvalidRequestError: The schema has such a keyword.
    """
    waiting: list[tuple[Any, bool, int]] = [(schema, True, 0)]
    while waiting:
        value, is_schema, depth = waiting.pop()
        if depth > _DEPTH:
            raise _invalid(f"it is nested more than {_DEPTH} deep")
        if isinstance(value, list):
            waiting += [(item, is_schema, depth + 1) for item in value]
        if not isinstance(value, dict):
            continue
        if is_schema:
            _check_keywords(value, schema)
        for name, item in value.items():
            waiting.append((item, not (is_schema and name in _NAMED), depth + 1))


def _check_keywords(node: Mapping[str, Any], root: Schema) -> None:
    refused = sorted(_REFUSED & node.keys()) or (
        ["$schema"] if "$schema" in node and node is not root else []
    )
    if refused:
        raise _invalid(f"{refused[0]} is not supported")
    target, kinds, definitions = node.get("$ref"), node.get("type"), root.get("$defs")
    if isinstance(kinds, list) and len(kinds) > _TYPES:
        raise _invalid(f"there are {_TYPES} types, and a list here has {len(kinds)}")
    if isinstance(target, str) and not (
        isinstance(definitions, dict)
        and target.startswith(_REFERENCE)
        and target[len(_REFERENCE) :] in definitions
    ):
        raise _invalid(
            f"there is no definition for {target!r}; only definitions under $defs can be used"
        )


def _invalid(reason: str) -> errors.InvalidRequestError:
    return errors.InvalidRequestError(
        f"the output schema is invalid: {one_line(reason, _CHARACTERS)}"
    )


def _unusable(reason: str) -> errors.InvalidRequestError:
    return errors.InvalidRequestError(f"the output schema cannot be used: {reason}")


def _length(value: object) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _comparable(value: object, work: _CheckWork) -> object:
    """Return a key that is equal for equal JSON values and no others.

    A number with and without a fraction of 0 is the same, and true is not 1.
    """
    work.spend(1)
    if isinstance(value, dict):
        return dict, frozenset((name, _comparable(item, work)) for name, item in value.items())
    if isinstance(value, list):
        return list, tuple([_comparable(item, work) for item in value])
    return type(value) is bool, value


def _atoms(pattern: str) -> int:
    """Estimate the states of a pattern with its repetitions expanded; adjacent groups multiply."""
    groups, atoms = 1, len(pattern)
    for group, minimum, greatest in _REPETITION.findall(pattern):
        count = max(int(minimum or 0), int(greatest or 0), 1)
        groups, atoms = (groups * count, atoms) if group else (groups, atoms + count)
    return groups * atoms


def _message_of(error: Any) -> str:
    message = " ".join(error.message.split())  # the value, then what is wrong with it
    short = message if len(message) <= _CHARACTERS else f"{message[:_ENDS]} … {message[-_ENDS:]}"
    return f"{'.'.join(map(str, error.absolute_path)) or 'answer'}: {short}"


def _is_valid(adapter: TypeAdapter[Any], value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


def _matcher(pattern: str) -> TypeAdapter[str] | None:
    """Return None for a pattern of another engine."""
    try:
        return TypeAdapter(Annotated[str, Field(pattern=pattern)])
    except SchemaError:
        return None
