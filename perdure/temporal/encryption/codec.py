"""Encrypts what Temporal stores, with AES-256-GCM.

What is encrypted names its key and the workflow that it was written for, and both are
authenticated. `Encryption.decode` never fails: what it cannot decrypt stays encrypted and gets a
note of the reason, which `marks.problem` reads. An error there would fail a workflow task again and
again, while a payload that is still encrypted is an error of the turn.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    ActivitySerializationContext,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)
from temporalio.exceptions import ApplicationError, FailureError

from perdure.errors import DecryptionError
from perdure.temporal.encryption.marks import (
    CHANGED,
    ENCODING,
    KEY,
    NO_KEY,
    OTHER_WORKFLOW,
    PROBLEM,
    VERSION,
    WORKFLOW,
    is_encrypted,
    key_of,
    problem,
)
from perdure.text import one_line

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NULL = b"binary/null"
"""The encoding of None. It stays readable: with it, Temporal removes a field of a memo."""
_FORMAT = b"1"
_NONCE_BYTES = 12
_PLAIN, _COMPRESSED = b"\0", b"\1"
_COMPRESSED_FROM_BYTES = 512
"""Below, compression saves less than it costs."""
_THREAD_FROM_BYTES = 256 * 1024
"""From here on, work goes to a thread, so that it does not block the event loop."""
_TEXT = "encrypted:"
_OF_TEXT = b"text"
_TIME_OF_SCHEDULE = re.compile(r"-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
"""What Temporal appends to the id of a workflow that a schedule starts."""
_SHOWN = 120


class Encryption(PayloadCodec, WithSerializationContext):
    """A codec that encrypts with the first of its keys and decrypts with all of them.

    Payloads that no codec has encoded stay as they are, so earlier turns can be read.

    Args:
        keys: Keys of 32 bytes, by their names.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._ciphers: dict[str, AESGCM] = {name: AESGCM(key) for name, key in keys.items()}
        self._first = next(iter(keys))
        self._workflow_id = ""

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the keys, the one that encrypts first."""
        return tuple(self._ciphers)

    def with_context(self, context: SerializationContext) -> Encryption:
        """Return the codec of the payloads of one workflow."""
        if not isinstance(context, WorkflowSerializationContext | ActivitySerializationContext):
            return self
        bound = Encryption.__new__(Encryption)
        bound._ciphers, bound._first = self._ciphers, self._first  # noqa: SLF001
        bound._workflow_id = context.workflow_id or ""  # noqa: SLF001
        return bound

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each payload whole, its metadata included."""
        return await _each(self._encrypted, payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt each payload; what cannot be decrypted stays encrypted, with its problem."""
        return await _each(self._decrypted, payloads)

    def hide(self, text: str) -> str:
        """Return a text for where Temporal takes no payload, such as the reason of a cancel."""
        if not text:
            return text
        sealed = self._sealed(text.encode(), _text_data(self._first))
        return f"{_TEXT}{self._first}:{base64.b64encode(sealed).decode()}"

    def reveal(self, text: str) -> str:
        """Return what was hidden in a text; one that was not hidden is returned as it is."""
        return _revealed(text, self)

    def _encrypted(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") == _NULL:
            return payload
        workflow = self._workflow_id.encode()
        metadata = {"encoding": ENCODING, KEY: self._first.encode(), VERSION: _FORMAT}
        if workflow:
            metadata[WORKFLOW] = workflow
        data = self._sealed(payload.SerializeToString(), _data(self._first.encode(), workflow))
        return Payload(metadata=metadata, data=data)

    def _decrypted(self, payload: Payload) -> Payload:
        if not is_encrypted(payload):
            return payload
        name, workflow = payload.metadata[KEY], payload.metadata.get(WORKFLOW, b"")
        if name.decode(errors="replace") not in self._ciphers:
            return _noted(payload, NO_KEY)
        opened = self._opened(name.decode(), payload.data, _data(name, workflow))
        if opened is None or payload.metadata[VERSION] != _FORMAT:
            return _noted(payload, CHANGED)
        if workflow and self._workflow_id and not _is_of(workflow.decode(), self._workflow_id):
            return _noted(payload, OTHER_WORKFLOW + self._workflow_id.encode())
        try:
            return Payload.FromString(opened)
        except DecodeError:
            return _noted(payload, CHANGED)

    def _sealed(self, plain: bytes, associated: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        kind = _PLAIN
        if len(plain) >= _COMPRESSED_FROM_BYTES:
            kind, plain = _COMPRESSED, zlib.compress(plain, 1)
        return nonce + self._ciphers[self._first].encrypt(nonce, kind + plain, associated)

    def _opened(self, name: str, sealed: bytes, associated: bytes) -> bytes | None:
        from cryptography.exceptions import InvalidTag

        try:
            plain = self._ciphers[name].decrypt(
                sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], associated
            )
        except (InvalidTag, ValueError):  # the second for a nonce that is too short
            return None
        return zlib.decompress(plain[1:]) if plain[:1] == _COMPRESSED else plain[1:]


class EncodedFailures(DefaultFailureConverterWithEncodedAttributes):
    """Encrypts the messages and stack traces of failures; one that cannot be read is an error.

    Temporal's converter raises for details that are still encrypted, and fails the workflow task.
    """

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> FailureError:
        """Return the exception of a failure; one of a `DecryptionError` if it is encrypted."""
        for payload in _payloads_of(failure):
            if is_encrypted(payload):
                error = DecryptionError(
                    f"the failure cannot be read: {problem(payload)}",
                    context={"key": key_of(payload)},
                )
                info = error.info().model_dump(mode="json")
                return ApplicationError(error.message, info, type=error.code, non_retryable=True)
        return super().from_failure(failure, payload_converter)  # type: ignore[return-value]


def revealed(text: str, codec: PayloadCodec | None) -> str:
    """Return what `Encryption.hide` has hidden in a text, or that it cannot be read."""
    return _revealed(text, codec if isinstance(codec, Encryption) else None)


def hidden(text: str, codec: PayloadCodec | None) -> str:
    """Return the text as Temporal gets it beside payloads: hidden if the connection encrypts."""
    return codec.hide(text) if isinstance(codec, Encryption) else text


def _revealed(text: str, codec: Encryption | None) -> str:
    if not text.startswith(_TEXT):
        return text
    name, _, encoded = text.removeprefix(_TEXT).partition(":")
    opened: bytes | None = None
    if codec is not None and name in codec._ciphers:  # noqa: SLF001
        try:
            sealed = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            sealed = b""
        opened = codec._opened(name, sealed, _text_data(name))  # noqa: SLF001
    if opened is None:
        return f"(encrypted with the key {one_line(name, _SHOWN)!r})"
    return opened.decode()


def _data(key: bytes, workflow: bytes) -> bytes:
    """Return what is authenticated beside the content of a payload."""
    return b"\0".join((_FORMAT, key, workflow))


def _text_data(name: str) -> bytes:
    return b"\0".join((_FORMAT, name.encode(), b"", _OF_TEXT))


def _is_of(written_for: str, workflow_id: str) -> bool:
    """Return whether a payload belongs to a workflow.

    A schedule holds the input of its workflows, and Temporal gives each the result of the last.
    """
    return written_for == workflow_id or (
        _TIME_OF_SCHEDULE.sub("", written_for) == _TIME_OF_SCHEDULE.sub("", workflow_id)
    )


def _noted(payload: Payload, note: bytes) -> Payload:
    noted = Payload()
    noted.CopyFrom(payload)
    noted.metadata[PROBLEM] = note
    return noted


def _payloads_of(failure: Failure) -> Sequence[Payload]:
    details = list(failure.application_failure_info.details.payloads)
    return [*details, failure.encoded_attributes]


async def _each(work: Callable[[Payload], Payload], payloads: Sequence[Payload]) -> list[Payload]:
    if sum(len(payload.data) for payload in payloads) < _THREAD_FROM_BYTES:
        return [work(payload) for payload in payloads]
    return await asyncio.to_thread(lambda: [work(payload) for payload in payloads])
