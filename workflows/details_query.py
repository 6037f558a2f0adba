"""The details of turns and sessions in Temporal's web UI, made when somebody looks at them.

The SDK has a function that sets the details. But they change with nearly every fact, and most of
them are never read: a query for them is answered by the workflow itself.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from temporalio import workflow
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.worker import (
    HandleQueryInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)


@runtime_checkable
class HasDetails(Protocol):
    """A workflow that knows what the web UI shows of it."""

    @property
    def details(self) -> str:
        """The details, as Markdown."""


class DetailsQuery(Interceptor):
    """Adds the details of a workflow to its metadata, which Temporal's web UI queries."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """Return the interceptor of all workflows; it only affects those that have details."""
        return _DetailsInbound


class _DetailsInbound(WorkflowInboundInterceptor):
    async def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002 - the SDK's name
        answer = await super().handle_query(input)
        instance = workflow.instance()
        if isinstance(answer, WorkflowMetadata) and isinstance(instance, HasDetails):
            answer.current_details = instance.details
        return answer
