"""The connections of `perdure serve`: how many there are, and how long they may be idle.

A connection may neither send nothing for long, nor ask for more than it reads.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure import limits

_OTHER_FILES = 64
"""File descriptors that are no connections of callers."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_LENGTHS = {b"content-length", b"transfer-encoding"}


class Connections:
    """The connections of a process.

    Attributes:
        limit: The largest number of them.
        waiting: Those without a request, the one that has waited longest first.
    """

    def __init__(self, limit: int) -> None:
        self.limit = min(limit, _files(limit + _OTHER_FILES) - _OTHER_FILES)
        self.waiting: dict[TimedConnection, None] = {}

    def protocol(self, **options: Any) -> TimedConnection:
        """Return the protocol of a new connection, for uvicorn."""
        return TimedConnection(self, **options)


class TimedConnection(H11Protocol):
    """A connection that has to send a request in time, and to read the answer to it.

    A request that comes before the answer to the last one is not answered, and the connection is
    closed: thousands of such requests fit into one packet, and no client in use sends them. A
    request that comes before the last answer is read waits for that. Beyond the largest number, the
    connection that has waited longest without a request is closed. If all have a request, the new
    connection is refused.
    """

    def __init__(self, of: Connections, **options: Any) -> None:
        super().__init__(**options)
        self.conn = _Requests(h11.SERVER)
        self._of = of
        self._timer: asyncio.TimerHandle | None = None
        self._is_unread = False
        """Whether the client has yet to read an answer that is complete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, or refuse it."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # writing is paused while anything is unread
        if len(self.connections) > self._of.limit:
            oldest = next(iter(self._of.waiting), None)
            if oldest is None:
                transport.write(_FULL)
                transport.close()
                return
            oldest.end()
        self._wait_for_request()

    def handle_events(self) -> None:
        """Take what the client has sent, unless it has to read an answer first."""
        if self._is_unread:
            self.flow.pause_reading()
            return
        super().handle_events()
        if self._is_idle:
            return
        self._of.waiting.pop(self, None)
        if self.conn.their_state is h11.DONE and self.conn.trailing_data[0]:
            self._close_after_answer()

    def _close_after_answer(self) -> None:
        """Drop what the client has sent before the answer to its last request."""
        self.cycle.keep_alive = False
        if not self.cycle.response_started:
            self.cycle.default_headers = [*self.cycle.default_headers, (b"connection", b"close")]

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP and close the connection; an answer that has begun is cut off."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()
        if not self._is_idle:
            self.cycle.disconnected = True  # the application cannot answer any more
            self.cycle.message_event.set()

    def on_response_complete(self) -> None:
        """Wait until the client has read the answer, then for the next request."""
        self._is_unread = self.flow.write_paused and not self.transport.is_closing()
        if self._is_unread:
            self._of.waiting[self] = None
            return
        super().on_response_complete()
        if self._is_idle and not self.transport.is_closing():
            self._wait_for_request()

    def pause_writing(self) -> None:
        """Give the client time to read."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """Go on, as the client has read everything."""
        super().resume_writing()
        self._stop_timer()
        if self._is_unread:
            self.loop.call_soon(self._go_on)  # a transport may not be closed from here

    def _go_on(self) -> None:
        self.on_response_complete()
        if self.conn.our_state is h11.DONE and not self.transport.is_closing():
            self.handle_events()  # drop the rest of the body of the answered request

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection after a response."""
        self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._of.waiting.pop(self, None)
        self._stop_timer()

    def end(self) -> None:
        """Close the connection at once."""
        self._of.waiting.pop(self, None)
        self._stop_timer()
        self.transport.abort()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_request(self) -> None:
        self._of.waiting.pop(self, None)
        self._of.waiting[self] = None
        self._call_later(limits.HTTP_HEAD, self._has_waited)

    def _has_waited(self) -> None:
        if self._is_idle:
            self.end()

    def _wait_for_reader(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._call_later(limits.HTTP_SEND, self._check_reader, unread)

    def _check_reader(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._wait_for_reader()
        else:
            self.end()

    def _call_later(self, pause: timedelta, callback: Callable[..., None], *arguments: Any) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(pause.total_seconds(), callback, *arguments)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Requests(h11.Connection):
    """Reads requests, and refuses one with two lengths: a proxy may have read the other one."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request) and {name for name, _ in event.headers} >= _LENGTHS:
            raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        return event


def _files(count: int) -> int:
    """Return the number of files that the process may open, raised to this if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return count
    allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed
