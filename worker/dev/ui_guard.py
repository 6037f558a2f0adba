"""A proxy that protects the embedded server's web UI against DNS rebinding.

Temporal's UI responds to any `Host`. A page on the internet whose name resolves to 127.0.0.1 after
it was loaded has the UI's origin then, and could approve calls. It cannot forge the host name: its
requests have `Host: evil.example`. The UI therefore listens on an address that no page knows, and
this proxy, which rejects host names of other machines, on the published port.

A connection carries one request: the UI is asked to close it after its response, so that nothing
that follows is read as another request.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
from collections.abc import Iterable
from http import HTTPStatus

import h11

from perdure import errors

_OF_THIS_MACHINE = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_HEAD_BYTES = 64 * 1024
_HEAD_S = 10.0
_CHUNK = 64 * 1024
_BETWEEN_TWO = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"upgrade"})
"""Headers about the connection rather than the request."""


class UIGuard:
    """Serves a web UI on loopback for requests with a host name of this machine.

    Args:
        ip: The address to listen on.
        upstream: The address and port of the UI itself.
    """

    def __init__(self, ip: str, upstream: tuple[str, int]) -> None:
        self._ip = ip
        self._upstream = upstream
        self._server: asyncio.Server | None = None

    async def start(self, ports: Iterable[int]) -> int:
        """Listen on the first free port of `ports` and return it.

        Raises:
            ConfigurationError: No port is free.
        """
        for port in ports:
            try:
                self._server = await asyncio.start_server(
                    self._serve, self._ip, port, limit=_HEAD_BYTES
                )
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
            else:
                bound: int = self._server.sockets[0].getsockname()[1]
                return bound
        raise errors.ConfigurationError(
            "No port is free for the web UI; choose another with --port, or disable it with"
            " --no-ui."
        )

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection. It never raises, whatever the peer does."""
        with contextlib.suppress(OSError, TimeoutError):
            head, body_begun = await _read(reader)
            if head is None:
                writer.write(_refusal(HTTPStatus.BAD_REQUEST, "not a request"))
            elif not is_of_this_machine(host := _host(head)):
                reason = (
                    "this is a web UI of this machine: it is asked for by localhost or 127.0.0.1,"
                    f" not by {host[:60]!r}"
                )
                writer.write(_refusal(HTTPStatus.MISDIRECTED_REQUEST, reason))
            else:
                await self._pass(head, body_begun, reader, writer)
            await writer.drain()
        writer.close()

    async def _pass(
        self,
        head: h11.Request,
        body_begun: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            answers, asks = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.write(_refusal(HTTPStatus.BAD_GATEWAY, "the web UI does not answer"))
            return
        try:
            asks.write(_closing(head) + body_begun)
            body = asyncio.create_task(_copy(reader, asks))
            answer = asyncio.create_task(_copy(answers, writer))
            await asyncio.wait([body, answer], return_when=asyncio.FIRST_COMPLETED)
            for task in (body, answer):
                task.cancel()
            await asyncio.gather(body, answer, return_exceptions=True)
        finally:
            asks.close()


def is_of_this_machine(host: str) -> bool:
    """Return whether a `Host` header names this machine, with any port or none.

    A tunnel may use a different port.
    """
    return _OF_THIS_MACHINE.fullmatch(host) is not None


async def _read(reader: asyncio.StreamReader) -> tuple[h11.Request | None, bytes]:
    """Return the head of a request, None if it is invalid, and the data after it."""
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
    async with asyncio.timeout(_HEAD_S):
        while True:
            try:
                event = parser.next_event()
            except h11.RemoteProtocolError:
                return None, b""
            if isinstance(event, h11.Request):
                return event, parser.trailing_data[0]
            if event is not h11.NEED_DATA:
                return None, b""
            parser.receive_data(await reader.read(_CHUNK))


def _host(head: h11.Request) -> str:
    """Return the host of a request; h11 rejects several hosts, or none in HTTP/1.1."""
    if not head.target.startswith(b"/"):
        return head.target.decode("latin-1")
    return next((value.decode("latin-1") for name, value in head.headers if name == b"host"), "")


def _closing(head: h11.Request) -> bytes:
    headers = [
        (name, value)
        for name, value in head.headers.raw_items()
        if name.lower() not in _BETWEEN_TWO
    ]
    lines = [
        b"%s %s HTTP/1.1" % (head.method, head.target),
        *(b"%s: %s" % item for item in headers),
        b"Connection: close",
        b"",
        b"",
    ]
    return b"\r\n".join(lines)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()


def _refusal(status: HTTPStatus, text: str) -> bytes:
    content = f"{text}\n".encode()
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(content)}",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + content
