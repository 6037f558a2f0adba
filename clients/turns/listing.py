"""The turns of a namespace, from Temporal's list.

Temporal's client raises `ValueError` for a whole page if an operator has paused one of its
workflows, because that status is newer than the client (1.35). So this module calls the service
directly.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from annotated_types import Interval
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    ListWorkflowExecutionsRequest,
    ListWorkflowExecutionsResponse,
)
from temporalio.client import Client
from temporalio.converter import decode_typed_search_attributes
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors, validation
from perdure.clients.reading import cursors
from perdure.clients.turns.entries import TurnEntry, entry_of
from perdure.clients.turns.filters import Filter
from perdure.temporal import access
from perdure.temporal.namespace_check import Index
from perdure.validation import Must

_PAGE = 200
_PAGE_OF = {
    "after": validation.Unicode | None,
    "size": Annotated[int, Interval(ge=1, le=1_000), Must("a whole number from 1 to 1000")],
}
_UNREAD = (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.UNKNOWN, RPCStatusCode.INTERNAL)
"""The answers of servers to a page token that they cannot read."""


E = TypeVar("E")

Read = Callable[[WorkflowExecutionInfo], Awaitable[E | None]]
"""Returns the entry of a workflow that Temporal found; None if it does not match."""


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
        self, client: Client, index: Index, wanted: Filter, limit: int | None, read: Read[E]
    ) -> None:
        self._client = client
        self._index = index
        self._wanted = wanted
        self._limit = limit
        self._read = read
        self._entries = self._all()

    async def __anext__(self) -> E:
        return await anext(self._entries)

    async def aclose(self) -> None:
        """End the iteration before its end."""
        await self._entries.aclose()

    async def page(self, after: str | None = None, *, size: int = 50) -> Page[E]:
        """Return a part of the list, of any process that has the same filters.

        Entries that come meanwhile do not move the others from one page to the next. A turn or a
        session that ends meanwhile may be on two pages, and on one at least.

        Args:
            after: The cursor `next` of the page before; None for the first page.
            size: The largest number of entries, at most 1,000.

        Raises:
            InvalidRequestError: The cursor is not valid, or the size.
            PerdureError: As iterating the list does.
        """
        given = {"after": after, "size": size}
        validation.check("the page", given, _PAGE_OF, errors.InvalidRequestError)
        request = await self._request(size)
        request.next_page_token = cursors.token_in(after, request.query)
        found = await _page(self._client, request, is_trusted=after is None)
        while True:
            read = [await self._read(info) for info in found.executions]
            entries = tuple(one for one in read if one is not None)
            if entries or not found.next_page_token:
                return Page(entries, cursors.of_token(found.next_page_token, request.query))
            request.next_page_token = found.next_page_token
            found = await _page(self._client, request)

    async def _all(self) -> AsyncGenerator[E, None]:
        """Yield the entries, at most as many as the limit."""
        shown = 0
        async with contextlib.aclosing(self._found()) as found:
            async for info in found:
                entry = await self._read(info)
                if entry is None:
                    continue
                yield entry
                shown += 1
                if shown == self._limit:
                    return

    async def _found(self) -> AsyncGenerator[WorkflowExecutionInfo, None]:
        """Yield what Temporal finds for the filter; the next page is fetched meanwhile."""
        limit, found = self._limit, 0
        request = await self._request(min(limit or _PAGE, _PAGE))
        ahead: asyncio.Task[ListWorkflowExecutionsResponse] | None = None
        try:
            while True:
                page = await (ahead or _page(self._client, request))
                found += len(page.executions)
                request.next_page_token = page.next_page_token
                needs_more = bool(page.next_page_token) and (limit is None or found < limit)
                ahead = asyncio.create_task(_page(self._client, request)) if needs_more else None
                for info in page.executions:
                    yield info
                if not page.next_page_token:
                    return
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)

    async def _request(self, size: int) -> ListWorkflowExecutionsRequest:
        if self._wanted.needs_attributes and not await self._index.is_ready(self._client):
            await _explain(self._client, self._index)
        return ListWorkflowExecutionsRequest(
            namespace=self._client.namespace, query=self._wanted.query(), page_size=size
        )


def turns(client: Client, index: Index, wanted: Filter, limit: int | None) -> Listing[TurnEntry]:
    """Return the turns that match a filter.

    Turns that are not over come first, then the others, the last ended first.

    Raises:
        ConfigurationError: The namespace lacks the search attributes that the filter needs, or
            Temporal does not let this client list.
        ServerUnreachableError: Temporal does not answer.
    """

    async def read(info: WorkflowExecutionInfo) -> TurnEntry | None:
        attributes = decode_typed_search_attributes(info.search_attributes)
        entry = await entry_of(client, info, attributes)
        return entry if wanted.admits(entry, attributes, info.task_queue) else None

    return Listing(client, index, wanted, limit, read)


async def _page(
    client: Client, request: ListWorkflowExecutionsRequest, *, is_trusted: bool = True
) -> ListWorkflowExecutionsResponse:
    """Return a page from Temporal.

    A server has no error of its own for a token that it did not make, so `is_trusted` says whether
    the token can be from another program.
    """
    try:
        return await client.workflow_service.list_workflow_executions(request, retry=is_trusted)
    except RPCError as error:
        if not is_trusted and error.status in _UNREAD:
            raise errors.InvalidRequestError(
                "Temporal cannot go on from this cursor; begin with the first page"
            ) from error
        raise access.TURN.translated("", error) from error


async def _explain(client: Client, index: Index) -> None:
    """Look at the namespace once more, and raise an error if search attributes are still missing.

    It may have been set up in the meantime.
    """
    found = await index.ask(client)
    if found is not None and not found.is_ready:
        raise errors.ConfigurationError(
            f"namespace {client.namespace!r} cannot be searched for turns ({found}); run `perdure"
            f" setup --namespace {client.namespace}` once",
            context={"namespace": client.namespace, "missing": list(found.missing)},
        )
