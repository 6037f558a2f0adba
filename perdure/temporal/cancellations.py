"""Requests to cancel a workflow, with the name of the person or program that asks.

Temporal's request has a reason, and the identity of the client. History keeps both, so the name is
in the identity. A worker sees the reason alone.
"""

from __future__ import annotations

from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import RequestCancelWorkflowExecutionRequest
from temporalio.client import Client

_BY = "by:"
"""How the identity with a name begins. The SDK's own is `<process>@<host>`."""


async def request(
    client: Client, id: str, reason: str, by: str | None = None, run_id: str = ""
) -> None:
    """Ask a workflow to stop.

    Args:
        client: Temporal's client.
        id: The id of the workflow.
        reason: The reason; may be empty.
        by: The person or program that asks; None for the identity of the client.
        run_id: Its run; empty for the latest.

    Raises:
        RPCError: There is no such run that is not over, or the server does not answer.
    """
    cancelling = RequestCancelWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=id, run_id=run_id),
        identity=client.identity if by is None else f"{_BY}{by}",
        request_id=str(uuid4()),
        reason=reason,
    )
    await client.workflow_service.request_cancel_workflow_execution(cancelling, retry=True)


def requested(event: HistoryEvent) -> tuple[str, str | None]:
    """Return the reason and the name of the event that records a request."""
    asked = event.workflow_execution_cancel_requested_event_attributes
    by = asked.identity.removeprefix(_BY) if asked.identity.startswith(_BY) else None
    return asked.cause, by
