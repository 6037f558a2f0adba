"""The names of the people and programs that cancel a workflow.

Temporal's request has a reason, and the identity of the client. History keeps both, so the name is
in the identity. A worker sees the reason alone.
"""

from __future__ import annotations

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client

_BY = "by:"
"""How the identity with a name begins. The SDK's own is `<process>@<host>`."""


def identity_of(by: str) -> str:
    """Return the identity of a request of this person or program."""
    return f"{_BY}{by}"


def requested(event: HistoryEvent) -> tuple[str, str | None]:
    """Return the reason and the name of the event that records a request."""
    asked = event.workflow_execution_cancel_requested_event_attributes
    by = asked.identity.removeprefix(_BY) if asked.identity.startswith(_BY) else None
    return asked.cause, by


async def last_name(client: Client, id: str, run_id: str) -> str | None:
    """Return who has asked a workflow last to stop, in this run or in those that it continues.

    History is read from its end, as far as the request. None without a request or a name.

    Raises:
        RPCError: There is no such run, or the server does not answer.
    """
    while run_id:
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=id, run_id=run_id),
        )
        run_id = ""
        while True:
            service = client.workflow_service
            page = await service.get_workflow_execution_history_reverse(request, retry=True)
            for event in page.history.events:
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
                    return requested(event)[1]
                run_id = (
                    event.workflow_execution_started_event_attributes.continued_execution_run_id
                )
            if not page.next_page_token:
                break
            request.next_page_token = page.next_page_token
    return None
