"""Values to payloads and back.

Perdure does this itself and hands `RawValue` to Temporal, so it works with whatever data converter
a client has (codecs and external storage included), and every value is measured before it becomes a
command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from perdure import errors, limits
from perdure.text import one_line

if TYPE_CHECKING:
    from temporalio.converter import DataConverter

V = TypeVar("V", bound=BaseModel)

_JSON = {"encoding": b"json/plain"}

_ENCODINGS = {
    b"",
    b"json/plain",
    b"json/protobuf",
    b"binary/plain",
    b"binary/null",
    b"binary/protobuf",
}
"""Those of Temporal's payload converters."""
_NO_CODEC = "by a codec that this process does not have (set PERDURE_DATA_CONVERTER)"
_SHOWN = 80
_UNKNOWN = "Unknown payload encoding"
"""What a payload converter of Temporal raises for an encoding that is not its own."""
_TEMPORAL = "[TMPRL"
"""How messages of Temporal's own library begin that have a code."""

NOTHING = RawValue(Payload())


def pack(
    value: BaseModel, what: str = "value", *, most_bytes: int = limits.PAYLOAD_BYTES
) -> RawValue:
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
            f"{what} is {len(data)} bytes, more than the {most_bytes} that fit into history",
            context={"bytes": len(data), "limit": most_bytes},
        )
    return RawValue(Payload(metadata=_JSON, data=data))


def _defaults(value: BaseModel) -> dict[str, Any]:
    """What need not be written: fields that hold their default, and those of values in them.

    Values in a collection are left whole: of a union's members only the default of `role` or `type`
    tells which one it is.
    """
    left_out: dict[str, Any] = {}
    for name, field in type(value).model_fields.items():
        item = getattr(value, name)
        if not field.is_required() and item == field.get_default(
            call_default_factory=True, validated_data=value.__dict__
        ):
            left_out[name] = True
        elif (
            isinstance(item, BaseModel)
            and field.annotation in (type(item), type(item) | None)
            and (inner := _defaults(item))
        ):
            left_out[name] = inner
    return left_out


def unpack(raw: RawValue, cls: type[V]) -> V:
    """A value of `cls` from a payload; unknown fields are ignored.

    Raises:
        InvalidRequestError: The payload is no JSON, or not of this shape; the message says what is
            wrong.
    """
    encoding = raw.payload.metadata.get("encoding", b"")
    if encoding != _JSON["encoding"]:
        raise errors.InvalidRequestError(
            f"expected JSON for {cls.__name__}, got"
            f" {encoding.decode(errors='replace') or 'nothing'}"
        )
    try:
        return cls.model_validate_json(raw.payload.data, extra="ignore")
    except ValidationError as error:
        raise errors.InvalidRequestError(f"not a valid {cls.__name__}: {explain(error)}") from None


async def decoded(
    converter: DataConverter, payloads: Sequence[Payload], types: list[type] | None = None
) -> list[Any]:
    """The values of payloads that a turn left.

    Raises:
        PayloadDecodeError: This process lacks the codec or the key that they were written with.
    """
    try:
        return await converter.decode(payloads, types)
    except Exception as error:
        raise undecodable(error, payloads) from error


def is_foreign(payload: Payload) -> bool:
    """Whether a payload is still encoded.

    A codec gives it an encoding that no payload converter of Temporal's has.
    """
    return payload.metadata.get("encoding", b"") not in _ENCODINGS


def undecodable(error: Exception | None, payloads: Sequence[Payload]) -> errors.PayloadDecodeError:
    """Why payloads cannot be decoded.

    What a codec raises may quote a key, so its words are left out.
    """
    foreign = next(
        (payload.metadata["encoding"] for payload in payloads if is_foreign(payload)), None
    )
    if foreign is not None and (error is None or _UNKNOWN in str(error)):
        return errors.PayloadDecodeError(
            f"the turn cannot be read: it is encoded as {_named(foreign)} {_NO_CODEC}"
        )
    words = str(error) if str(error).startswith(_TEMPORAL) else type(error).__name__
    return errors.PayloadDecodeError(
        f"the turn cannot be read: the data converter failed ({words}); does it have the key that"
        " the turn was written with?"
    )


def _named(encoding: bytes) -> str:
    return one_line(encoding.decode(errors="replace"), _SHOWN)


def raw_input(args: Sequence[Any]) -> RawValue:
    """The one input of an activity. The SDK gives a dynamic one its inputs as a list."""
    first: Any = args[0]
    return raw_input(first) if isinstance(first, list) else cast("RawValue", first)


def explain(error: ValidationError) -> str:
    """What is wrong and where, without the values."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'input'}: {problem['msg']}"
        for problem in problems[:5]
    )
