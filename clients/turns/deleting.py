"""Deletes what Temporal has of a turn that is over, as if its retention were over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client

from perdure import errors
from perdure.temporal import access
from perdure.temporal.histories.runs import describe

_WITHIN = timedelta(seconds=90)
"""Temporal 1.32 takes half a minute."""
_PAUSE_S = 0.5


async def has_parent(client: Client, turn_id: str) -> bool:
    """Return whether another workflow has started a turn, such as a batch or a turn that delegates.

    Raises:
        PerdureError: Temporal does not have the turn, or does not answer.
    """
    described = await access.TURN.asked(turn_id, describe(client, turn_id, retry=True))
    return described.workflow_execution_info.HasField("parent_execution")


async def delete(client: Client, turn_id: str, runs: Sequence[str]) -> None:
    """Delete the runs of a turn that is over, and return once Temporal no longer has them.

    Its delegates have histories of their own, which stay. Afterwards its id is free: the same id
    starts a new turn.

    Args:
        client: Temporal's client.
        turn_id: The turn's id.
        runs: Temporal's ids of all of its runs, in order, so that a repeated request still finds
            the last one if this one is cut off.

    Raises:
        ServerUnreachableError: Temporal does not answer, or has not deleted it within 90 s.
        PerdureError: This client may not delete.
    """
    service = client.workflow_service
    for run_id in runs:
        request = DeleteWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=turn_id, run_id=run_id),
        )
        # a run that is not there any more was deleted by an earlier request
        await access.TURN.asked_if_known(
            turn_id, service.delete_workflow_execution(request, retry=True)
        )
    try:
        async with asyncio.timeout(_WITHIN.total_seconds()):
            while await _is_there(client, turn_id, runs[-1]):  # noqa: ASYNC110 - of the server
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError as error:
        raise errors.ServerUnreachableError(
            f"Temporal has not deleted {access.TURN.subject(turn_id)} within"
            f" {_WITHIN.total_seconds():.0f} s; it may still do so"
        ) from error


async def _is_there(client: Client, turn_id: str, run_id: str) -> bool:
    described = describe(client, turn_id, run_id, retry=True)
    return await access.TURN.asked_if_known(turn_id, described) is not None
