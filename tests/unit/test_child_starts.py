"""Futures of children that were cancelled before they started."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest
from temporalio.exceptions import ChildWorkflowError, RetryState

from perdure.testing.simulation.server.loops import QuickLoop
from perdure.workflows import child_starts

CANCELLED = ChildWorkflowError(
    "cancelled",
    namespace="default",
    workflow_id="session/1",
    run_id="",
    workflow_type="AgentTurn",
    initiated_event_id=0,
    started_event_id=0,
    retry_state=RetryState.NON_RETRYABLE_FAILURE,
)


async def forget(error: Exception) -> None:
    """Leave a future with an error that nobody awaits."""
    child_starts.ignore_unawaited()
    asyncio.get_running_loop().create_future().set_exception(error)
    gc.collect()


@pytest.mark.parametrize(("error", "is_logged"), [(CANCELLED, False), (RuntimeError("bug"), True)])
def test_only_the_end_of_a_child_is_left_out_of_the_log(
    error: Exception, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A real bug is still reported."""
    loop = QuickLoop()
    with caplog.at_level(logging.ERROR, "asyncio"):
        loop.run_until_complete(forget(error))
    loop.close()

    assert bool(caplog.records) is is_logged
