"""Streams of server-sent events, and how many requests may stay open."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from datetime import timedelta
from typing import TypeVar

from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.types import Message, Receive, Scope, Send

from perdure import limits
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.problems import RefusedError

V = TypeVar("V")

_BEGINS_S = 0.5
"""An iterator that has not failed by then waits for its first item."""


class OpenRequests:
    """Counts the streams and long polls that are open in this process.

    The callers of a tenant together have at most half of them, or as many as one caller may have.

    Attributes:
        limit: The largest number of them.
        limit_of_caller: The largest number of one caller.
    """

    def __init__(self, limit: int, limit_of_caller: int) -> None:
        self.limit = limit
        self.limit_of_caller = limit_of_caller
        self._open: Counter[tuple[str | None, str]] = Counter()

    @property
    def _limit_of_tenant(self) -> int:
        """Half of all, so that the callers of one tenant leave some to the others."""
        return max(self.limit // 2, self.limit_of_caller)

    def _of_tenant(self, tenant: str) -> int:
        return sum(count for (name, _), count in self._open.items() if name == tenant)

    @contextlib.contextmanager
    def one_of(self, caller: Caller) -> Iterator[None]:
        """Count one more request of a caller during the block.

        Raises:
            RefusedError: Too many are open.
        """
        who = caller.counted_as
        if self._open[who] >= self.limit_of_caller:
            raise _busy(429, f"{self.limit_of_caller} streams and long polls of this caller")
        if who[0] is not None and self._of_tenant(who[0]) >= self._limit_of_tenant:
            raise _busy(429, f"{self._limit_of_tenant} streams and long polls of this tenant")
        if self._open.total() >= self.limit:
            raise _busy(503, f"{self.limit} streams and long polls")
        self._open[who] += 1
        try:
            yield
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]


def _busy(status: int, open_requests: str) -> RefusedError:
    headers = {"Retry-After": str(limits.HTTP_RETRY.seconds)}
    return RefusedError(
        status, "TOO_MANY_REQUESTS", f"{open_requests} are open; try again later", headers=headers
    )


Frame = ServerSentEvent | bytes
"""A message of a stream; bytes are sent as they are."""


class EventStream(EventSourceResponse):
    """A stream of server-sent events, with a comment every 15 seconds.

    It ends with its messages, when the client disconnects or does not read, or after an hour, or
    when the token or the session of its caller expires; a client resumes it after the last id.
    `held` is released at its end. Without `retry`, it does not begin with the pause after which a
    client resumes it.
    """

    def __init__(
        self,
        messages: AsyncGenerator[Frame, None],
        held: contextlib.ExitStack,
        *,
        longest: timedelta = limits.HTTP_STREAM,
        retry: bool = True,
    ) -> None:
        super().__init__(
            _beginning_with_retry(messages) if retry else messages,
            ping=limits.HTTP_PING.seconds,
            sep="\n",
            send_timeout=limits.HTTP_SEND.total_seconds(),
        )
        self._held = held
        self._longest = longest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, and end it where the server stops before its last message."""
        is_open = False

        async def noting(message: Message) -> None:
            nonlocal is_open
            await send(message)
            is_open = message.get("more_body", True)

        with self._held:
            with contextlib.suppress(SendTimeoutError, TimeoutError):
                async with asyncio.timeout(_longest_s(scope, self._longest)):
                    await super().__call__(scope, receive, noting)
            if is_open:
                await send({"type": "http.response.body"})


def _longest_s(scope: Scope, longest: timedelta) -> float:
    """Return how long a stream may last, at most until its caller is no longer known."""
    valid_until: float | None = scope.get("state", {}).get("valid_until")
    left_s = math.inf if valid_until is None else max(0.0, valid_until - time.time())
    return min(longest.total_seconds(), left_s)


async def _beginning_with_retry(
    messages: AsyncGenerator[Frame, None],
) -> AsyncGenerator[Frame, None]:
    async with contextlib.aclosing(messages):
        yield ServerSentEvent(retry=limits.HTTP_RETRY.seconds * 1000, sep="\n")
        async for message in messages:
            yield message


async def begun(
    items: AsyncIterator[V], held: contextlib.ExitStack, *, is_over: bool = False
) -> AsyncGenerator[V, None] | None:
    """Return the items of an iterator that has begun; None if it has none.

    An error with which it begins is raised here, before a response begins. One that waits for its
    first item has begun, unless it is about something that `is_over`: it then waits for Temporal
    alone. It does not wait any longer when `held` is released, also if the response never asks for
    an item.
    """
    coming = asyncio.ensure_future(_next(items))
    held.callback(coming.cancel)
    await asyncio.wait({coming}, timeout=None if is_over else _BEGINS_S)
    if coming.done() and coming.result() is None:
        return None
    return _from(coming, items)


async def _from(coming: asyncio.Task[V | None], items: AsyncIterator[V]) -> AsyncGenerator[V, None]:
    try:
        while (item := await coming) is not None:
            yield item
            coming = asyncio.ensure_future(_next(items))
    finally:
        coming.cancel()
        await asyncio.wait({coming})


async def _next(items: AsyncIterator[V]) -> V | None:
    return await anext(items, None)


async def with_first(first: V, following: AsyncGenerator[V, None]) -> AsyncGenerator[V, None]:
    """Yield an item that was taken from a generator, then the others."""
    async with contextlib.aclosing(following):
        yield first
        async for item in following:
            yield item
