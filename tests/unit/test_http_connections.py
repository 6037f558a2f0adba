"""Connections of `perdure serve`, over raw sockets: clients that do not read, or send no HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from perdure import limits
from perdure.clients.gateway.serving import served

REQUESTS = 60
LARGE = 100_000
"""More than the small buffers of a client that does not read; the document is as large."""


class Counting:
    """An application that counts the requests that it answers."""

    def __init__(self) -> None:
        self.answered = 0
        self.streams = 0
        self.let_go = asyncio.Event()

    async def small(self, _: Request) -> Response:
        """Answer with two characters."""
        self.answered += 1
        return PlainTextResponse("ok")

    async def large(self, request: Request) -> Response:
        """Answer with the number of the request, and much more."""
        self.answered += 1
        size = int(request.query_params.get("size", LARGE))
        return PlainTextResponse(f"{request.query_params.get('n')}:".ljust(size, "x"))

    async def stream(self, _: Request) -> Response:
        """Answer with parts without an end."""
        return StreamingResponse(self._parts())

    async def _parts(self) -> AsyncIterator[bytes]:
        self.streams += 1
        try:
            while True:
                yield b"x" * LARGE
                await asyncio.sleep(0)  # sending to a closed connection does not wait
        finally:
            self.streams -= 1

    async def paused(self, _: Request) -> Response:
        """Answer with a part, and with the rest when the test lets it go on."""
        return StreamingResponse(self._halves())

    async def _halves(self) -> AsyncIterator[bytes]:
        yield b"one half, "
        self.streams += 1
        await self.let_go.wait()
        yield b"and the other"

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[httpx.AsyncClient]:
        """A server as `perdure serve` starts it, and an honest client of it."""
        application = Starlette(
            routes=[
                Route("/large", self.large, methods=["GET", "POST"]),
                Route("/stream", self.stream),
                Route("/paused", self.paused),
                Route("/small", self.small, methods=["GET", "POST"]),
                Route("/other", lambda _: PlainTextResponse("ok")),
            ]
        )
        async with (
            served(application, [0]) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http,
        ):
            yield http


@pytest.fixture
def application() -> Counting:
    return Counting()


def connected(http: httpx.AsyncClient) -> socket.socket:
    """A connection with a small buffer for answers."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.connect((http.base_url.host, http.base_url.port))
    found.setblocking(False)
    return found


@contextlib.contextmanager
def asking(http: httpx.AsyncClient, *requests: bytes) -> Iterator[socket.socket]:
    """A connection on which these requests were sent in one packet."""
    with connected(http) as connection:
        connection.sendall(b"".join(requests))
        yield connection


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def others(http: httpx.AsyncClient, count: int = 100) -> None:
    """Requests of an honest client, one after the other, each of which takes its turn."""
    for _ in range(count):
        answer = await http.get("/other")
        assert answer.text == "ok"


async def rest(connection: socket.socket, byte_s: float = 0) -> bytes:
    """Everything that comes until the connection is closed, read with a pause for each byte."""
    found = b""
    while got := await asyncio.get_running_loop().sock_recv(connection, 65536):
        found += got
        await asyncio.sleep(byte_s * len(got))
    return found


@pytest.mark.slow
@pytest.mark.accepts("H116")
@pytest.mark.parametrize("path", ["/large", "/small"])
async def test_client_that_asks_ahead_gets_one_answer(application: Counting, path: str) -> None:
    """It is told that the connection closes, and its other requests have no effect."""
    async with application.served() as http:
        with asking(http, *[get(path)] * REQUESTS) as connection:
            await others(http)
            found = await rest(connection)

    assert application.answered == found.count(b"HTTP/1.1 200 OK") == 1
    assert b"connection: close" in found


@pytest.mark.accepts("H116")
async def test_request_that_comes_while_the_last_is_answered_is_dropped(
    application: Counting,
) -> None:
    """The answer has begun, so it cannot say that the connection closes afterwards."""
    async with application.served() as http:
        with asking(http, get("/paused")) as connection:
            while not application.streams:
                await others(http, 1)
            connection.sendall(get("/small"))
            await others(http)
            application.let_go.set()
            found = await rest(connection)

    assert (found.count(b"HTTP/1.1 200 OK"), application.answered) == (1, 0)
    assert b"and the other" in found


@pytest.mark.accepts("H116")
async def test_client_that_reads_late_gets_each_answer(application: Counting) -> None:
    """Also of a request with a body, and after the client has sent it before reading."""
    post = b"POST /large?n=2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
    last = b"GET /large?n=3 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    loop = asyncio.get_running_loop()
    async with application.served() as http:
        with asking(http, get("/large?n=1")) as connection:
            while not application.answered:
                await others(http, 1)
            connection.sendall(post)
            await others(http)
            before = application.answered
            found = b""
            while b"2:" not in found or len(found) < 2 * LARGE:
                found += await loop.sock_recv(connection, 65536)
            connection.sendall(last)
            found += await rest(connection)

    assert before == 1
    assert re.findall(rb"(\d):x{99000}", found) == [b"1", b"2", b"3"]


@pytest.mark.accepts("H116")
async def test_body_that_comes_after_its_answer_is_dropped(application: Counting) -> None:
    """The answer is not read before all of the body is sent; the next request is answered then."""
    head = b"POST /large?n=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n"
    last = b"GET /large?n=2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    loop = asyncio.get_running_loop()
    async with application.served() as http:
        with asking(http, head) as connection:
            await others(http, 5)
            sending = asyncio.create_task(loop.sock_sendall(connection, b"y" * 200_000 + last))
            await others(http, 5)
            found = await rest(connection)
            await sending

    assert re.findall(rb"(\d):x{99000}", found) == [b"1", b"2"]


@pytest.mark.accepts("H116")
async def test_small_answers_are_sent_at_once(application: Counting) -> None:
    """The kernel waits neither for more to send nor for a receipt, which comes 40 ms later."""
    took = []
    async with application.served() as http:
        for _ in range(60):
            began = time.perf_counter()
            await others(http, 1)
            took.append(time.perf_counter() - began)

    assert min(took[30:]) < 0.03  # the first receipts come at once


@pytest.mark.slow  # it waits for the time limit of a client that does not read
@pytest.mark.accepts("H117")
async def test_connection_whose_client_reads_nothing_is_closed(application: Counting) -> None:
    """Whether its answer is complete, is being made, or is the last one; a slow one is served."""
    closing = b"GET /large?n=last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    size = 9 * LARGE
    async with application.served() as http:
        with contextlib.ExitStack() as stack:
            began = time.monotonic()
            complete = stack.enter_context(asking(http, get("/large?n=1")))
            last = stack.enter_context(asking(http, closing))
            stack.enter_context(asking(http, get("/stream")))
            slow = stack.enter_context(
                asking(http, closing.replace(b"n=last", b"n=last&size=%d" % size))
            )
            slowly = asyncio.create_task(rest(slow, 45 / size))
            while not application.streams:
                await others(http, 1)
            while application.streams:
                await others(http, 1)
            took = time.monotonic() - began
            ends = [await rest(one) for one in (complete, last)]
            whole = await slowly

    assert took >= limits.HTTP_SEND.total_seconds()
    assert all(len(end) < LARGE for end in ends)
    assert len(whole) > size


BAD = {
    "no http": b"\x00\x01\x02\r\n\r\n",
    "no host": b"GET /small HTTP/1.1\r\n\r\n",
    "two lengths": (
        b"POST /large HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "two lengths of one kind": (
        b"POST /large HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"
    ),
    "a body without a length": (
        b"POST /large HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    ),
    "such a body of the last request": (
        b"POST /large HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: close\r\n\r\nzz\r\n"
    ),
}


@pytest.mark.accepts("H118")
@pytest.mark.parametrize("sent", BAD.values(), ids=BAD)
@pytest.mark.parametrize("before", [b"", get("/small")], ids=["first", "second"])
async def test_request_that_is_not_valid_is_refused_in_one_line(
    application: Counting, caplog: pytest.LogCaptureFixture, sent: bytes, before: bytes
) -> None:
    """It is answered 400, its connection is closed, and the log has no traceback."""
    async with application.served() as http:
        with caplog.at_level(logging.WARNING), connected(http) as connection:
            found = b""
            if before:
                connection.sendall(before)
                while not found.endswith(b"ok"):
                    found += await asyncio.get_running_loop().sock_recv(connection, 65536)
            connection.sendall(sent + get("/small"))
            found += await rest(connection)
        await others(http, 1)

    statuses = re.findall(rb"HTTP/1.1 (\d+)", found)
    assert statuses == [*([b"200"] if before else []), b"400"]
    assert [(record.message, record.exc_info) for record in caplog.records] == [
        ("Invalid HTTP request received.", None)
    ]


@pytest.mark.accepts("H118")
@pytest.mark.parametrize("path", ["/large", "/stream"])
async def test_body_that_is_not_valid_after_the_answer_began_ends_it(
    application: Counting, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """The connection is closed, and the application is told."""
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    async with application.served() as http:
        with caplog.at_level(logging.WARNING), asking(http, head) as connection:
            while not (application.answered or application.streams):
                await others(http, 1)
            connection.sendall(b"zz\r\n")
            reading = asyncio.create_task(rest(connection))
            while application.streams:
                await others(http, 1)
            found = await reading

    assert found.startswith(b"HTTP/1.1 200 OK")
    assert b"HTTP/1.1 400" not in found
    assert [(record.message, record.exc_info) for record in caplog.records] == [
        ("Invalid HTTP request received.", None)
    ]
