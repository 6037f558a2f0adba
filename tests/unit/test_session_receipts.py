"""Whether a message of a session came after the end of the turn that it waits for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryReverseResponse,
)
from temporalio.client import Client
from temporalio.service import ConnectConfig, ServiceClient

from perdure.clients.sessions.receipts import TurnClosed, closed_before
from perdure.session.wire import Disposition, Receipt

SESSION, MESSAGE = "chat", "m-2"
SENT_AT = datetime(2026, 11, 23, 12, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
CANCELLED = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CANCELED
COMPLETED = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED
RUNNING = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING


class Server(ServiceClient):
    """A server with a session that has taken in a message at `SENT_AT`, and with its first turn."""

    def __init__(self, status: WorkflowExecutionStatus.ValueType, closed: datetime | None) -> None:
        super().__init__(ConnectConfig(target_host="nowhere"))
        self._status = status
        self._closed = closed

    @property
    def worker_service_client(self) -> Any:
        raise NotImplementedError

    def update_rpc_metadata(self, metadata: Any) -> None:
        raise NotImplementedError

    def update_api_key(self, api_key: str | None) -> None:
        raise NotImplementedError

    async def _rpc_call(self, rpc: str, req: Any, *args: Any, **options: Any) -> Any:
        if rpc == "describe_workflow_execution":
            return self._described(req.execution.workflow_id)
        assert rpc == "get_workflow_execution_history_reverse"
        event = HistoryEvent(event_id=9)
        event.event_time.FromDatetime(SENT_AT)
        event.workflow_execution_update_accepted_event_attributes.protocol_instance_id = MESSAGE
        return GetWorkflowExecutionHistoryReverseResponse(history=History(events=[event]))

    def _described(self, workflow_id: str) -> DescribeWorkflowExecutionResponse:
        found = DescribeWorkflowExecutionResponse()
        info = found.workflow_execution_info
        info.history_length = 9
        if workflow_id == f"{SESSION}/1":
            info.parent_execution.workflow_id = SESSION
            info.status = self._status
            if self._closed is not None:
                info.close_time.FromDatetime(self._closed)
        return found


@pytest.mark.accepts("E151")
@pytest.mark.parametrize(
    ("disposition", "status", "closed", "expected"),
    [
        ("queued", COMPLETED, SENT_AT - MOMENT, TurnClosed(is_cancelled=False)),
        ("queued", COMPLETED, SENT_AT, TurnClosed(is_cancelled=False)),
        ("queued", COMPLETED, SENT_AT + MOMENT, None),
        ("queued", CANCELLED, SENT_AT - MOMENT, TurnClosed(is_cancelled=True)),
        ("queued", CANCELLED, SENT_AT, TurnClosed(is_cancelled=True)),
        ("queued", CANCELLED, SENT_AT + MOMENT, None),
        ("interrupting", COMPLETED, SENT_AT - MOMENT, TurnClosed(is_cancelled=False)),
        ("queued", RUNNING, None, None),
        ("started", COMPLETED, SENT_AT - MOMENT, None),
        ("steered", COMPLETED, SENT_AT - MOMENT, None),
    ],
)
async def test_message_came_after_a_turn_that_closed_at_or_before_its_time(
    disposition: str,
    status: WorkflowExecutionStatus.ValueType,
    closed: datetime | None,
    expected: TurnClosed | None,
) -> None:
    """By the times of the server; only a message that waits can have come too late for it."""
    receipt = Receipt(disposition=Disposition(disposition), turn_id=f"{SESSION}/2")
    client = Client(Server(status, closed))

    assert await closed_before(client, SESSION, MESSAGE, receipt) == expected


@pytest.mark.accepts("E151")
async def test_message_that_is_not_found_was_sent_before() -> None:
    """It is one sent again, and keeps what it was answered."""
    receipt = Receipt(disposition=Disposition.QUEUED, turn_id=f"{SESSION}/2")
    client = Client(Server(COMPLETED, SENT_AT - MOMENT))

    assert await closed_before(client, SESSION, "m-1", receipt) is None
