"""The connections of `perdure serve`: how many there are, and how long one may send nothing."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure import limits

_OTHER_FILES = 64
"""File descriptors that are no connections of callers."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


class Connections:
    """The connections of a process.

    Attributes:
        most: The largest number of them.
        waiting: Those without a request, the one that has waited longest first.
    """

    def __init__(self, most: int) -> None:
        self.most = min(most, _files(most + _OTHER_FILES) - _OTHER_FILES)
        self.waiting: dict[Connection, None] = {}

    def protocol(self, **given: Any) -> Connection:
        """Return the protocol of a new connection, for uvicorn."""
        return Connection(self, **given)


class Connection(H11Protocol):
    """A connection that has to send a request in time.

    Beyond the largest number, the connection that has waited longest without a request is closed.
    If all have one, the new one is refused.
    """

    def __init__(self, of: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._of = of
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, or refuse it."""
        super().connection_made(transport)
        if len(self.connections) > self._of.most:
            oldest = next(iter(self._of.waiting), None)
            if oldest is None:
                transport.write(_FULL)
                transport.close()
                return
            oldest.end()
        self._wait_for_request()

    def handle_events(self) -> None:
        """Take what the client has sent."""
        super().handle_events()
        if not self._is_idle:
            self._of.waiting.pop(self, None)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self._is_idle and not self.transport.is_closing():
            self._wait_for_request()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection after a response."""
        self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._of.waiting.pop(self, None)
        self._stop_timer()

    def end(self) -> None:
        """Close the connection, even if the client does not read the rest of its answer."""
        self._of.waiting.pop(self, None)
        self._stop_timer()
        self.transport.close()
        self._timer = self.loop.call_later(limits.HTTP_SEND.total_seconds(), self.transport.abort)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_request(self) -> None:
        self._of.waiting.pop(self, None)
        self._of.waiting[self] = None
        self._stop_timer()
        self._timer = self.loop.call_later(limits.HTTP_HEAD.total_seconds(), self._has_waited)

    def _has_waited(self) -> None:
        if self._is_idle:
            self.end()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _files(wanted: int) -> int:
    """Return the number of files that the process may open, raised to this if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
