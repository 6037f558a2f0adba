"""The turns of a namespace, from Temporal's list.

Temporal's client raises `ValueError` for a whole page if an operator has paused one of its
workflows, because that status is newer than the client (1.35). So this module calls the service
directly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import ListWorkflowExecutionsRequest
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
    """Yield the turns that match a filter, page by page.

    Turns that are not over come first, then the others, the last ended first.

    Raises:
        ConfigurationError: The namespace lacks the search attributes that the filter needs, or
            Temporal does not let this client list.
        ServerUnreachableError: Temporal does not answer.
    """
    shown = 0
    async for info in workflows(client, index, wanted, limit):
        attributes = decode_typed_search_attributes(info.search_attributes)
        entry = await entry_of(client, info, attributes)
        if wanted.admits(entry, attributes, info.task_queue):
            yield entry
            shown += 1
            if shown == limit:
                return


async def workflows(
    client: Client, index: Index, wanted: Filter, limit: int | None
) -> AsyncIterator[WorkflowExecutionInfo]:
    """Yield what Temporal finds for a filter, page by page. It may be more than matches.

    Raises:
        PerdureError: As `turns` does.
    """
    if wanted.needs_attributes and not await index.is_ready(client):
        await _explain(client, index)
    request = ListWorkflowExecutionsRequest(
        namespace=client.namespace, query=wanted.query(), page_size=min(limit or _PAGE, _PAGE)
    )
    while True:
        try:
            page = await client.workflow_service.list_workflow_executions(request, retry=True)
        except RPCError as error:
            raise _unlistable(error) from error
        for info in page.executions:
            yield info
        if not page.next_page_token:
            return
        request.next_page_token = page.next_page_token


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
