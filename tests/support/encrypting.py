"""Data converters that encrypt, for `PERDURE_DATA_CONVERTER`."""

import os
from collections.abc import Sequence

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, DefaultPayloadConverter, PayloadCodec

KEYS = {"first": b"1" * 32, "second": b"2" * 32}
"""Keys of tests, by the ids that payloads name."""


class Encrypting(PayloadCodec):
    """Encrypts with the first of these keys, and decrypts with any of them."""

    def __init__(self, *ids: str) -> None:
        self._ciphers = {name: AESGCM(KEYS[name]) for name in ids}
        self._first = ids[0]

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each payload whole, its metadata included."""
        return [self._encrypted(payload) for payload in payloads]

    def _encrypted(self, payload: Payload) -> Payload:
        nonce = os.urandom(12)
        data = nonce + self._ciphers[self._first].encrypt(nonce, payload.SerializeToString(), None)
        return Payload(
            metadata={"encoding": b"binary/encrypted", "encryption-key-id": self._first.encode()},
            data=data,
        )

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """What another codec wrote, or none, is left as it is."""
        return [
            self._decrypted(payload)
            if payload.metadata.get("encoding") == b"binary/encrypted"
            else payload
            for payload in payloads
        ]

    def _decrypted(self, payload: Payload) -> Payload:
        cipher = self._ciphers[payload.metadata["encryption-key-id"].decode()]
        return Payload.FromString(cipher.decrypt(payload.data[:12], payload.data[12:], None))


converter = DataConverter(payload_codec=Encrypting("first"))
rotated = DataConverter(payload_codec=Encrypting("second", "first"))
no_converter = "a string"


def made() -> DataConverter:
    """A converter by a function."""
    return converter


def broken() -> DataConverter:
    """A function whose error quotes the key that it cannot use."""
    raise ValueError("planted-key is too short")


def missing() -> DataConverter:
    """A function that needs what is not installed."""
    import no_such_package  # type: ignore[import-not-found]

    return no_such_package.converter  # type: ignore[no-any-return]


class Foreign(DefaultPayloadConverter):
    """A payload converter of the user's that writes everything as text."""

    def to_payloads(self, values: Sequence[object]) -> list[Payload]:
        """Whatever it is."""
        return [
            Payload(metadata={"encoding": b"text/plain"}, data=str(value).encode())
            for value in values
        ]
