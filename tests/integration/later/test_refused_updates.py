"""An update that is refused leaves nothing in history: a replay does without it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError

from perdure import Budget, Outcome
from perdure.temporal.names import RESUME
from perdure.temporal.payloads import NOTHING
from perdure.testing import ScriptedModel, call, calls, says

from ...support.fed_histories import differences
from ...support.jobs import Service, deployer, until_waiting
from ...support.spending import app, queue, report_of


@pytest.mark.accepts("S46")
async def test_refused_update_in_the_task_in_which_the_time_is_up(perdure_server: str) -> None:
    """No worker runs when the time of the turn is up while a job is polled; the next worker has the
    timer and an update in one task. The history, which has no such update, replays.
    """
    service = Service()
    poll = service.tool(poll=service.poll, poll_every=timedelta(hours=1))
    worker = app(deployer(service, [poll], on_exhausted="finish"))
    first = ScriptedModel(calls(call("deploy", target="shop")))
    async with queue(perdure_server) as work:
        async with work.worker(worker, first):
            limit = Budget(time=timedelta(seconds=8))
            turn = await work.client.start("deployer", "go", budget=limit)
            await until_waiting(turn)
            await service.until_polled(1)
        handle = work.client.temporal.get_workflow_handle(turn.id)
        resuming = asyncio.create_task(handle.execute_update(RESUME, NOTHING))
        async with asyncio.timeout(60):
            while not await _has_fired(handle):  # noqa: ASYNC110 - the server makes it so
                await asyncio.sleep(0.1)
        async with work.worker(worker, ScriptedModel(says("as far as I know"))):
            with pytest.raises(WorkflowUpdateFailedError):
                await resuming
            report = await report_of(turn)
        events = (await work.client.history(turn)).events

    # a busy machine may have no time for the last answer
    assert report.outcome in (Outcome.COMPLETED, Outcome.BUDGET_EXHAUSTED)
    assert await asyncio.to_thread(differences, events) == []


async def _has_fired(handle: WorkflowHandle[Any, Any]) -> bool:
    """Whether a timer of a workflow has fired."""
    history = await handle.fetch_history()
    return any(event.event_type == EventType.EVENT_TYPE_TIMER_FIRED for event in history.events)
