"""Temporal's list of workflows.

Temporal's client raises `ValueError` for a whole page if an operator has paused one of its
workflows, because that status is newer than the client (1.35). So the service is called directly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import ListWorkflowExecutionsRequest
from temporalio.client import Client


async def page(
    client: Client, query: str, size: int, token: bytes = b"", *, retry: bool = True
) -> tuple[Sequence[WorkflowExecutionInfo], bytes]:
    """Return a page of at most this size after a token, and the next token, empty at the end.

    Raises:
        RPCError: The server does not answer, or does not take the query.
    """
    request = ListWorkflowExecutionsRequest(
        namespace=client.namespace, query=query, page_size=size, next_page_token=token
    )
    response = await client.workflow_service.list_workflow_executions(request, retry=retry)
    return response.executions, response.next_page_token


async def pages(
    client: Client, query: str, size: int
) -> AsyncIterator[Sequence[WorkflowExecutionInfo]]:
    """Yield all pages.

    Raises:
        RPCError: As `page`.
    """
    token = b""
    while True:
        infos, token = await page(client, query, size, token)
        yield infos
        if not token:
            return
