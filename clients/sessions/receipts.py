"""What happens to a message that a session took in before it was told that its turn is over.

A caller knows the end of a turn as soon as Temporal does, and the session a moment later. A message
in between is queued behind a turn that no longer runs, so the next turn begins with it.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import NamedTuple

from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.session.wire import Disposition, Receipt
from perdure.temporal.histories.fetching import backwards
from perdure.temporal.histories.runs import describe, describe_last

_BEHIND = (Disposition.QUEUED, Disposition.INTERRUPTING)
_NEWEST = 200
"""So many events of a session are searched for a message. Before them it is one sent again."""


class TurnClosed(NamedTuple):
    """The end of a turn before a message was sent: whether the turn was cancelled."""

    is_cancelled: bool


async def closed_before(
    client: Client, session_id: str, message_id: str, receipt: Receipt
) -> TurnClosed | None:
    """Return the end of the turn that a message waits for, if the message came after it.

    Both times are the server's.

    Raises:
        RPCError: Temporal does not answer.
    """
    if receipt.disposition not in _BEHIND:
        return None
    number = int(receipt.turn_id.rpartition("/")[2])
    try:
        description = await describe_last(client, f"{session_id}/{number - 1}", "", retry=True)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    info = description.workflow_execution_info
    if info.parent_execution.workflow_id != session_id or not info.HasField("close_time"):
        return None
    sent_at = await _sent_at(client, session_id, message_id)
    if sent_at is None or info.close_time.ToDatetime(tzinfo=UTC) > sent_at:
        return None
    return TurnClosed(info.status == WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CANCELED)


async def _sent_at(client: Client, session_id: str, message_id: str) -> datetime | None:
    """Return the time at which a session recorded a message; None if that was long ago."""
    info = (await describe(client, session_id, retry=True)).workflow_execution_info
    newest = backwards(client, session_id, info.execution.run_id)
    async with contextlib.aclosing(newest):
        async for event in newest:
            accepted = event.workflow_execution_update_accepted_event_attributes
            if accepted.protocol_instance_id == message_id:
                return event.event_time.ToDatetime(tzinfo=UTC)
            if event.event_id <= info.history_length - _NEWEST:
                return None
    return None
