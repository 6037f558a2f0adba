"""An update in the same workflow task as a result: which of them came first.

The workflow and its readers agree on that, and so does the next run of the turn.
"""

import asyncio
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType

from perdure import ModelRetryPolicy, errors
from perdure.activities.provider import ModelRequest
from perdure.temporal.names import RESUME
from perdure.temporal.payloads import NOTHING
from perdure.testing import ScriptedModel, says
from perdure.turn.facts import WaitBegan
from perdure.values.answers import ModelAnswer

from ...conftest import RecordingClient
from ...support.long_turns import SHORT_TASK, begin, runs_of
from ...support.spending import app, queue, report_of, until

QUICK = ModelRetryPolicy(
    initial_interval=timedelta(milliseconds=20), maximum_interval=timedelta(milliseconds=200)
)
FILLING = 60
"""So many updates fill a run."""


class Hanging:
    """A provider that is down three times, and does not answer the fourth time."""

    def __init__(self) -> None:
        self.count = 0
        self.is_asked = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Fail, or hang until the worker stops."""
        self.count += 1
        if self.count <= 3:
            raise errors.LLMUnavailableError("overloaded", context={"status": 503})
        self.is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        """Close nothing."""


async def tasks_with(client: RecordingClient, turn_id: str, run_id: str) -> list[list[str]]:
    """The names of the failures and updates of each workflow task of a run, in order."""
    tasks: list[list[str]] = [[]]
    is_over = False
    for event in (await client.history_of(turn_id, run_id)).events:
        name = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
        if name == "WORKFLOW_TASK_COMPLETED":
            tasks += [[]] if is_over else []
            is_over = True
        elif name in ("ACTIVITY_TASK_FAILED", "WORKFLOW_EXECUTION_UPDATE_ACCEPTED"):
            if name == "ACTIVITY_TASK_FAILED" and is_over:
                tasks.append([])
                is_over = False
            tasks[-1].append(name)
    return tasks


@pytest.mark.accepts("Y115")
async def test_resume_in_the_task_of_a_lost_call_is_carried_over(perdure_server: str) -> None:
    """The call is lost while no worker runs, a person resumes, and the run is full: the next run
    finds the state that the run before has recorded the digest of.
    """
    hanging = Hanging()
    async with queue(perdure_server) as work:
        async with work.worker(app(model_retry=QUICK), hanging):  # type: ignore[arg-type]
            turn = await begin(work.client, "spender", timeout=SHORT_TASK)
            await until(turn, WaitBegan)
            await hanging.is_asked.wait()
            for _ in range(FILLING):
                await turn.add_budget(iterations=1)
        handle = work.client.temporal.get_workflow_handle(turn.id)
        resuming = asyncio.create_task(handle.execute_update(RESUME, NOTHING))
        await asyncio.sleep(0.5)
        async with work.worker(app(model_retry=QUICK), ScriptedModel(says("done"))):
            await resuming
            report = await report_of(turn)
        runs = await runs_of(work.client, turn)
        tasks = await tasks_with(work.client, turn.id, runs[0])

    assert report.output == "done"
    assert len(runs) == 2
    assert ["ACTIVITY_TASK_FAILED", "WORKFLOW_EXECUTION_UPDATE_ACCEPTED"] in tasks
