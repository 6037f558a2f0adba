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

    async def large(self, request: Request) -> Response:
        """Answer with the number of the request, and much more."""
        self.answered += 1
        return PlainTextResponse(f"{request.query_params.get('n')}:".ljust(LARGE, "x"))

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

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[httpx.AsyncClient]:
        """A server as `perdure serve` starts it, and an honest client of it."""
        application = Starlette(
            routes=[
                Route("/large", self.large, methods=["GET", "POST"]),
                Route("/stream", self.stream),
                Route("/small", lambda _: PlainTextResponse("ok")),
            ]
        )
        async with (
            served(application, [0]) as url,
            httpx.AsyncClient(base_url=url, trust_env=False) as http,
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


PIPELINED = [get(f"/large?n={number}") for number in range(REQUESTS)]


async def others(http: httpx.AsyncClient, count: int = 100) -> None:
    """Requests of an honest client, one after the other, each of which takes its turn."""
    for _ in range(count):
        answer = await http.get("/small")
        assert answer.text == "ok"


async def rest(connection: socket.socket, byte_s: float = 0) -> bytes:
    """Everything that comes until the connection is closed, read with a pause for each byte."""
    found = b""
    while got := await asyncio.get_running_loop().sock_recv(connection, 65536):
        found += got
        await asyncio.sleep(byte_s * len(got))
    return found


@pytest.mark.accepts("H116")
async def test_client_that_reads_nothing_is_answered_little(application: Counting) -> None:
    """The requests that it has sent wait, and are given up when it closes the connection."""
    async with application.served() as http:
        with contextlib.ExitStack() as stack:
            for _ in range(10):
                stack.enter_context(asking(http, *PIPELINED))
            await others(http)
            unread = application.answered
        await others(http)
        after = application.answered

    assert 10 <= unread <= 10 * 5
    assert after == unread


@pytest.mark.accepts("H116")
async def test_client_that_reads_late_gets_every_answer_in_order(application: Counting) -> None:
    """Also after one that came before the body of its request."""
    early = b"POST /small HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
    last = b"GET /large?n=last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with application.served() as http:
        with asking(http, *PIPELINED, early, last) as connection:
            await others(http)
            found = await rest(connection)

    numbers = [one.decode() for one in re.findall(rb"(\d+|last):x{99000}", found)]
    assert numbers == [*map(str, range(REQUESTS)), "last"]


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
    async with application.served() as http:
        with contextlib.ExitStack() as stack:
            began = time.monotonic()
            complete = stack.enter_context(asking(http, *PIPELINED))
            last = stack.enter_context(asking(http, *PIPELINED[:3], closing))
            stack.enter_context(asking(http, get("/stream")))
            slow = stack.enter_context(asking(http, *PIPELINED[:8], closing))
            slowly = asyncio.create_task(rest(slow, 45 / (9 * LARGE)))
            while not application.streams:
                await others(http, 1)
            while application.streams:
                await others(http, 1)
            took = time.monotonic() - began
            ends = [await rest(one) for one in (complete, last)]
            whole = await slowly

    assert took >= limits.HTTP_SEND.total_seconds()
    assert all(len(end) < 4 * LARGE for end in ends)
    assert len(re.findall(rb"x{99000}", whole)) == 9


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
        with caplog.at_level(logging.WARNING), asking(http, before, sent, *PIPELINED) as connection:
            found = await rest(connection)
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
