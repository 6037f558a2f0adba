"""HTTP probes: `/healthz` reports that the process is alive, `/readyz` that it takes work.

The server supports just enough HTTP/1.1 for kubelet, Docker and curl: one request per connection,
no body, with limits on bytes, time and connections. It runs on the event loop that also polls
Temporal, so a response proves that the loop is running. Responses contain no secrets.

The port is open to anyone who can reach the machine. With too many connections, the connection that
has been silent for the longest time is closed, not the new one: a probe sends its request at once,
so silent connections never keep it from a response.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from http import HTTPStatus

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from perdure import errors

REQUEST_BYTES = 8192
HEAD_S = 1.0
"""The time limit for the head of a request."""
ANSWER_S = 5.0
CONNECTIONS = 256
PER_ADDRESS = 128
"""The number of silent connections of one address.

The loop accepts up to 100 connections at once before it reads any, and a probe may be the first.
"""

_TEMPORAL_S = 2.0
"""The time limit of a request to Temporal."""

_FRESH_S = 1.0
"""How long a response of Temporal is reused."""

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[^ ?#]*+)[^ ]*+ HTTP/1\.[01]\r?\n")
_READY, _STARTING, _DRAINING = "ready", "starting", "draining"


class Readiness:
    """Whether this worker takes work: it has started, is not stopping, and Temporal responds."""

    def __init__(self, client: Client, worker: Worker, stopped: asyncio.Event) -> None:
        self._client = client
        self._worker = worker
        self._stopped = stopped
        self._asking = asyncio.Lock()
        self._answered = False
        self._asked_at = -_FRESH_S

    async def state(self) -> str:
        """Return `ready`, or a few words about why not."""
        if self._stopped.is_set():
            return _DRAINING
        if not self._worker.is_running:
            return _STARTING
        return (
            _READY
            if await self._temporal_answers()
            else f"Temporal does not answer within {_TEMPORAL_S:g} s"
        )

    async def _temporal_answers(self) -> bool:
        async with self._asking:
            if time.monotonic() - self._asked_at >= _FRESH_S:
                self._answered = await self._ask()
                self._asked_at = time.monotonic()
            return self._answered

    async def _ask(self) -> bool:
        question = DescribeNamespaceRequest(namespace=self._client.namespace)
        try:
            async with asyncio.timeout(_TEMPORAL_S):
                await self._client.workflow_service.describe_namespace(
                    question, timeout=timedelta(seconds=_TEMPORAL_S)
                )
        except (RPCError, RuntimeError, TimeoutError):
            return False
        return True


@contextlib.asynccontextmanager
async def served(
    port: int | None, readiness: Readiness, *, is_shared: bool = False
) -> AsyncIterator[None]:
    """Serve probes on this port of all interfaces while the block runs; nothing if it is None.

    The processes of one supervisor share the port: one of them answers each probe.

    Raises:
        ConfigurationError: The port is not available.
    """
    if port is None:
        yield
        return
    try:
        server = await asyncio.start_server(
            _Responder(readiness).answer,
            port=port,
            limit=REQUEST_BYTES,
            reuse_port=is_shared or None,
        )
    except (OSError, OverflowError) as error:
        raise errors.ConfigurationError(
            f"the health port {port} is not available: {error}"
        ) from error
    try:
        yield
    finally:
        server.close()


class _Responder:
    """Reads one request of a connection, responds, and closes it."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._silent: dict[asyncio.StreamWriter, str] = {}
        self._answering = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection. It never raises, whatever the peer does."""
        try:
            self._make_room(writer)
            head = await self._head(reader, writer)
            if head is not None and self._answering < CONNECTIONS:
                await self._exchange(head, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the peer has gone, or is too slow
        finally:
            writer.close()

    def _make_room(self, writer: asyncio.StreamWriter) -> None:
        """Close the longest silent connection of this address, or of all, if a limit is reached."""
        address = str((writer.get_extra_info("peername") or ("",))[0])
        of_address = [other for other, of in self._silent.items() if of == address]
        oldest = (
            of_address[:1]
            if len(of_address) >= PER_ADDRESS
            else list(self._silent)[: len(self._silent) >= CONNECTIONS]
        )
        for other in oldest:
            del self._silent[other]
            other.transport.abort()
        self._silent[writer] = address

    async def _head(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes | None:
        """Return the head of the request; None if the connection was closed to make room."""
        try:
            async with asyncio.timeout(HEAD_S):
                head = await _head(reader)
            return head if writer in self._silent else None
        finally:
            self._silent.pop(writer, None)

    async def _exchange(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        self._answering += 1
        try:
            async with asyncio.timeout(ANSWER_S):
                writer.write(await self._response(head))
                await writer.drain()
        finally:
            self._answering -= 1

    async def _response(self, head: bytes) -> bytes:
        line = _REQUEST_LINE.match(head)
        if line is None:
            return _response(HTTPStatus.BAD_REQUEST, "not a request")
        method, path = line.groups()
        if method not in (b"GET", b"HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, "GET or HEAD", allow=True)
        status, text = await self._state(path)
        return _response(status, text, body=method == b"GET")

    async def _state(self, path: bytes) -> tuple[HTTPStatus, str]:
        if path == b"/healthz":
            return HTTPStatus.OK, "alive"
        if path != b"/readyz":
            return HTTPStatus.NOT_FOUND, "there are /healthz and /readyz"
        state = await self._readiness.state()
        return HTTPStatus.OK if state == _READY else HTTPStatus.SERVICE_UNAVAILABLE, state


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Return everything before the empty line; empty if that is too long."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return b""


def _response(status: HTTPStatus, text: str, *, body: bool = True, allow: bool = False) -> bytes:
    content = f"{text}\n".encode()
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(content)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET, HEAD"] if allow else []),
    ]
    return "\r\n".join([*head, "", ""]).encode() + (content if body else b"")
