"""Requests to cancel turns, sessions, batches and what schedules have started."""

from __future__ import annotations

from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import RequestCancelWorkflowExecutionRequest
from temporalio.client import Client

from perdure.temporal.access import Resource
from perdure.temporal.acts import cancellations


async def request(
    client: Client,
    id: str,
    reason: str,
    by: str | None = None,
    run_id: str = "",
    *,
    outlives_subject: bool = False,
) -> None:
    """Ask a workflow to stop.

    Args:
        client: Temporal's client.
        id: The id of the workflow.
        reason: The reason; may be empty.
        by: The person or program that asks; None for the identity of the client.
        run_id: Its run; empty for the latest.
        outlives_subject: Whether reason and name can be read after the erasure of its data subject.

    Raises:
        RPCError: There is no such run that is not over, or the server does not answer.
    """
    cause, identity = await cancellations.request_of(
        client, id, reason, by, outlives_subject=outlives_subject
    )
    cancelling = RequestCancelWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=id, run_id=run_id),
        identity=identity,
        request_id=str(uuid4()),
        reason=cause,
    )
    await client.workflow_service.request_cancel_workflow_execution(cancelling, retry=True)


async def cancel(
    client: Client, resource: Resource, info: WorkflowExecutionInfo, reason: str, by: str | None
) -> bool:
    """Ask the workflow of a session or a batch to stop, and return whether it ran.

    Raises:
        PerdureError: The server refuses it, or does not answer.
    """
    if info.HasField("close_time"):
        return False
    id = info.execution.workflow_id
    try:
        await resource.asked(id, request(client, id, reason, by))
    except resource.not_found:
        return False  # it ended meanwhile
    return True
