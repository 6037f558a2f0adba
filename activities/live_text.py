"""Serves the text of this process's model calls, as it is generated, to those who follow the turns.

History is not involved. Readers find the address and the key of a text in the heartbeats of its
activity; without a way to this process they read the text itself there (docs/decisions/0167).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from temporalio.client import Client
from temporalio.converter import DataConverter

from perdure import errors
from perdure.live_text import lines
from perdure.live_text.values import LiveText, TextSource
from perdure.temporal.payloads import pack
from perdure.text import size, tail

logger = logging.getLogger("perdure")

_EVERY_S = 0.02
"""The interval at which a reader is sent what has come since; the first piece is sent at once."""
_GREETING_S = 2.0
_SEND_S = 10.0
_STRANGERS = 128
"""The most connections that have not proved yet that they may read a text."""
_PORTS = 16
"""The ports to try from the configured one on: a machine may have several workers."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Listening:
    """Where a worker serves the text of its model calls.

    Attributes:
        host: The address, which readers connect to; empty for the one with which this machine
            reaches Temporal.
        port: The first port to try; 0 for any.
        only_loopback: Whether to serve nothing unless Temporal is on this machine, too.
    """

    host: str = ""
    port: int = 0
    only_loopback: bool = False


class TextOfCall:
    """The text of one model call so far: for readers of this process, and for heartbeats.

    Attributes:
        source: Where readers find it; None if they do not.
    """

    def __init__(self, converter: DataConverter, address: str | None) -> None:
        self.key = lines.new_key()
        self.source = TextSource(address=address, key=self.key) if address else None
        self.converter = converter
        self.is_complete = False
        self._pieces: list[str] = []
        self._length = 0
        self._news = asyncio.Event()

    def add(self, piece: str) -> None:
        """Add a piece at the end."""
        self._pieces.append(piece)
        self._length += len(piece)
        self._tell()

    def end(self, most_bytes: int) -> LiveText:
        """Return the end of the text, of at most so many bytes, with the way to the rest."""
        pieces, missing = list[str](), most_bytes
        for piece in reversed(self._pieces):
            pieces.append(piece)
            missing -= size(piece)
            if missing <= 0:
                break
        text = tail("".join(reversed(pieces)), most_bytes)
        return LiveText(offset=self._length - len(text), text=text, source=self.source)

    def complete(self) -> None:
        """Note that nothing more will come."""
        self.is_complete = True
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def chunks(self) -> AsyncIterator[LiveText]:
        """Yield the text from its beginning in chunks, until it is complete."""
        sent, offset = 0, 0
        while True:
            news = self._news
            if sent < len(self._pieces):
                text = "".join(self._pieces[sent:])
                sent = len(self._pieces)
                yield LiveText(offset=offset, text=text)
                offset += len(text)
                await asyncio.sleep(_EVERY_S)
            elif self.is_complete:
                return
            else:
                await news.wait()


class LiveTexts:
    """The texts of the model calls that run in this process, and the port where they are served."""

    def __init__(self, listening: Listening | None) -> None:
        self._listening = listening
        self._address: str | None = None
        self._texts: dict[bytes, TextOfCall] = {}
        self._strangers = 0
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self, opened: contextlib.AsyncExitStack, client: Client) -> None:
        """Listen until `opened` is closed, if that is configured.

        A worker that was not told where to listen runs without it, if need be.

        Raises:
            ConfigurationError: The configured address or its ports are not available.
        """
        target = _host_of(client.service_client.config.target_host)
        if self._listening is None:
            return
        if self._listening.only_loopback and target not in _LOOPBACK:
            return
        try:
            listening = _socket(self._listening, target)
        except errors.ConfigurationError as error:
            if not self._listening.only_loopback:
                raise
            logger.warning("live text comes by heartbeats alone: %s", error.message)
            return
        server = await asyncio.start_server(self._accept, sock=listening)
        opened.push_async_callback(self._close, server)
        self._address = _address(listening)

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        self._address = None
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    @contextlib.contextmanager
    def text(self, converter: DataConverter) -> Iterator[TextOfCall]:
        """Serve a text during the block, if this process listens."""
        text = TextOfCall(converter, self._address)
        name = lines.name_of(text.key)
        self._texts[name] = text
        try:
            yield text
        finally:
            text.complete()
            del self._texts[name]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection. It never raises, whatever the peer does."""
        try:
            await self._exchange(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, lines.ForgedTextError):
            pass  # the peer has gone, is too slow, or is nobody that may read this
        except Exception:
            logger.exception("live text could not be sent; readers get it by heartbeats")
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._strangers >= _STRANGERS:
            return
        self._strangers += 1
        try:
            async with asyncio.timeout(_GREETING_S):
                name, number = await lines.asked(reader)
                text = self._texts.get(name)
                if text is None:
                    return
                codes = await lines.admit(reader, writer, text.key, number)
        finally:
            self._strangers -= 1
        async for chunk in text.chunks():
            [payload] = await text.converter.encode([pack(chunk)])
            writer.write(lines.framed(payload.SerializeToString(), codes))
            async with asyncio.timeout(_SEND_S):
                await writer.drain()


def _socket(listening: Listening, target: str) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ConfigurationError: None can.
    """
    port, refused = listening.port, OSError("no port")
    try:
        host = listening.host or _own_address(target)
        for number in range(port, port + (_PORTS if port else 1)):
            try:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                made = socket.create_server((host, number), family=family)
            except OSError as error:
                refused = error
            else:
                # connections inherit it; asyncio sets it for sockets only that it has made itself
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return made
    except OSError as error:
        refused = error
    raise errors.ConfigurationError(
        f"cannot serve live text on {listening.host or target!r} port {port}:"
        f" {refused.strerror or refused}; set PERDURE_LIVE_TEXT to HOST:PORT, or to off"
    )


def _own_address(target: str) -> str:
    """Return the address with which this machine reaches a host. Nothing is sent."""
    [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
        target, 9, type=socket.SOCK_DGRAM
    )
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def _host_of(target: str) -> str:
    return urlsplit(f"//{target}").hostname or target


def _address(listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
