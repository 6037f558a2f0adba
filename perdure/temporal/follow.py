"""Follows a history that grows, page by page."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
)
from temporalio.client import Client

from perdure import errors
from perdure.temporal.access import FIRST_PAUSE_S, Resource

_POLL = timedelta(seconds=70)


async def next_page(
    client: Client, resource: Resource, id: str, request: GetWorkflowExecutionHistoryRequest
) -> GetWorkflowExecutionHistoryResponse:
    """Return the next page of a history, after an outage of any length.

    A server may refuse a page token of its own: it compares the token with the state of the
    workflow, and that state may be older than the token, or the workflow was reset. Then history is
    read from its beginning without the token, and the caller skips the events that it knows.

    Raises:
        PerdureError: The history cannot be read.
    """
    service = client.workflow_service

    async def ask() -> GetWorkflowExecutionHistoryResponse:
        return await service.get_workflow_execution_history(request, timeout=_POLL)

    try:
        return await resource.patiently(id, ask)
    except errors.InvalidRequestError:
        if not request.next_page_token:
            raise
    request.next_page_token = b""
    await asyncio.sleep(FIRST_PAUSE_S)
    return await resource.patiently(id, ask)
