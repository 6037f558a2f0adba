"""Updates of sessions that wait for a worker."""

import asyncio
import contextlib

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.update.v1 import UpdateRef
from temporalio.api.workflowservice.v1 import PollWorkflowExecutionUpdateRequest
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.clients import Session

from .spending import SOON_S


async def until_sent(client: Client, session: Session, update_id: str) -> None:
    """Wait until an update waits for a worker of the session."""
    which = UpdateRef(
        workflow_execution=WorkflowExecution(workflow_id=session.id), update_id=update_id
    )
    request = PollWorkflowExecutionUpdateRequest(namespace=client.namespace, update_ref=which)
    async with asyncio.timeout(SOON_S):
        while True:
            with contextlib.suppress(RPCError):
                await client.workflow_service.poll_workflow_execution_update(request)
                return
            await asyncio.sleep(0.02)
