"""Converts values to payloads and back.

Perdure does this itself and passes `RawValue` to Temporal, so that it works with any data converter
of a client (including codecs and external storage), and every value is measured before it becomes a
command.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from perdure import errors, limits
from perdure.temporal.encryption import marks
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
"""The encodings of Temporal's payload converters."""
_NO_CODEC = "by a codec that this process does not have (set PERDURE_DATA_CONVERTER)"
_SHOWN = 80
_UNKNOWN = "Unknown payload encoding"
"""The message of Temporal's payload converters for an unknown encoding."""
_TEMPORAL = "[TMPRL"
"""The beginning of messages of Temporal's library that have a code."""

NOTHING = RawValue(Payload())

_parsed: dict[tuple[type[BaseModel], bytes], BaseModel] | None = None
"""The values of the payloads that were parsed, while `parsing_once` lasts."""


@contextlib.contextmanager
def parsing_once() -> Iterator[None]:
    """Let equal payloads give the same value, which is parsed once, in this process.

    It is for a simulation, whose readers read the same histories again and again. Values are
    frozen, so nobody sees that they are shared; all of them are kept until the end.
    """
    global _parsed
    outer, _parsed = _parsed, {}
    try:
        yield
    finally:
        _parsed = outer


def pack(
    value: BaseModel, noun: str = "value", *, most_bytes: int = limits.PAYLOAD_BYTES
) -> RawValue:
    """Convert `value` to a JSON payload of at most `most_bytes` bytes.

    Raises:
        TooLargeError: It does not fit into history.
        InvalidRequestError: A string in it is not valid Unicode, which JSON cannot hold.
    """
    try:
        data = value.model_dump_json(exclude=_defaults(value)).encode()
    except PydanticSerializationError as error:
        raise errors.InvalidRequestError(f"{noun} cannot be written as JSON: {error}") from None
    if len(data) > most_bytes:
        raise errors.TooLargeError(
            f"{noun} is {len(data)} bytes, more than the {most_bytes} that fit into history",
            context={"bytes": len(data), "limit": most_bytes},
        )
    return RawValue(Payload(metadata=_JSON, data=data))


def _defaults(value: BaseModel) -> dict[str, Any]:
    """Return the fields to omit, recursively: those that have their default.

    Values in collections are kept whole: members of a union are distinguished only by the default
    of `role` or `type`.
    """
    left_out: dict[str, Any] = {}
    items = value.__dict__
    for field in _fields(type(value)):
        item = items[field.name]
        if item is field.default or field.is_default(item, items):
            left_out[field.name] = True
        elif type(item) is field.model and (inner := _defaults(item)):
            left_out[field.name] = inner
    return left_out


class _PackedField:
    """A field of a class of values, with what `_defaults` asks of it for each value.

    Attributes:
        name: Its name.
        model: The class of its values, if that is a model and None is the only alternative.
        default: Its default if that is always the same object, which most values are.
    """

    def __init__(self, name: str, field: FieldInfo) -> None:
        classes = [one for one in get_args(field.annotation) if one is not NoneType]
        is_optional = len(classes) == 1 and get_origin(field.annotation) in (Union, UnionType)
        self.name = name
        self.model = classes[0] if is_optional else field.annotation
        if not (isinstance(self.model, type) and issubclass(self.model, BaseModel)):
            self.model = BaseModel  # of which there are no values
        self.default = field.default  # of a required field, it is no possible value
        self._field = field
        self._is_required = field.is_required()

    def is_default(self, item: object, items: dict[str, Any]) -> bool:
        """Return whether `item`, one of the fields `items`, is the default of this field."""
        if self._is_required:
            return False
        if self._field.default_factory is None:
            return bool(item == self.default)
        return bool(
            item == self._field.get_default(call_default_factory=True, validated_data=items)
        )


@functools.cache
def _fields(cls: type[BaseModel]) -> tuple[_PackedField, ...]:
    return tuple(_PackedField(name, field) for name, field in cls.model_fields.items())


def unpack(raw: RawValue, cls: type[V]) -> V:
    """Parse a payload as a value of `cls`, ignoring unknown fields.

    Raises:
        DecryptionError: The payload is encrypted, and could not be decrypted.
        InvalidRequestError: The payload is not JSON, or does not have this shape; the message
            describes the problem.
    """
    if marks.is_encrypted(raw.payload):
        raise undecodable(None, [raw.payload])
    encoding = raw.payload.metadata.get("encoding", b"")
    if encoding != _JSON["encoding"]:
        raise errors.InvalidRequestError(
            f"expected JSON for {cls.__name__}, got"
            f" {encoding.decode(errors='replace') or 'nothing'}"
        )
    data = raw.payload.data
    if _parsed is not None and (known := _parsed.get((cls, data))) is not None:
        return cast("V", known)
    try:
        value = cls.model_validate_json(data, extra="ignore")
    except ValidationError as error:
        raise errors.InvalidRequestError(f"not a valid {cls.__name__}: {explain(error)}") from None
    if _parsed is not None:
        _parsed[cls, data] = value
    return value


async def decoded(
    converter: DataConverter, payloads: Sequence[Payload], types: list[type] | None = None
) -> list[Any]:
    """Decode payloads of a turn.

    Raises:
        PayloadDecodeError: This process lacks the codec or the key that they were encoded with.
        KeyStoreError: The store with the keys of data subjects does not answer.
    """
    try:
        return await converter.decode(payloads, types)
    except errors.KeyStoreError:
        raise  # a later attempt may read them
    except Exception as error:
        codec = converter.payload_codec
        if codec is not None and any(map(marks.is_encrypted, payloads)):
            with contextlib.suppress(Exception):  # Perdure's own notes why, and does not fail
                payloads = await codec.decode(payloads)
        raise undecodable(error, payloads) from error


def is_foreign(payload: Payload) -> bool:
    """Return whether a payload is still encoded.

    A codec sets an encoding that no payload converter of Temporal's uses.
    """
    return payload.metadata.get("encoding", b"") not in _ENCODINGS


def undecodable(error: Exception | None, payloads: Sequence[Payload]) -> errors.PayloadDecodeError:
    """Return the error for payloads that cannot be decoded, without a codec's message.

    Such a message may quote a key.
    """
    encrypted = next(filter(marks.is_encrypted, payloads), None)
    if encrypted is not None:
        return marks.unreadable(encrypted, "the turn")
    foreign = next(
        (payload.metadata["encoding"] for payload in payloads if is_foreign(payload)), None
    )
    if foreign is not None and (error is None or _UNKNOWN in str(error)):
        return errors.PayloadDecodeError(
            f"the turn cannot be read: it is encoded as {_named(foreign)} {_NO_CODEC}"
        )
    cause = str(error) if str(error).startswith(_TEMPORAL) else type(error).__name__
    return errors.PayloadDecodeError(
        f"the turn cannot be read: the data converter failed ({cause}); does it have the key that"
        " the turn was written with?"
    )


def _named(encoding: bytes) -> str:
    return one_line(encoding.decode(errors="replace"), _SHOWN)


def raw_input(args: Sequence[Any]) -> RawValue:
    """Return the single input of an activity. A dynamic activity gets its inputs as a list."""
    first: Any = args[0]
    return raw_input(first) if isinstance(first, list) else cast("RawValue", first)


def explain(error: ValidationError) -> str:
    """Describe validation errors and their places, without values."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'input'}: {problem['msg']}"
        for problem in problems[:5]
    )
