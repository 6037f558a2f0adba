"""Fetches the events of a run: from the first, from the last, or the first alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client

from perdure import errors
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.turn.facts import Recorded, TurnContinued, TurnStarted
from perdure.turn.wire import TurnRequest

_TAIL_PAGE = 40


async def recorded(
    client: Client,
    turn_id: str,
    run_id: str,
    *,
    is_worker: bool = False,
    page_size: int | None = None,
) -> AsyncGenerator[tuple[HistoryEvent, Recorded | None], None]:
    """The events of a run so far, from the first, each with its fact.

    An event of several facts comes as often.

    `is_worker` is as in `HistoryReader`.
    """
    reader = HistoryReader(client.data_converter, is_worker=is_worker)
    async for event in client.get_workflow_handle(turn_id, run_id=run_id).fetch_history_events(
        page_size=page_size
    ):
        for fact in await reader.facts(event) or (None,):
            yield event, fact


async def backwards(
    client: Client, turn_id: str, run_id: str
) -> AsyncGenerator[HistoryEvent, None]:
    """The events of a run so far, from the last."""
    run = WorkflowExecution(workflow_id=turn_id, run_id=run_id)
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace, execution=run, maximum_page_size=_TAIL_PAGE
    )
    while True:
        response = await client.workflow_service.get_workflow_execution_history_reverse(
            request, retry=True
        )
        for event in response.history.events:
            yield event
        if not response.next_page_token:
            return
        request.next_page_token = response.next_page_token


async def first_event(client: Client, turn_id: str, run_id: str) -> HistoryEvent:
    """The event that says how a run was started.

    Raises:
        LookupError: The history is empty.
    """
    async for event in client.get_workflow_handle(turn_id, run_id=run_id).fetch_history_events(
        page_size=1
    ):
        return event
    raise LookupError("history is empty")


async def first_request(client: Client, turn_id: str, run_id: str) -> tuple[TurnRequest, str]:
    """Return the input of the turn that a run belongs to, and its digest.

    In a later run of a turn, the input is without its history.

    Raises:
        InvalidRequestError: The input is not the input of a turn.
    """
    event = await first_event(client, turn_id, run_id)
    match await HistoryReader(client.data_converter).facts(event):
        case (TurnStarted(request),):
            return request, request.digest()
        case (TurnContinued(continuation),):
            return continuation.request, continuation.request_digest
        case _:
            raise errors.InvalidRequestError(f"{turn_id!r} was not started as a turn")
