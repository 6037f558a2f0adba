"""Values to payloads and back.

Perdure does this itself and hands `RawValue` to Temporal, so it works with whatever data converter a client has (codecs and external storage
included), and every value is measured before it becomes a command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from perdure import errors, limits

V = TypeVar("V", bound=BaseModel)

_JSON = {"encoding": b"json/plain"}

NOTHING = RawValue(Payload())


def pack(value: BaseModel, what: str = "value", *, most_bytes: int = limits.PAYLOAD_BYTES) -> RawValue:
    """`value` as a JSON payload of at most so many bytes.

    Raises:
        TooLargeError: It would not fit into history.
        InvalidRequestError: A text in it is no Unicode, which no JSON can hold.
    """
    try:
        data = value.model_dump_json(exclude=_defaults(value)).encode()
    except PydanticSerializationError as error:
        raise errors.InvalidRequestError(f"{what} cannot be written as JSON: {error}") from None
    if len(data) > most_bytes:
        raise errors.TooLargeError(
            f"{what} is {len(data)} bytes, more than the {most_bytes} that fit into history", context={"bytes": len(data), "limit": most_bytes}
        )
    return RawValue(Payload(metadata=_JSON, data=data))


def _defaults(value: BaseModel) -> dict[str, Any]:
    """What need not be written: fields that hold their default, and those of values in them.

    Values in a collection are left whole: of a union's members only the default of `role` or `type` tells which one it is.
    """
    left_out: dict[str, Any] = {}
    for name, field in type(value).model_fields.items():
        item = getattr(value, name)
        if not field.is_required() and item == field.get_default(call_default_factory=True, validated_data=value.__dict__):
            left_out[name] = True
        elif isinstance(item, BaseModel) and field.annotation in (type(item), type(item) | None) and (inner := _defaults(item)):
            left_out[name] = inner
    return left_out


def unpack(raw: RawValue, cls: type[V]) -> V:
    """A value of `cls` from a payload; unknown fields are ignored.

    Raises:
        InvalidRequestError: The payload is no JSON, or not of this shape; the message says what is wrong.
    """
    encoding = raw.payload.metadata.get("encoding", b"")
    if encoding != _JSON["encoding"]:
        raise errors.InvalidRequestError(f"expected JSON for {cls.__name__}, got {encoding.decode(errors='replace') or 'nothing'}")
    try:
        return cls.model_validate_json(raw.payload.data, extra="ignore")
    except ValidationError as error:
        raise errors.InvalidRequestError(f"not a valid {cls.__name__}: {explain(error)}") from None


def raw_input(args: Sequence[Any]) -> RawValue:
    """The one input of an activity. The SDK gives a dynamic one its inputs as a list."""
    first: Any = args[0]
    return raw_input(first) if isinstance(first, list) else cast("RawValue", first)


def explain(error: ValidationError) -> str:
    """What is wrong and where, without the values."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(str(part) for part in problem['loc']) or 'input'}: {problem['msg']}" for problem in problems[:5])
