"""The turns of a namespace, from Temporal's list.

Temporal's client raises `ValueError` for a whole page if an operator has paused one of its
workflows, because that status is newer than the client (1.35). So this module calls the service
directly.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    ListWorkflowExecutionsRequest,
    ListWorkflowExecutionsResponse,
)
from temporalio.client import Client
from temporalio.converter import decode_typed_search_attributes
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.clients.entries import TurnEntry, entry_of
from perdure.clients.filters import Filter
from perdure.errors import PerdureError
from perdure.temporal.namespace_check import Index

_PAGE = 200
_PASSING = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
)


async def turns(
    client: Client, index: Index, wanted: Filter, limit: int | None
) -> AsyncIterator[TurnEntry]:
    """Yield the turns that match a filter, page by page; the next page is fetched meanwhile.

    Turns that are not over come first, then the others, the last ended first.

    Raises:
        ConfigurationError: The namespace lacks the search attributes that the filter needs, or
            Temporal does not let this client list.
        ServerUnreachableError: Temporal does not answer.
    """
    shown = 0
    async with contextlib.aclosing(workflows(client, index, wanted, limit)) as found:
        async for info in found:
            attributes = decode_typed_search_attributes(info.search_attributes)
            entry = await entry_of(client, info, attributes)
            if wanted.admits(entry, attributes, info.task_queue):
                yield entry
                shown += 1
                if shown == limit:
                    return


async def workflows(
    client: Client, index: Index, wanted: Filter, limit: int | None
) -> AsyncGenerator[WorkflowExecutionInfo, None]:
    """Yield what Temporal finds for a filter, page by page. It may be more than matches.

    Raises:
        PerdureError: As `turns` does.
    """
    if wanted.needs_attributes and not await index.is_ready(client):
        await _explain(client, index)
    request = ListWorkflowExecutionsRequest(
        namespace=client.namespace, query=wanted.query(), page_size=min(limit or _PAGE, _PAGE)
    )
    found = 0
    ahead: asyncio.Task[ListWorkflowExecutionsResponse] | None = None
    try:
        while True:
            page = await (ahead or _page(client, request))
            found += len(page.executions)
            request.next_page_token = page.next_page_token
            needs_more = bool(page.next_page_token) and (limit is None or found < limit)
            ahead = asyncio.create_task(_page(client, request)) if needs_more else None
            for info in page.executions:
                yield info
            if not page.next_page_token:
                return
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)


async def _page(
    client: Client, request: ListWorkflowExecutionsRequest
) -> ListWorkflowExecutionsResponse:
    try:
        return await client.workflow_service.list_workflow_executions(request, retry=True)
    except RPCError as error:
        raise _unlistable(error) from error


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


def _unlistable(error: RPCError) -> PerdureError:
    cls = errors.ServerUnreachableError if error.status in _PASSING else errors.ConfigurationError
    return cls(f"Temporal does not list turns: {error.message}")
