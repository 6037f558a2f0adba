"""Skips the time of a turn, using the time skipping of the Temporal server itself."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import FastForwardConfig, TimeSkippingConfig, WorkflowExecution
from temporalio.api.enums.v1 import FastForwardPollingResult
from temporalio.api.workflow.v1 import WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import (
    PollWorkflowExecutionTimeSkippingRequest,
    UpdateWorkflowExecutionOptionsRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.clients import AgentClient, Turn
from perdure.temporal.histories.runs import last_run

SETTING = "frontend.WorkflowTimeSkippingEnabled"
"""The dynamic configuration that enables it on a server. Other workflows are not affected."""

_COMPLETED = FastForwardPollingResult.FAST_FORWARD_POLLING_RESULT_FAST_FORWARD_COMPLETED
_FAILED = FastForwardPollingResult.FAST_FORWARD_POLLING_RESULT_FAST_FORWARD_FAILED


async def skip_time(client: AgentClient, turn: Turn[Any], by: timedelta) -> None:
    """Skip time in a turn; return when it has passed or the turn has ended.

    Every timer of the turn that is due by then fires, in order. No time is skipped while an
    activity or a delegate's turn runs. A delegate's turn has a time of its own. A turn that has
    ended does not change.

    Args:
        client: A client of the server.
        turn: The turn. Other turns are not affected.
        by: The time to skip.

    Raises:
        ConfigurationError: The server does not skip time. Those of `local_runtime` and
            `perdure_runtime` do.
        TurnNotFoundError: Temporal does not have the turn.
    """
    first = await turn.first_run()
    mark, duration = secrets.token_hex(6), Duration()
    duration.FromTimedelta(by)
    config = TimeSkippingConfig(
        enabled=True, fast_forward_config=FastForwardConfig(id=mark, duration=duration)
    )
    try:
        run_id = await last_run(client.temporal, turn.id, first)
        execution = WorkflowExecution(workflow_id=turn.id, run_id=run_id)
        await client.temporal.workflow_service.update_workflow_execution_options(
            UpdateWorkflowExecutionOptionsRequest(
                namespace=client.temporal.namespace,
                workflow_execution=execution,
                workflow_execution_options=WorkflowExecutionOptions(time_skipping_config=config),
                update_mask=FieldMask(paths=["time_skipping_config"]),
            )
        )
        await _passed(client, execution, mark)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            hint = f"start it with --dynamic-config-value {SETTING}=true"
            raise errors.ConfigurationError(
                f"the time of turn {turn.id!r} was not skipped: the server said {error.message!r};"
                f" {hint}"
            ) from None


async def _passed(client: AgentClient, execution: WorkflowExecution, mark: str) -> None:
    """Wait until the time has passed, or the turn has ended."""
    request = PollWorkflowExecutionTimeSkippingRequest(
        namespace=client.temporal.namespace, workflow_execution=execution, fast_forward_id=mark
    )
    while True:
        polled = await client.temporal.workflow_service.poll_workflow_execution_time_skipping(
            request
        )
        if polled.fast_forward_polling_result in (_COMPLETED, _FAILED):
            return
