"""The protocol between a worker, whose model generates a text, and a process that shows it.

A reader knows the address and the key of a text from the heartbeats of its model call, so it may
read from the worker what it may read in Temporal. Neither side sends the key. Each says a random
number, the reader proves that it has the key, and a code over the key and both numbers goes with
each message of the worker. Messages are payloads that the client's data converter has encoded, as
those in history: with a codec that encrypts, they are encrypted.

    reader: name of the text, 16 bytes | random number, 16 bytes
    worker: random number, 16 bytes
    reader: code of "reader", 32 bytes
    worker: length, 4 bytes | code of the message, 32 bytes | message, and so on until the end

The name is derived from the key. The numbers make the codes of a connection useless in another, and
the code of a message counts the messages before it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import AsyncGenerator

NAME_BYTES = 16
_NUMBER_BYTES = 16
_CODE_BYTES = hashlib.sha256().digest_size
_LENGTH_BYTES = 4
_LONGEST_BYTES = 8_000_000
"""The longest message: a whole answer, with room for what a codec adds."""


class ForgedTextError(ValueError):
    """The other side does not have the key of the text, or does not speak the protocol."""


def new_key() -> str:
    """Return the key of another text."""
    return secrets.token_hex()


def name_of(key: str) -> bytes:
    """Return the name of the text with a key."""
    return _code(key.encode(), b"name")[:NAME_BYTES]


class Codes:
    """The codes of one connection."""

    def __init__(self, key: str, of_reader: bytes, of_worker: bytes) -> None:
        self._secret = _code(key.encode(), b"line" + of_reader + of_worker)
        self._sent = 0

    @property
    def proof(self) -> bytes:
        """What proves that the reader has the key."""
        return _code(self._secret, b"reader")

    def next(self, message: bytes) -> bytes:
        """Return the code of the next message of the worker."""
        self._sent += 1
        return _code(self._secret, b"message" + self._sent.to_bytes(8, "big") + message)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> Codes:
    """Ask a worker for the text with a key, as a reader of it.

    Raises:
        OSError: The connection is broken.
        IncompleteReadError: The worker has no such text.
    """
    number = secrets.token_bytes(_NUMBER_BYTES)
    writer.write(name_of(key) + number)
    codes = Codes(key, number, await reader.readexactly(_NUMBER_BYTES))
    writer.write(codes.proof)
    await writer.drain()
    return codes


async def messages(reader: asyncio.StreamReader, codes: Codes) -> AsyncGenerator[bytes, None]:
    """Yield the messages of a worker until it has sent the last.

    Raises:
        ForgedTextError: A message is not from a worker that has the key.
        OSError: The connection is broken.
    """
    while True:
        try:
            head = await reader.readexactly(_LENGTH_BYTES + _CODE_BYTES)
        except asyncio.IncompleteReadError:
            return
        length = int.from_bytes(head[:_LENGTH_BYTES], "big")
        if length > _LONGEST_BYTES:
            raise ForgedTextError(f"a message of {length} bytes")
        message = await reader.readexactly(length)
        if not hmac.compare_digest(codes.next(message), head[_LENGTH_BYTES:]):
            raise ForgedTextError("a message with a wrong code")
        yield message


async def asked(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the name of the text that a reader asks for, and the random number of the reader."""
    head = await reader.readexactly(NAME_BYTES + _NUMBER_BYTES)
    return head[:NAME_BYTES], head[NAME_BYTES:]


async def admit(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str, number: bytes
) -> Codes:
    """Let a reader prove that it has the key of the text that it has asked for.

    Args:
        reader: The connection.
        writer: The same.
        key: The key of the text.
        number: The random number of the reader.

    Raises:
        ForgedTextError: The reader does not have the key.
        IncompleteReadError: The reader has gone.
    """
    own = secrets.token_bytes(_NUMBER_BYTES)
    codes = Codes(key, number, own)
    writer.write(own)
    if not hmac.compare_digest(codes.proof, await reader.readexactly(_CODE_BYTES)):
        raise ForgedTextError("a reader with a wrong proof")
    return codes


def framed(message: bytes, codes: Codes) -> bytes:
    """Return the next message of a worker as it is sent."""
    return len(message).to_bytes(_LENGTH_BYTES, "big") + codes.next(message) + message


def _code(secret: bytes, text: bytes) -> bytes:
    return hmac.digest(secret, text, "sha256")
