"""Lists of Temporal's server, page by page or entry by entry."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Protocol, TypeVar

from annotated_types import Interval
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors, validation
from perdure.clients.reading import cursors
from perdure.temporal.access import Resource
from perdure.validation import Must

_PAGE = 200
_Size = Annotated[int, Interval(ge=1, le=1_000), Must("a whole number from 1 to 1000")]
_UNREAD = (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.UNKNOWN, RPCStatusCode.INTERNAL)
"""The answers of servers to a page token that they cannot read."""


E = TypeVar("E")
F = TypeVar("F")
F_co = TypeVar("F_co", covariant=True)

Found = tuple[Sequence[F], bytes]
"""A page of what the server has found, and its token of the next page; empty at the end."""


class Source(Protocol[F_co]):
    """A list of the server."""

    @property
    def resource(self) -> Resource:
        """What is listed."""

    async def query(self) -> str:
        """Return the server's filter of the list, by which its cursors are told apart."""

    async def page(self, query: str, size: int, token: bytes, *, retry: bool) -> Found[F_co]:
        """Return a page of at most this size, after a token."""


@dataclass(frozen=True, slots=True)
class Page(Generic[E]):
    """A part of a list.

    Attributes:
        entries: The entries. It may be fewer than were asked for, also before the end.
        next: The cursor of the next page; None if there is none.
    """

    entries: tuple[E, ...]
    next: str | None


class Listing(AsyncIterator[E], Generic[E]):
    """The entries of a list, which is read while they are iterated, or page by page."""

    def __init__(
        self,
        source: Source[Any],
        limit: int | None,
        read: Callable[[Any], Awaitable[E | None]],
        *,
        also: str = "",
    ) -> None:
        """Read a list.

        Args:
            source: The list of the server.
            limit: The largest number of entries; None for all of them.
            read: Returns the entry of what the server has found; None if it does not match.
            also: A filter of `read` that the server does not have. Cursors belong to it, and pages
                are not as small as the limit, because most of what is found may not match.
        """
        self._source = source
        self._limit = limit
        self._read = read
        self._also = also
        self._size = _PAGE if limit is None or also else min(limit, _PAGE)
        self._entries = self._all()

    async def __anext__(self) -> E:
        return await anext(self._entries)

    async def aclose(self) -> None:
        """End the iteration before its end."""
        await self._entries.aclose()

    @validation.arguments("the page")
    async def page(self, after: validation.Unicode | None = None, *, size: _Size = 50) -> Page[E]:
        """Return a part of the list, of any process that has the same filters.

        Entries that come meanwhile do not move the others from one page to the next. A turn, a
        session or a batch that ends meanwhile may be on two pages, and on one at least.

        Args:
            after: The cursor `next` of the page before; None for the first page.
            size: The largest number of entries, at most 1,000.

        Raises:
            InvalidRequestError: The cursor is not valid, or the size.
            PerdureError: As iterating the list does.
        """
        query = await self._source.query()
        filters = query + self._also
        token, is_trusted = cursors.token_in(after, filters), after is None
        while True:
            items, token = await self._page(query, size, token, is_trusted=is_trusted)
            read = [await self._read(item) for item in items]
            entries = tuple(entry for entry in read if entry is not None)
            if entries or not token:
                return Page(entries, cursors.of_token(token, filters))
            is_trusted = True

    async def _all(self) -> AsyncGenerator[E, None]:
        """Yield the entries, at most as many as the limit."""
        shown = 0
        async with contextlib.aclosing(self._found()) as items:
            async for item in items:
                entry = await self._read(item)
                if entry is None:
                    continue
                yield entry
                shown += 1
                if shown == self._limit:
                    return

    async def _found(self) -> AsyncGenerator[Any, None]:
        """Yield what Temporal finds for the filter; the next page is fetched meanwhile."""
        limit, count, token = self._limit, 0, b""
        query, size = await self._source.query(), self._size
        ahead: asyncio.Task[Found[Any]] | None = None
        try:
            while True:
                items, token = await (ahead or self._page(query, size, token))
                count += len(items)
                needs_more = bool(token) and (limit is None or count < limit)
                next_page = self._page(query, size, token) if needs_more else None
                ahead = asyncio.create_task(next_page) if next_page else None
                for item in items:
                    yield item
                if not token:
                    return
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)

    async def _page(
        self, query: str, size: int, token: bytes, *, is_trusted: bool = True
    ) -> Found[Any]:
        """Return a page from Temporal.

        A server has no error of its own for a token that it did not make, so `is_trusted` says
        whether the token can be from another program.
        """
        try:
            return await self._source.page(query, size, token, retry=is_trusted)
        except RPCError as error:
            if not is_trusted and error.status in _UNREAD:
                raise errors.InvalidRequestError(
                    "Temporal cannot go on from this cursor; begin with the first page"
                ) from error
            raise self._source.resource.translated("", error) from error
