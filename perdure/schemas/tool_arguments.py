"""The JSON schema of a function's arguments, and their validation.

A function's parameters become a pydantic model. Its fields are called `p0`, `p1`, … with the
parameter's name as alias, because a parameter may be called `schema` or `_x`, which pydantic
reserves. Descriptions come from the docstring (Google, NumPy, reST, Epydoc).
"""

from __future__ import annotations

import functools
import inspect
import typing
import warnings
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any

import docstring_parser
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, from_json, to_json

from perdure import errors
from perdure.text import one_line

_REFUSED = {
    inspect.Parameter.VAR_POSITIONAL: "*{}",
    inspect.Parameter.VAR_KEYWORD: "**{}",
    inspect.Parameter.POSITIONAL_ONLY: "{} (positional-only)",
}

_BUILT_IN = (str, int, float, bool, NoneType, list, dict)
_CONTAINERS = (list, dict, typing.Union, UnionType)

_CAUSE_CHARACTERS = 300

_EXACT = 10**15
"""Decimals below this are written as numbers; larger ones may have arbitrarily many digits."""


class Arguments:
    """A function's arguments: a JSON schema for the model, and a parser for its calls.

    Attributes:
        schema: The schema.
        runs_user_code: Whether a type of the user reads the arguments, which may block.
    """

    def __init__(self, model: type[BaseModel], names: Mapping[str, str]) -> None:
        self._model = model
        self._names = names
        self.schema: dict[str, JsonValue] = without_titles(model.model_json_schema)
        self.runs_user_code = not all(map(_is_read_by_pydantic, model.model_fields.values()))

    def parse(self, text: str) -> dict[str, Any]:
        """Return keyword arguments from JSON text.

        Raises:
            ValueError: The text is not JSON or breaks the schema; the message is written for the
                model.
        """
        try:
            parsed = self._model.model_validate_json(text.strip() or "{}")
        except ValidationError as error:
            raise ValueError(
                _explain(error.errors(include_url=False, include_context=False))
            ) from None
        return {name: getattr(parsed, field) for field, name in self._names.items()}

    def values(self, text: str) -> dict[str, Any]:
        """Return the arguments of the function for JSON text, by parameter.

        Raises:
            ValueError: As for `parse`.
        """
        return self.parse(text)

    def normal(self, text: str) -> str:
        """Return `text` with its values converted as for the function.

        For an `int`, `{"count": "5"}` becomes `{"count": 5}`. Omitted arguments stay omitted. Text
        that needs no conversion is returned unchanged, and so is text whose values cannot be
        written as JSON and read back.
        """
        try:
            parsed = self._model.model_validate_json(text.strip() or "{}")
            set_ = parsed.model_dump(by_alias=True, exclude_unset=True, warnings=False)
            written = to_json(_numbers(set_), inf_nan_mode="null").decode()
            if _same(from_json(written), from_json(text.strip() or "{}")):
                return text
            return written if self._model.model_validate_json(written) == parsed else text
        except Exception:  # noqa: BLE001 - a user's type may raise anything; the text is kept
            return text

    def keeps(self, text: str) -> bool:
        """Return whether the function receives the same JSON values as in `text`.

        `1` is the same for a float, but not for a bool.
        """
        return _equal_values(
            *(from_json(json_text.strip() or "{}") for json_text in (self.normal(text), text))
        )


class GivenArguments(Arguments):
    """Arguments with a schema from elsewhere, which are validated there.

    They are passed as a single argument: `arguments`, a JSON object.
    """

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        self.schema = dict(schema)
        self.runs_user_code = False

    def parse(self, text: str) -> dict[str, Any]:
        """Return the arguments from JSON text.

        Raises:
            ValueError: The text is not a JSON object; the message is written for the model.
        """
        try:
            arguments = from_json(text.strip() or "{}", allow_inf_nan=False)
        except ValueError as error:
            raise ValueError(f"arguments: Invalid JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise ValueError("arguments: Input should be an object")
        return {"arguments": arguments}

    def values(self, text: str) -> dict[str, Any]:
        """Return the JSON values."""
        arguments: dict[str, Any] = self.parse(text)["arguments"]
        return arguments

    def normal(self, text: str) -> str:
        """Return `text` unchanged: nothing is converted."""
        return text


class StatedArguments(Arguments):
    """Arguments with a schema written by a tool's author. They are validated at the call."""

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        self.schema = dict(schema)
        self.runs_user_code = False

    def parse(self, text: str) -> dict[str, Any]:
        """Return keyword arguments from JSON text, each a JSON value.

        Raises:
            ValueError: The text is not a JSON object; the message is written for the model.
        """
        arguments: dict[str, Any] = GivenArguments(self.schema).parse(text)["arguments"]
        return arguments


def stated(who: str, parameters: Mapping[str, Any]) -> StatedArguments:
    """Return the arguments that a schema describes.

    Raises:
        ConfigurationError: It is not JSON, not a schema, or not that of an object; the message
            begins with `who`.
    """
    import jsonschema  # type: ignore[import-untyped]  # takes 0.2 s, and few agents need it

    try:
        plain = from_json(to_json(parameters), allow_inf_nan=False)
        jsonschema.Draft202012Validator.check_schema(plain)
    except (ValueError, RecursionError) as error:
        raise errors.ConfigurationError(f"{who}: parameters is not JSON: {error}") from None
    except jsonschema.SchemaError as error:
        raise errors.ConfigurationError(
            f"{who}: parameters is not a JSON schema: {error.message}"
        ) from None
    if not isinstance(plain, dict) or plain.get("type") != "object":
        raise errors.ConfigurationError(
            f'{who}: parameters is the schema of an object, {{"type": "object", "properties": …}}'
        )
    return StatedArguments(plain)


def arguments_of(function: Callable[..., object], hidden: Collection[str] = ()) -> Arguments:
    """Return the arguments of `function`, without those in `hidden` and without `self`.

    Raises:
        ConfigurationError: A parameter cannot be described to a model.
    """
    described = {
        p.arg_name: p.description
        for p in docstring_parser.parse(inspect.getdoc(function) or "").params
    }
    hints = hints_of(function)
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in hidden:
            continue
        if parameter.kind in _REFUSED:
            form = _REFUSED[parameter.kind].format(name)
            raise errors.ConfigurationError(
                f"tool {function.__qualname__}: a model cannot fill the parameter {form}; name each"
                " argument"
            )
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        field = f"p{len(fields)}"
        fields[field] = (hints.get(name, Any), _field(name, default, described.get(name)))
        names[field] = name
    return Arguments(_model(function, fields), names)


def description_of(function: Callable[..., object]) -> str:
    """Return the docstring's text before its sections."""
    parsed = docstring_parser.parse(inspect.getdoc(function) or "")
    return "\n\n".join(part for part in (parsed.short_description, parsed.long_description) if part)


def hints_of(function: Callable[..., object]) -> dict[str, Any]:
    """Return the annotations of `function` with names resolved.

    Raises:
        ConfigurationError: An annotation names something that does not exist.
    """
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise errors.ConfigurationError(
            f"tool {function.__qualname__}: an annotation cannot be resolved ({error}); the type"
            " must be defined at module level"
        ) from error


def hints_that_resolve(function: Callable[..., object]) -> dict[str, Any]:
    """Return the annotations of any callable; unresolvable names remain strings."""
    while isinstance(function, functools.partial):
        function = function.func
    try:
        return hints_of(function)
    except (TypeError, errors.ConfigurationError):
        return dict(getattr(function, "__annotations__", {}))


def _is_read_by_pydantic(field: FieldInfo) -> bool:
    """Return whether a field has only types of Python, without constraints or a factory."""
    return not field.metadata and field.default_factory is None and _is_built_in(field.annotation)


def _is_built_in(kind: Any) -> bool:
    if kind in _BUILT_IN:
        return True
    return typing.get_origin(kind) in _CONTAINERS and all(map(_is_built_in, typing.get_args(kind)))


def _field(name: str, default: Any, description: str | None) -> Any:
    """Return the field of a parameter.

    The docstring overrides the description of a pydantic `Field`.
    """
    field_options: dict[str, Any] = {"description": description} if description else {}
    if isinstance(default, FieldInfo):
        return FieldInfo.merge_field_infos(default, Field(alias=name, **field_options))
    return Field(default, alias=name, **field_options)


def _model(function: Callable[..., object], fields: dict[str, Any]) -> type[BaseModel]:
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        return create_model(f"{function.__name__}_arguments", __config__=config, **fields)
    except PydanticUserError as error:
        unfit = [
            f"parameter {field.alias}: {_name(kind)}"
            for kind, field in fields.values()
            if not _is_known(kind)
        ]
        problem = (
            f"{' and '.join(unfit)} cannot be read from JSON"
            if unfit
            else one_line(error.message, _CAUSE_CHARACTERS)
        )
        raise errors.ConfigurationError(
            f"tool {function.__qualname__}: {problem}; a model can only send JSON"
        ) from error


def _name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if inspect.isclass(kind) else str(kind)


def _is_known(kind: Any) -> bool:
    """Return whether pydantic supports a type."""
    try:
        TypeAdapter(kind)
    except PydanticUserError:
        return False
    return True


class _Plain(GenerateJsonSchema):
    """A schema without titles: they repeat the names and cost tokens."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        made = super().model_schema(schema)
        made.pop("title", None)
        return made


def without_titles(make: Callable[..., dict[str, Any]]) -> dict[str, JsonValue]:
    """Return the schema that a pydantic method generates, without titles."""
    with warnings.catch_warnings():
        # about defaults that are not JSON, which are left out of the schema
        warnings.simplefilter("ignore")
        made = make(by_alias=True, schema_generator=_Plain)
    for definition in made.get("$defs", {}).values():
        definition.pop("title", None)
    return made


def _numbers(value: Any) -> Any:
    """Return `value` with decimals as numbers; pydantic writes them as strings."""
    if isinstance(value, Decimal) and abs(value) < _EXACT:
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list | tuple) else value


def _same(received: Any, written: Any) -> bool:
    """Return whether the JSON value `written` equals `received` without conversion.

    An integer is accepted for a float, as by Python's own types; otherwise `1`, `1.0` and `true`
    are different.
    """
    if type(received) is not type(written) and (type(received), type(written)) != (float, int):
        return False
    if isinstance(received, dict):
        return received.keys() == written.keys() and all(
            _same(received[key], written[key]) for key in received
        )
    if isinstance(received, list):
        return len(received) == len(written) and all(map(_same, received, written))
    return bool(received == written)


def _equal_values(first: Any, second: Any) -> bool:
    """Return whether two JSON values are equal, with numbers compared by value (`5` and `5.0`)."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            _equal_values(first[key], second[key]) for key in first
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_equal_values, first, second))
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


def _explain(problems: list[ErrorDetails]) -> str:
    lines = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'arguments'}: {problem['msg']}"
        for problem in problems[:5]
    ]
    return "; ".join(lines)
