"""The proxy in front of the web UI, with a server that answers every request with its head."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from perdure.worker.dev.ui_guard import UIGuard, is_of_this_machine

from ..support.ports import free_port


@dataclass
class Upstream:
    """Keeps its requests and answers them; it closes the connection if the request says so."""

    heads: list[bytes] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                length = next(
                    (
                        int(line[15:])
                        for line in head.split(b"\r\n")
                        if line.lower().startswith(b"content-length:")
                    ),
                    0,
                )
                body = await reader.readexactly(length)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
                if b"connection: close" in head.lower():
                    break
        writer.close()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    kept = Upstream()
    server = await asyncio.start_server(kept.serve, "127.0.0.1", 0)
    kept.port = server.sockets[0].getsockname()[1]
    yield kept
    server.close()


@pytest.fixture
async def door(upstream: Upstream) -> AsyncIterator[int]:
    guard = UIGuard("127.0.0.1", ("127.0.0.1", upstream.port))
    yield await guard.start([0])
    guard.stop()


async def send(port: int, raw: bytes) -> bytes:
    """The whole response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        *(
            (host, True)
            for host in (
                "localhost",
                "localhost:8233",
                "LOCALHOST:1",
                "127.0.0.1:8233",
                "127.0.0.1",
                "[::1]:8233",
                "[::1]",
            )
        ),
        *(
            (host, False)
            for host in (
                "evil.example",
                "evil.example:8233",
                "localhost.evil.example",
                "127.0.0.1.evil.example:8233",
                "",
            )
        ),
        *(
            (host, False)
            for host in (
                "localhost:",
                "localhost:x",
                "localhost:8233@evil",
                "a@localhost",
                "localhost.",
                "0.0.0.0:8233",
                "127.0.0.1\n",
            )
        ),
    ],
)
def test_names_of_this_machine_and_no_others(host: str, is_ours: bool) -> None:
    """The whole name has to match, with any port, because a tunnel has another one."""
    assert is_of_this_machine(host) is is_ours


@pytest.mark.accepts("P12")
@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: evil.example:8233\r\n\r\n", b"421"),
        (
            (
                b"POST /x HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host:"
                b" localhost\r\nContent-Length: 2\r\n\r\n{}"
            ),
            b"421",
        ),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"421"),
        (b"GET / HTTP/1.0\r\n\r\n", b"421"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", b"400"),
    ],
)
async def test_request_for_another_host_never_reaches_the_ui(
    upstream: Upstream, door: int, raw: bytes, status: bytes
) -> None:
    """The proxy answers it, and also an invalid request."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        answer = await send(door, raw)

    assert upstream.heads == []
    assert answer[9:12] in (status, b"")


@pytest.mark.accepts("P12")
async def test_second_request_on_a_connection_does_not_pass(upstream: Upstream, door: int) -> None:
    """The first one has this machine's name, the second one does not: a connection has only one
    request.
    """
    body = b"GET /two HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    ours = (
        b"POST /one HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\nContent-Length:"
        b" 3\r\n\r\nabc"
    )
    answer = await send(door, ours + body + body)

    assert [head.split(b" ")[1] for head in upstream.heads] == [b"/one"]
    assert answer.endswith(b"\r\n\r\nabc")


async def test_request_passes_with_its_body_and_its_headers(upstream: Upstream, door: int) -> None:
    """A body that arrives later and exceeds the buffer is passed on completely."""
    body = b"x" * 300_000
    answer = await send(
        door,
        b"PUT /a?b=c HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nX-Token: t\r\nContent-Length: %d\r\n\r\n"
        % (door, len(body))
        + body,
    )

    assert answer.endswith(b"\r\n\r\n" + body)
    assert upstream.heads == [
        b"PUT /a?b=c HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nX-Token: t\r\nContent-Length:"
        b" 300000\r\nConnection: close\r\n\r\n" % door
    ]


async def test_ui_that_is_gone_is_said() -> None:
    """502, instead of a connection that is closed."""
    guard = UIGuard("127.0.0.1", ("127.0.0.1", free_port()))
    answer = await send(await guard.start([0]), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    guard.stop()

    assert answer.startswith(b"HTTP/1.1 502 ")
