"""Cancels sessions and batches, whose workflows have one latest run."""

from __future__ import annotations

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client

from perdure.temporal import cancellations
from perdure.temporal.access import Resource


async def cancel(
    client: Client, resource: Resource, info: WorkflowExecutionInfo, reason: str, by: str | None
) -> bool:
    """Ask a workflow to stop, and return whether it ran.

    Raises:
        PerdureError: The server refuses it, or does not answer.
    """
    if info.HasField("close_time"):
        return False
    id = info.execution.workflow_id
    try:
        await resource.asked(id, cancellations.request(client, id, reason, by))
    except resource.not_found:
        return False  # it ended meanwhile
    return True
