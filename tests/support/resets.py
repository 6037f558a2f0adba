"""Helpers that reset workflows as an operator does."""

import secrets

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHistory

from perdure.clients import Turn

from ..conftest import RecordingClient


def task_ends(history: WorkflowHistory) -> list[int]:
    """The ends of the workflow tasks of a run; the run can be reset to each of them."""
    completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    return [event.event_id for event in history.events if event.event_type == completed]


async def reset(client: RecordingClient, turn: Turn, event_id: int) -> Turn:
    """Reset a turn to the end of a workflow task, and return the new run."""
    return client._turn(
        turn.id, (await reset_to(client.temporal, turn.id, await turn.first_run(), event_id),)
    )


async def reset_to(
    client: Client, workflow_id: str, run_id: str, event_id: int, reason: str = "a test"
) -> str:
    """Reset a workflow to the end of a workflow task, as `temporal workflow reset` does, and return
    the id of the new run.
    """
    request = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
        reason=reason,
        workflow_task_finish_event_id=event_id,
        request_id=secrets.token_hex(8),
    )
    return (await client.workflow_service.reset_workflow_execution(request)).run_id
