"""The door of the embedded server's web UI.

Requests for another host name than this machine's are refused.

Temporal's UI answers whatever `Host` says. A page on the internet whose name is resolved to
127.0.0.1 a moment after it was loaded (DNS rebinding) has the UI's origin then, and could approve
calls. It cannot forge the name itself: its requests say `Host: evil.example`. So the UI listens on
an address that no page knows, and this proxy, which checks the name, on the one that is told to
people.

A connection carries one request: the UI is told to close it after its answer, so what follows on it
is never read as another request.
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
"""Headers that are about a connection, not about the request."""


class UIGuard:
    """Serves a web UI on loopback, for those who ask for it by a name of this machine.

    Args:
        ip: The address to listen on.
        upstream: Address and port of the UI itself.
    """

    def __init__(self, ip: str, upstream: tuple[str, int]) -> None:
        self._ip = ip
        self._upstream = upstream
        self._server: asyncio.Server | None = None

    async def start(self, ports: Iterable[int]) -> int:
        """Listen on the first of these ports that is free. Returns the port.

        Raises:
            ConfigurationError: None of them is.
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
            "No port is free for the web UI; give another with --port, or leave it out with"
            " --no-ui."
        )

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection. Whatever the other side does, nothing is raised."""
        with contextlib.suppress(OSError, TimeoutError):
            head, rest = await _read(reader)
            if head is None:
                writer.write(_refusal(HTTPStatus.BAD_REQUEST, "not a request"))
            elif not is_of_this_machine(host := _host(head)):
                said = (
                    "this is a web UI of this machine: it is asked for by localhost or 127.0.0.1,"
                    f" not by {host[:60]!r}"
                )
                writer.write(_refusal(HTTPStatus.MISDIRECTED_REQUEST, said))
            else:
                await self._pass(head, rest, reader, writer)
            await writer.drain()
        writer.close()

    async def _pass(
        self,
        head: h11.Request,
        rest: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            answers, asks = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.write(_refusal(HTTPStatus.BAD_GATEWAY, "the web UI does not answer"))
            return
        try:
            asks.write(_closing(head) + rest)
            body = asyncio.create_task(_copy(reader, asks))
            answer = asyncio.create_task(_copy(answers, writer))
            await asyncio.wait([body, answer], return_when=asyncio.FIRST_COMPLETED)
            for task in (body, answer):
                task.cancel()
            await asyncio.gather(body, answer, return_exceptions=True)
        finally:
            asks.close()


def is_of_this_machine(host: str) -> bool:
    """Whether the value of a `Host` header names this machine, with any port or none.

    A tunnel may have another one.
    """
    return _OF_THIS_MACHINE.fullmatch(host) is not None


async def _read(reader: asyncio.StreamReader) -> tuple[h11.Request | None, bytes]:
    """The head of a request, None for none that is valid, and what was read behind it."""
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
    """The host of a request; h11 lets none pass that has several, or none in HTTP/1.1."""
    if not head.target.startswith(b"/"):
        return head.target.decode("latin-1")
    return next((value.decode("latin-1") for name, value in head.headers if name == b"host"), "")


def _closing(head: h11.Request) -> bytes:
    kept = [
        (name, value)
        for name, value in head.headers.raw_items()
        if name.lower() not in _BETWEEN_TWO
    ]
    lines = [
        b"%s %s HTTP/1.1" % (head.method, head.target),
        *(b"%s: %s" % item for item in kept),
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
