"""What the servers on loopback of this package have in common: their start, and their end."""

from __future__ import annotations

import contextlib
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

_POLL_S = 0.02


class LoopbackServer:
    """An HTTP server in threads of this process, during its `with` block.

    Args:
        handler: The class that answers requests; its attribute `service` is this object.
        port: The port; 0 for any free one.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int) -> None:
        self._handler, self._port = handler, port
        self._closing = threading.Event()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        handler = type(self._handler.__name__, (self._handler,), {"service": self})
        server = self._stack.enter_context(_Server(("127.0.0.1", self._port), handler))
        name = f"perdure-{type(self).__name__}"
        thread = threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), name=name, daemon=True
        )
        thread.start()
        self._stack.callback(self._stopped)
        self._stack.callback(thread.join)
        self._stack.callback(server.shutdown)
        self._stack.callback(self._closing.set)
        self._started(f"http://127.0.0.1:{server.server_port}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _started(self, address: str) -> None:
        """Note where the server listens."""
        raise NotImplementedError

    def _stopped(self) -> None:
        """Finish, when no more requests come."""


class Quiet:
    """A handler that logs nothing on stderr."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it so
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024  # hundreds of turns connect at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore callers that have gone: their ends and timeouts are what the servers are for."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
