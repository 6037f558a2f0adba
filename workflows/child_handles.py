"""Signals and cancels for children, also after a reset of their parent.

Temporal lets a workflow signal and cancel a child as its own only in the run that has started it. A
reset makes another run, which hears of the end of the child, but would not reach it that way. So a
child is reached by its id, as any other workflow.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

_BY_ID = "children-by-id"
"""The patch id of workflows that reach their children by id."""

Child = workflow.ChildWorkflowHandle[Any, Any]


def cancel(child: Child, reason: str) -> None:
    """Request the cancellation of a child that has started."""
    if not workflow.patched(_BY_ID):
        child.cancel(reason)
        return
    asyncio.create_task(_cancelled(child.id, reason))  # noqa: RUF006 - the SDK keeps it


async def _cancelled(workflow_id: str, reason: str) -> None:
    with contextlib.suppress(ApplicationError):  # it is over
        await workflow.get_external_workflow_handle(workflow_id).cancel(reason=reason)


async def signal(child: Child, name: str, payload: Any) -> None:
    """Send a signal to a child, and wait until its history has it.

    Raises:
        ApplicationError: It is over.
    """
    if workflow.patched(_BY_ID):
        await workflow.get_external_workflow_handle(child.id).signal(name, payload)
    else:
        await child.signal(name, payload)
