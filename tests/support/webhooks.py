"""Webhooks and their deliveries."""

from __future__ import annotations

import contextlib
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.worker import Replayer

from perdure.clients import AgentClient, Turn
from perdure.temporal.names import MEMO_WEBHOOK
from perdure.workflows import AgentWebhook

from ..conftest import assert_no_task_failed
from .spending import ended

INITIATED = EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED


async def delivery(client: AgentClient, turn: Turn[Any]) -> WorkflowHandle[Any, Any]:
    """The workflow that delivers the webhook of a turn, which has just one."""
    run = client.temporal.get_workflow_handle(turn.id)
    found = [
        event.start_child_workflow_execution_initiated_event_attributes.workflow_id
        async for event in run.fetch_history_events()
        if event.event_type == INITIATED
    ]
    [mine] = [one for one in found if "/on_done-" in one]
    return client.temporal.get_workflow_handle(mine)


async def delivered(client: AgentClient, turn: Turn[Any]) -> dict[str, Any]:
    """The memo of a delivery after its end, whose history replays."""
    await ended(turn)
    handle = await delivery(client, turn)
    with contextlib.suppress(WorkflowFailureError):
        await handle.result()
    history = await handle.fetch_history()
    assert_no_task_failed(history)
    replayed = await Replayer(
        workflows=[AgentWebhook], data_converter=client.temporal.data_converter
    ).replay_workflow(history)
    assert replayed.replay_failure is None
    found = await handle.describe()
    memo: dict[str, Any] = await found.memo_value(MEMO_WEBHOOK)
    is_delivered = found.status is WorkflowExecutionStatus.COMPLETED
    assert memo.pop("turn_id") == turn.id
    assert is_delivered == (memo["state"] == "delivered")
    return memo
