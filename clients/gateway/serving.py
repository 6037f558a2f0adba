"""Runs the application of `perdure serve` until a signal comes, and that of `perdure dev`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

import uvicorn
from starlette.applications import Starlette

from perdure import errors, limits
from perdure.clients.gateway.connections import Connections

_GRACE_S = 1
"""The time to end streams and long polls at the end; their clients go on elsewhere."""
_BACKLOG = 2048
_LOOPBACK = "127.0.0.1"
_UNSENT_BYTES = 64 * 1024
"""What the kernel keeps of an answer that the client has no room for. Without a limit it would take
megabytes, and a connection would not notice that its client does not read."""


async def serve(
    application: Starlette,
    host: str,
    port: int,
    *,
    fragment: str,
    max_connections: int,
    say: Callable[[str], None],
) -> None:
    """Serve an application until SIGTERM or Ctrl-C, and say its address.

    Args:
        application: What `perdure.clients.gateway.app` returns.
        host: The address to listen on.
        port: The port.
        fragment: What the page's address ends with, to say it too; empty to leave it out.
        max_connections: The most connections of the process.
        say: Prints a line for people, such as the address.

    Raises:
        ConfigurationError: The address is taken.
    """
    listening = _listening(host, port)
    url = _url(host, listening)
    greeting = [
        f"serving on {url}; Ctrl-C stops it",
        *([f"page       {url}/ui/{fragment}"] if fragment else []),
    ]
    await _Server(_config(application, max_connections), greeting, say).serve([listening])


@contextlib.asynccontextmanager
async def served(application: Starlette, ports: Iterable[int]) -> AsyncIterator[str]:
    """Serve an application on loopback during the block, and yield the address.

    Signals are left to the caller.

    Args:
        application: What `perdure.clients.gateway.app` returns.
        ports: The ports to try, in order.

    Raises:
        ConfigurationError: No port is free.
    """
    listening = _first_free(ports)
    server = _Embedded(_config(application, limits.HTTP_CONNECTIONS))
    serving = asyncio.create_task(server.serve([listening]))
    try:
        yield _url(_LOOPBACK, listening)
    finally:
        server.should_exit = True
        await serving


def _config(application: Starlette, max_connections: int) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        log_config=None,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_S,
        http=Connections(max_connections).protocol,  # type: ignore[arg-type]  # it is called only
        ws="none",
        lifespan="off",
    )


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise errors.ConfigurationError(
            f"cannot listen on {host} port {port}: {error.strerror or error}"
        ) from None
    # connections inherit these; asyncio sets the first for sockets only that it has made itself
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # Linux and macOS
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
    return listening


def _first_free(ports: Iterable[int]) -> socket.socket:
    refused = None
    for port in ports:
        try:
            return _listening(_LOOPBACK, port)
        except errors.ConfigurationError as error:
            refused = error
    raise refused or errors.ConfigurationError("there is no port to listen on")


def _url(host: str, listening: socket.socket) -> str:
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """A server that returns after a signal; uvicorn's own sends itself the signal once more.

    It prints the greeting once it serves and handles signals.
    """

    def __init__(
        self, config: uvicorn.Config, greeting: Sequence[str], say: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self._greeting = greeting
        self._say = say

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for line in self._greeting:
            self._say(line)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


class _Embedded(uvicorn.Server):
    """A server in a process that handles signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signals."""
        yield
