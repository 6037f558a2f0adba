"""The data converter of Perdure's connections, for encryption and external storage.

`PERDURE_ENCRYPTION_KEYS` or a file of keys turns encryption on, and
`PERDURE_DATA_CONVERTER=module:name` names a converter, for workers, clients, all commands and
tests. A converter in code overrides the latter, and its codec, if it has one, both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from temporalio.api.common.v1 import Payload
from temporalio.common import HeaderCodecBehavior, RawValue
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
    PayloadConverter,
)

from perdure import errors, validation
from perdure.temporal.encryption import hiding, key_stores, user_objects
from perdure.temporal.encryption import keys as encryption_keys
from perdure.temporal.encryption.codec import EncodedFailures, Encryption
from perdure.temporal.encryption.data_keys import SubjectKeys

VARIABLE = "PERDURE_DATA_CONVERTER"

Converter = (
    Annotated[
        DataConverter, validation.instance("a temporalio.converter.DataConverter", DataConverter)
    ]
    | None
)

_OURS = Payload(metadata={"encoding": b"json/plain"}, data=b'{"a":1}')
_MEMO = {"a": 1}
_FAILURES = (
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    EncodedFailures,
)


class DefaultPayloads(PayloadConverter):
    """Converts as Temporal's default payload converter does.

    That one looks for the serialization context of each payload with every conversion, some fifty
    times for a step of a turn, and does nothing with it. A codec gets its context all the same.
    """

    def __init__(self) -> None:
        self._default = DefaultPayloadConverter()

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        """Convert values to payloads."""
        return self._default.to_payloads(values)

    def from_payloads(
        self, payloads: Sequence[Payload], type_hints: list[type] | None = None
    ) -> list[Any]:
        """Convert payloads to values."""
        return self._default.from_payloads(payloads, type_hints)


DEFAULT = DataConverter(payload_converter_class=DefaultPayloads)
"""The converter without encryption or a choice of the user."""


def chosen(data_converter: DataConverter | None = None) -> DataConverter:
    """Return the converter of a new connection.

    It is `data_converter`, else the converter in the environment, else Temporal's default; with
    keys in the environment it encrypts, unless `data_converter` has a codec. With a codec, failures
    are encoded too, as their messages quote tools and guardrails.

    Raises:
        ConfigurationError: It cannot be loaded, is not a data converter, or cannot carry Perdure's
            payloads; or the keys cannot be read, or are set beside another codec.
    """
    validation.check(
        "the connection", {"data_converter": data_converter}, {"data_converter": Converter}
    )
    target = os.environ.get(VARIABLE, "")
    converter = data_converter or (_loaded(target) if target else DEFAULT)
    check(converter)
    keys = encryption_keys.from_environment()
    if not keys:
        key_stores.refuse_without_keys()
    if keys and data_converter is None and converter.payload_codec is not None:
        raise errors.ConfigurationError(
            f"{VARIABLE}={target} has a codec, and {hiding.VARIABLE} is set, too; set one"
            " of them, or name a converter without a codec"
        )
    if keys and converter.payload_codec is None:
        return encrypting(converter, keys)
    if (
        converter.payload_codec is not None
        and converter.failure_converter_class is DefaultFailureConverter
    ):
        return replace(
            converter, failure_converter_class=DefaultFailureConverterWithEncodedAttributes
        )
    return converter


def encrypting(converter: DataConverter, keys: Mapping[str, bytes]) -> DataConverter:
    """Return a converter that encrypts what another one has converted.

    It also encrypts with the keys of data subjects if the environment names a store of them.

    Raises:
        ConfigurationError: The failure converter of that one is the user's own, or the store cannot
            be used.
    """
    if converter.failure_converter_class not in _FAILURES:
        raise errors.ConfigurationError(
            f"the failure converter {converter.failure_converter_class.__name__} cannot be used"
            " with encryption, which has its own; leave it out"
        )
    store = key_stores.from_environment()
    data_keys = None if store is None else SubjectKeys(store, keys)
    return replace(
        converter,
        payload_codec=Encryption(keys, data_keys),
        failure_converter_class=EncodedFailures,
    )


def headers_of(converter: DataConverter) -> HeaderCodecBehavior:
    """Return whether headers, such as the context of a trace, are encrypted."""
    encrypts = isinstance(converter.payload_codec, Encryption)
    return HeaderCodecBehavior.CODEC if encrypts else HeaderCodecBehavior.NO_CODEC


def check(converter: DataConverter) -> None:
    """Check that a converter does not change Perdure's payloads, which are JSON already.

    Raises:
        ConfigurationError: It changes them, or does not accept them.
    """
    payloads = converter.payload_converter
    try:
        carries = (
            payloads.to_payloads([RawValue(_OURS)]) == [_OURS]
            and payloads.from_payloads([_OURS], [RawValue])[0].payload == _OURS
        )
        carries = carries and payloads.from_payloads(payloads.to_payloads([_MEMO])) == [_MEMO]
    except Exception:  # noqa: BLE001 - from the user's class; any failure means the same
        carries = False
    if not carries:
        raise errors.ConfigurationError(
            f"the payload converter {converter.payload_converter_class.__name__} cannot carry"
            " Perdure's payloads, which are JSON and given as RawValue; use Temporal's default"
            " payload converter or its pydantic one, and encrypt or compress in a payload_codec"
        )


def _loaded(target: str) -> DataConverter:
    """Return the converter that the environment names.

    Raises:
        ConfigurationError: There is none.
    """
    example = "for a converter called `converter` in codec.py it is codec:converter"
    loaded = user_objects.load(target, VARIABLE, example=example)
    if not isinstance(loaded, DataConverter) and callable(loaded):
        loaded = user_objects.called(loaded, target, VARIABLE)
    if not isinstance(loaded, DataConverter):
        raise errors.ConfigurationError(
            f"{VARIABLE}={target} is a {type(loaded).__name__}; it must be a"
            " temporalio.converter.DataConverter, or a function that returns one"
        )
    return loaded
