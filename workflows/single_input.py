"""Ensures that a turn or a batch, and its updates and signals, get exactly one input.

The SDK would pass any number, and a wrong input would not cause a typed error.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.worker import (
    ExecuteWorkflowInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from perdure import errors
from perdure.temporal import failures
from perdure.temporal.names import (
    BATCH,
    BATCH_PART,
    ERASURE,
    KEYED_EVENTS,
    PUSH,
    SCHEDULED_BATCH,
    SCHEDULED_MESSAGE,
    SETTLEMENT,
    TURN,
    WEBHOOK,
)
from perdure.turn.wire import Summary
from perdure.values.reports import Outcome

_OURS = {
    TURN: "turn",
    BATCH: "batch",
    BATCH_PART: "batch",
    SCHEDULED_BATCH: "batch of a schedule",
    SCHEDULED_MESSAGE: "message of a schedule",
    WEBHOOK: "webhook",
    PUSH: "push notification",
    SETTLEMENT: "settlement",
    ERASURE: "erasure",
    KEYED_EVENTS: "keeper of events",
}


class OneInput(Interceptor):
    """Rejects turns, batches and updates with several inputs with a typed error."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """Return the interceptor of all workflows; it only affects Perdure's."""
        return _OneInputInbound


class _OneInputInbound(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
        kind = workflow.info().workflow_type
        if kind in _OURS and len(input.args) > 1:
            error = errors.InvalidRequestError(
                f"a {_OURS[kind]} takes one input, {len(input.args)} were given"
            )
            if kind != TURN:
                raise failures.of_activity(error)
            raise failures.of_turn(
                error, Summary(agent="", outcome=Outcome.FAILED, error=error.info())
            )
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002 - the SDK's name
        """Ignore a signal that was not sent by Perdure; it remains visible in history."""
        if workflow.info().workflow_type not in _OURS or len(input.args) <= 1:
            await super().handle_signal(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:  # noqa: A002 - the SDK's name
        if workflow.info().workflow_type == TURN and len(input.args) > 1:
            raise failures.of_activity(
                errors.InvalidRequestError(
                    f"{input.update} takes one input, {len(input.args)} were given"
                )
            )
        super().handle_update_validator(input)
