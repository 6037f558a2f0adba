"""Time that is added to a turn while the call that exceeded its time is being stopped."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType

from perdure import Budget, Outcome, tool
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import RecordingClient, Runtime
from ...support.spending import SHORT, SOON_S, app


@pytest.mark.slow
async def test_time_that_is_added_while_a_call_is_being_stopped_is_time_for_that_call(
    runtime: Runtime,
) -> None:
    """A second attempt does not run next to the first one; when that has ended, the turn
    continues.
    """
    let_go, runs = threading.Event(), []

    @tool
    def hang() -> str:
        """Hang, in a call that no exception interrupts."""
        runs.append(1)
        let_go.wait(60)
        return "late"

    model = ScriptedModel(calls(call("hang")), says("done"))
    async with runtime(app(tools=[hang]), model=model) as client:
        turn = await client.start("spender", "go", budget=Budget(time=SHORT))
        try:
            async with asyncio.timeout(SOON_S):
                # history is polled
                while EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED not in await kinds(  # noqa: ASYNC110
                    client, turn.id
                ):
                    await asyncio.sleep(0.05)
            await turn.add_budget(Budget(time=timedelta(minutes=2)))
            await asyncio.sleep(2)
        finally:
            let_go.set()
        report = await turn.result()

    assert (report.outcome, report.output, runs) == (Outcome.COMPLETED, "done", [1])


async def kinds(client: RecordingClient, turn_id: str) -> list[int]:
    """The kinds of a turn's events so far."""
    return [
        event.event_type
        for event in (await client.temporal.get_workflow_handle(turn_id).fetch_history()).events
    ]
