"""Templates: text with fields of a delivery, and filters by fields.

A field is a JSON pointer into the body, such as `/issue/title`, or the name of a header. What is
inserted is data: it is never read as a template, and is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, GetCoreSchemaHandler, JsonValue
from pydantic_core import CoreSchema, core_schema, to_json

from perdure import limits, text
from perdure.clients.gateway.problems import Invalid, RefusedError

_PIECE = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[{}]|[^{}]+")
_BRACES = {"{{": "{", "}}": "}"}
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
_POINTER = re.compile(r"(/([^~/]|~[01])*)+")
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_POINTER_CHARACTERS = 500


def _checked(field: str) -> str:
    is_pointer = len(field) <= _POINTER_CHARACTERS and _POINTER.fullmatch(field)
    if not is_pointer and not _HEADER.fullmatch(field):
        raise ValueError(
            f"{text.one_line(field, 100)!r} is neither a JSON pointer such as /issue/title nor the"
            " name of a header"
        )
    return field


Field = Annotated[str, AfterValidator(_checked)]
"""A JSON pointer into the body of a delivery, or the name of a header."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery that was verified.

    Attributes:
        id: Its id, the same for each attempt to deliver it.
        headers: Its headers, by their names in lower case.
        body: Its body.
    """

    id: str
    headers: Mapping[str, str]
    body: JsonValue

    def value(self, field: str) -> JsonValue:
        """Return the value of a field.

        Raises:
            LookupError: The delivery does not have it.
        """
        if not field.startswith("/"):
            return self.headers[field.lower()]
        value = self.body
        for part in field.split("/")[1:]:
            value = _member(value, part.replace("~1", "/").replace("~0", "~"))
        return value


def _member(value: JsonValue, name: str) -> JsonValue:
    """Return a member of a JSON value.

    Raises:
        LookupError: It has no such member.
    """
    if isinstance(value, dict):
        return value[name]
    if isinstance(value, list) and _INDEX.fullmatch(name):
        return value[int(name)]
    raise LookupError(name)


@dataclass(frozen=True, slots=True)
class _Inserted:
    """The place of a field in a template."""

    field: str


@dataclass(frozen=True, slots=True)
class Template:
    """A text with fields, written as `{/issue/title}` or `{X-GitHub-Event}`. `{{` is a brace."""

    parts: tuple[str | _Inserted, ...]

    @classmethod
    def of(cls, written: str) -> Template:
        """Return the template that is written in a file.

        Raises:
            ValueError: A brace or a field is not valid, or there are too many fields.
        """
        template = cls(tuple(_parts(written)))
        if sum(isinstance(part, _Inserted) for part in template.parts) > limits.HOOK_FIELDS:
            raise ValueError(f"there are more than {limits.HOOK_FIELDS} fields in braces")
        return template

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls.of, core_schema.str_schema(min_length=1)
        )

    @property
    def begins_with_text(self) -> bool:
        """Whether it begins with text of its author."""
        return isinstance(self.parts[0], str)

    def filled(self, delivery: Delivery, written: Callable[[str, JsonValue], str]) -> str:
        """Return the text for a delivery; `written` returns the text of a field and its value.

        Raises:
            RefusedError: The delivery has no such field.
        """
        return "".join(
            part if isinstance(part, str) else written(part.field, _value(delivery, part.field))
            for part in self.parts
        )


def _parts(written: str) -> Iterator[str | _Inserted]:
    for piece in _PIECE.findall(written):
        if piece in _BRACES:
            yield _BRACES[piece]
        elif piece in ("{", "}"):
            raise ValueError(f"there is a single {piece}; write {piece * 2} for a brace")
        elif piece.startswith("{"):
            yield _Inserted(_checked(piece[1:-1]))
        else:
            yield piece


def _value(delivery: Delivery, field: str) -> JsonValue:
    try:
        return delivery.value(field)
    except LookupError:
        raise unfit(
            field, "the delivery does not have it, and the template of this hook does"
        ) from None


def unfit(field: str, detail: str) -> RefusedError:
    """Return the error for a delivery that does not fit a template because of a field."""
    pointer = f"#{field}" if field.startswith("/") else field
    return RefusedError(
        422,
        "INVALID_REQUEST",
        f"the delivery is not valid: {field}: {detail}",
        invalid=[Invalid(pointer=pointer, detail=detail)],
    )


def as_text(_: str, value: JsonValue) -> str:
    """Return a value as text for a model: a string as it is, null as nothing, others as JSON."""
    if value is None:
        return ""
    written = value if isinstance(value, str) else to_json(value).decode()
    return text.clip(written, limits.HOOK_FIELD_BYTES)


def matches(delivery: Delivery, wanted: Mapping[str, tuple[JsonValue, ...]]) -> bool:
    """Return whether each field of a filter has one of its values."""
    return all(_has_one_of(delivery, field, values) for field, values in wanted.items())


def _has_one_of(delivery: Delivery, field: str, values: tuple[JsonValue, ...]) -> bool:
    try:
        value = delivery.value(field)
    except LookupError:
        return False
    return any(value == other and type(value) is type(other) for other in values)
