"""A cancel and the end of a call in the same workflow task: the charge recorded in history is
booked all the same.
"""

import asyncio
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType

from perdure import Agent, Price, errors
from perdure.testing import ScriptedModel, call, calls
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

from ...conftest import eventually
from ...support.spending import Held, queue, usage

CANCEL = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
TASK = EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
STARTED, COMPLETED = (
    EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
)


@pytest.mark.slow
@pytest.mark.accepts("O1")
async def test_answer_that_comes_with_the_cancel_is_kept_and_paid(perdure_server: str) -> None:
    """There is no worker for workflow tasks while the model answers and the turn is cancelled; then
    a worker gets both at once.
    """
    model = Held(calls(call("look"), text="thinking", usage=usage(900)))
    agent = Agent(name="slow", model="scripted:slow")
    async with queue(perdure_server) as work:
        app = AgentWorker(
            agent,
            task_queue=work.client.task_queue,
            providers={"scripted": model},
            prices={"scripted:*": Price(input="1000", output="1000")},
        )
        running = app.running(
            work.client.temporal, settings=WorkerSettings(grace=timedelta(seconds=20))
        )
        await running.__aenter__()
        turn = await work.client.start("slow", "go")
        await eventually(lambda: model.call_count == 1, "the model is asked")
        leaving = asyncio.create_task(running.__aexit__(None, None, None))
        await asyncio.sleep(0.5)
        await turn.cancel("enough")
        model.let_go.set()
        await leaving
        events = [event.event_type for event in (await work.client.history(turn)).events]
        async with work.worker(app, ScriptedModel()):
            with pytest.raises(errors.TurnCancelledError) as stopped:
                await turn.result()

    assert events[-4:] == [CANCEL, TASK, STARTED, COMPLETED]
    assert stopped.value.report is not None
    assert (stopped.value.report.spent.tokens, stopped.value.report.last_text) == (900, "thinking")
