"""Pages of a history that grows, read through outages of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.errors import PerdureError

logger = logging.getLogger("perdure")

V = TypeVar("V")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
_POLL = timedelta(seconds=70)
FATAL = {
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.INVALID_ARGUMENT,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.UNIMPLEMENTED,
}
"""The server's errors that another attempt does not change."""


async def next_page(
    client: Client,
    request: GetWorkflowExecutionHistoryRequest,
    subject: str,
    translate: Callable[[RPCError], PerdureError],
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
        return await patiently(ask, subject, translate)
    except errors.InvalidRequestError:
        if not request.next_page_token:
            raise
    request.next_page_token = b""
    await asyncio.sleep(FIRST_PAUSE_S)
    return await patiently(ask, subject, translate)


async def patiently(
    ask: Callable[[], Awaitable[V]], subject: str, translate: Callable[[RPCError], PerdureError]
) -> V:
    """Return the server's answer, after an outage of any length.

    Args:
        ask: Asks the server.
        subject: What it is asked about, for the log.
        translate: Returns what is raised for an error that does not pass.

    Raises:
        PerdureError: The server answers with such an error.
    """
    pause = FIRST_PAUSE_S
    while True:
        try:
            return await ask()
        except RPCError as error:
            if error.status in FATAL:
                raise translate(error) from error
            if pause < LONGEST_PAUSE_S <= pause * 2:
                logger.warning(
                    "the Temporal server does not answer (%s); %s is followed on",
                    error.status.name,
                    subject,
                )
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_S)
