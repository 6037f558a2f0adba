"""Runs the application of `perdure serve` until a signal comes."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from perdure import errors
from perdure.clients.agent_client import AgentClient
from perdure.clients.cli.screen import note
from perdure.clients.http import a2a_agents_from, app, tokens_from

_GRACE_S = 1
"""The time to end streams and long polls at the end; their clients go on elsewhere."""
_BACKLOG = 2048


async def serve(
    client: AgentClient,
    host: str,
    port: int,
    tokens: Path | None,
    a2a: Path | None,
    *,
    max_streams: int,
    max_streams_of_caller: int,
) -> None:
    """Serve turns until SIGTERM or Ctrl-C.

    Raises:
        ConfigurationError: The address is taken, a file of tokens or agents is not valid, or the
            packages for A2A are missing.
    """
    auth = None if tokens is None else tokens_from(tokens)
    served = app(
        client,
        auth,
        a2a_agents=() if a2a is None else a2a_agents_from(a2a),
        max_streams=max_streams,
        max_streams_of_caller=max_streams_of_caller,
    )
    listening = _listening(host, port)
    config = uvicorn.Config(
        served,
        log_config=None,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_S,
        http="h11",
        ws="none",
        lifespan="off",
    )
    note(f"serving on {_url(host, listening)}; Ctrl-C stops it")
    await _Server(config).serve([listening])


def check_reach(host: str, tokens: Path | None) -> None:
    """Refuse to serve more than this machine without tokens.

    Raises:
        ConfigurationError: Everybody who reaches the address could start turns.
    """
    if tokens is None and host != "localhost" and not _is_loopback(host):
        raise errors.ConfigurationError(
            f"without --tokens, anybody who reaches {host} could start turns; name a file of"
            " tokens, or listen on 127.0.0.1"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise errors.ConfigurationError(
            f"cannot listen on {host} port {port}: {error.strerror or error}"
        ) from None


def _url(host: str, listening: socket.socket) -> str:
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """A server that returns after a signal; uvicorn's own sends itself the signal once more."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals during the block."""
        loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
