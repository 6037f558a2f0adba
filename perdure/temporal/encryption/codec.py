"""Encrypts what Temporal stores, with AES-256-GCM.

What is encrypted names its key and the workflow that it was written for, and both are
authenticated. `Encryption.decode` never fails: what it cannot decrypt stays encrypted and gets a
note of the reason, which `marks.problem` reads. An error there would fail a workflow task again and
again, while a payload that is still encrypted is an error of the turn. It fails only while the
store with the keys of data subjects does not answer, as a later attempt is better then.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

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

from perdure.temporal.encryption.contexts import (
    ACTIVITY,
    WRITING,
    KeyedActivity,
    KeyedWorkflow,
)
from perdure.temporal.encryption.marks import (
    CHANGED,
    DATA_KEY,
    ENCODING,
    ERASED,
    KEY,
    NO_KEY,
    OTHER_SUBJECT,
    OTHER_WORKFLOW,
    PROBLEM,
    VERSION,
    WORKFLOW,
    is_encrypted,
    is_of_subject,
    key_of,
    unreadable,
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
_ERASED_TEXT = "(erased)"
_OF_TEXT = b"text"
_TIME_OF_SCHEDULE = re.compile(r"-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
"""What Temporal appends to the id of a workflow that a schedule starts."""
_SHOWN = 120


class DataKeys(Protocol):
    """The keys of data subjects, by their ids.

    A key is a cipher; or, if it cannot be had, the note for what is encrypted with it.
    """

    def cipher_now(self, key: str) -> AESGCM | bytes:
        """Return a key, in this thread.

        Raises:
            KeyStoreError: The store does not answer.
        """

    async def cipher(self, key: str) -> AESGCM | bytes:
        """Return a key.

        Raises:
            KeyStoreError: The store does not answer.
        """


class Encryption(PayloadCodec, WithSerializationContext):
    """A codec that encrypts with the first of its keys and decrypts with all of them.

    What is of a data subject is encrypted with the key of the subject instead. Payloads that no
    codec has encoded stay as they are, so earlier turns can be read.

    Args:
        keys: Keys of 32 bytes, by their names.
        data_keys: The keys of data subjects; None without a store for them.

    Attributes:
        find: Returns the data key of a workflow by its id, empty for that of no subject; None if
            there is no such workflow. A connection sets it.
    """

    def __init__(self, keys: Mapping[str, bytes], data_keys: DataKeys | None = None) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._ciphers: dict[str, AESGCM] = {name: AESGCM(key) for name, key in keys.items()}
        self._first = next(iter(keys))
        self._context: SerializationContext | None = None
        self._workflow_id = ""
        self.data_keys = data_keys
        self.find: Callable[[str], Awaitable[str | None]] | None = None

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the keys, the one that encrypts first."""
        return tuple(self._ciphers)

    def with_context(self, context: SerializationContext) -> Encryption:
        """Return the codec of the payloads of one workflow."""
        if not isinstance(context, WorkflowSerializationContext | ActivitySerializationContext):
            return self
        bound = Encryption.__new__(Encryption)
        bound.__dict__.update(self.__dict__)
        bound._context = context  # noqa: SLF001
        bound._workflow_id = context.workflow_id or ""  # noqa: SLF001
        return bound

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each payload whole, its metadata included.

        Raises:
            ErasedError: They are for a workflow of a data subject that was erased.
            KeyStoreError: The store with the keys of data subjects does not answer.
        """
        name = await self._data_key(payloads) or self._first
        if name in self._ciphers:
            cipher: AESGCM | bytes = self._ciphers[name]
        else:
            assert self.data_keys is not None
            cipher = await self.data_keys.cipher(name)
        if isinstance(cipher, bytes):
            raise unreadable(_without_content(name, cipher), "the workflow")
        usable = cipher
        return await _each(lambda payload: self._encrypted(payload, name, usable), payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt each payload; what cannot be decrypted stays encrypted, with its problem.

        Raises:
            KeyStoreError: The store with the keys of data subjects does not answer.
        """
        if self.data_keys is None:
            return await _each(lambda payload: self._decrypted(payload, self._ciphers), payloads)
        ciphers: dict[str, AESGCM | bytes] = dict(self._ciphers)
        for name in set(map(key_of, filter(is_encrypted, payloads))):
            if is_of_subject(name):
                ciphers[name] = await self.data_keys.cipher(name)
        decrypted = await _each(lambda payload: self._decrypted(payload, ciphers), payloads)
        if isinstance(self._context, ActivitySerializationContext) and payloads:
            data_key = next(filter(None, map(_data_key_in, decrypted)), "")
            if data_key or ACTIVITY.get() is None:  # not by an empty heartbeat of before
                ACTIVITY.set(data_key)
        return decrypted

    async def data_key_of(self, workflow_id: str) -> str:
        """Return the data key of a workflow; empty for one of no subject, or that does not exist.

        Raises:
            RPCError: The server does not answer.
        """
        if self.data_keys is None or self.find is None:
            return ""
        return await self.find(workflow_id) or ""

    def hide(self, text: str, data_key: str = "") -> str:
        """Return a text for where Temporal takes no payload, such as the reason of a cancel.

        Raises:
            ErasedError: The data subject of the key was erased.
            KeyStoreError: The store with the keys of data subjects does not answer.
        """
        if not text:
            return text
        name = data_key or self._first
        cipher = self._cipher_now(name)
        if isinstance(cipher, bytes):
            raise unreadable(_without_content(name, cipher), "the workflow")
        sealed = _sealed(cipher, text.encode(), _text_data(name))
        return f"{_TEXT}{name}:{base64.b64encode(sealed).decode()}"

    def reveal(self, text: str) -> str:
        """Return what was hidden in a text; one that was not hidden is returned as it is."""
        return _revealed(text, self)

    def _cipher_now(self, name: str) -> AESGCM | bytes:
        if is_of_subject(name) and self.data_keys is not None:
            return self.data_keys.cipher_now(name)
        return self._ciphers.get(name, NO_KEY)

    async def _data_key(self, payloads: Sequence[Payload]) -> str:
        """Return the data key for what is written in this context; empty for that of no subject."""
        context = self._context
        if self.data_keys is None:
            return ""
        if isinstance(context, KeyedWorkflow | KeyedActivity):
            return context.data_key
        if isinstance(context, ActivitySerializationContext) and ACTIVITY.get() is not None:
            return ACTIVITY.get() or ""
        writing = WRITING.get()
        if writing is not None and writing.starts:
            return writing.data_key
        is_empty = all(payload.metadata.get("encoding") == _NULL for payload in payloads)
        found = None
        if self.find is not None and self._workflow_id and not is_empty:
            found = await self.find(self._workflow_id)
        return found if found is not None else (writing.data_key if writing else "")

    def _encrypted(self, payload: Payload, name: str, cipher: AESGCM) -> Payload:
        if payload.metadata.get("encoding") == _NULL:
            return payload
        workflow = self._workflow_id.encode()
        metadata = {"encoding": ENCODING, KEY: name.encode(), VERSION: _FORMAT}
        if workflow:
            metadata[WORKFLOW] = workflow
        data = _sealed(cipher, payload.SerializeToString(), _data(name.encode(), workflow))
        return Payload(metadata=metadata, data=data)

    def _decrypted(self, payload: Payload, ciphers: Mapping[str, AESGCM | bytes]) -> Payload:
        if not is_encrypted(payload):
            return payload
        name, workflow = payload.metadata[KEY], payload.metadata.get(WORKFLOW, b"")
        cipher = ciphers.get(name.decode(errors="replace"), NO_KEY)
        if isinstance(cipher, bytes):
            return _noted(payload, cipher)
        opened = _opened(cipher, payload.data, _data(name, workflow))
        if opened is None or payload.metadata[VERSION] != _FORMAT:
            return _noted(payload, CHANGED)
        if workflow and self._workflow_id and not _is_of(workflow.decode(), self._workflow_id):
            return _noted(payload, OTHER_WORKFLOW + self._workflow_id.encode())
        if self._is_of_other_subject(name.decode()):
            return _noted(payload, OTHER_SUBJECT)
        try:
            decrypted = Payload.FromString(opened)
        except DecodeError:
            return _noted(payload, CHANGED)
        if is_of_subject(name.decode()):
            decrypted.metadata[DATA_KEY] = name
        return decrypted

    def _is_of_other_subject(self, name: str) -> bool:
        """Return whether a payload for a workflow of one subject is encrypted for another one."""
        context = self._context
        own = context.data_key if isinstance(context, KeyedWorkflow | KeyedActivity) else ""
        return bool(own) and is_of_subject(name) and name != own


class EncodedFailures(DefaultFailureConverterWithEncodedAttributes):
    """Encrypts the messages and stack traces of failures; one that cannot be read is an error.

    Temporal's converter raises for details that are still encrypted, and fails the workflow task.
    """

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> FailureError:
        """Return the exception of a failure; one of a `DecryptionError` if it is encrypted."""
        for payload in _payloads_of(failure):
            if is_encrypted(payload):
                error = unreadable(payload, "the failure")
                info = error.info().model_dump(mode="json")
                return ApplicationError(error.message, info, type=error.code, non_retryable=True)
        return super().from_failure(failure, payload_converter)  # type: ignore[return-value]


def revealed(text: str, codec: PayloadCodec | None) -> str:
    """Return what `Encryption.hide` has hidden in a text, or that it cannot be read."""
    return _revealed(text, codec if isinstance(codec, Encryption) else None)


def hidden(text: str, codec: PayloadCodec | None, data_key: str = "") -> str:
    """Return the text as Temporal gets it beside payloads: hidden if the connection encrypts.

    Raises:
        ErasedError: The data subject of the key was erased.
        KeyStoreError: The store with the keys of data subjects does not answer.
    """
    return codec.hide(text, data_key) if isinstance(codec, Encryption) else text


def _revealed(text: str, codec: Encryption | None) -> str:
    if not text.startswith(_TEXT):
        return text
    name, _, encoded = text.removeprefix(_TEXT).partition(":")
    cipher = codec._cipher_now(name) if codec is not None else NO_KEY  # noqa: SLF001
    if isinstance(cipher, bytes):
        return _ERASED_TEXT if cipher.startswith(ERASED) else _unread(name)
    try:
        sealed = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        sealed = b""
    opened = _opened(cipher, sealed, _text_data(name))
    return _unread(name) if opened is None else opened.decode()


def _unread(name: str) -> str:
    return f"(encrypted with the key {one_line(name, _SHOWN)!r})"


def _sealed(cipher: AESGCM, plain: bytes, associated: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    kind = _PLAIN
    if len(plain) >= _COMPRESSED_FROM_BYTES:
        kind, plain = _COMPRESSED, zlib.compress(plain, 1)
    return nonce + cipher.encrypt(nonce, kind + plain, associated)


def _opened(cipher: AESGCM, sealed: bytes, associated: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag

    try:
        plain = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], associated)
    except (InvalidTag, ValueError):  # the second for a nonce that is too short
        return None
    return zlib.decompress(plain[1:]) if plain[:1] == _COMPRESSED else plain[1:]


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


def _data_key_in(payload: Payload) -> str:
    return payload.metadata.get(DATA_KEY, b"").decode()


def _without_content(name: str, note: bytes) -> Payload:
    """Return what stands for something that a key cannot encrypt, for its error."""
    return Payload(metadata={KEY: name.encode(), PROBLEM: note})


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
