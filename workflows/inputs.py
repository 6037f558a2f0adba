"""A turn takes one input. The SDK would call `run` with as many as were sent, and a wrong number would leave the workflow task failing for ever."""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.worker import ExecuteWorkflowInput, Interceptor, WorkflowInboundInterceptor, WorkflowInterceptorClassInput

from perdure import errors
from perdure.activities import failures
from perdure.activities.signatures import TURN
from perdure.reports import Outcome
from perdure.wire import Summary


class OneInput(Interceptor):
    """Ends a turn that was started with several inputs, typed."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002 - the SDK's name
        """Applies to every workflow of the worker, and minds only turns."""
        return _OneInput


class _OneInput(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
        if workflow.info().workflow_type == TURN and len(input.args) > 1:
            error = errors.InvalidRequestError(f"a turn takes one input, {len(input.args)} were given")
            raise failures.of_turn(error, Summary(agent="", outcome=Outcome.FAILED, error=error.info()))
        return await super().execute_workflow(input)
