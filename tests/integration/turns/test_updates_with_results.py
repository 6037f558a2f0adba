"""An update in the same workflow task as a result: which of them came first.

The workflow and its readers agree on that, and so does the next run of the turn.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from perdure import ModelRetryPolicy, errors
from perdure.activities.provider import ModelRequest
from perdure.temporal.names import RESUME
from perdure.temporal.payloads import NOTHING
from perdure.testing import ScriptedModel, says
from perdure.turn.facts import WaitBegan
from perdure.values.answers import ModelAnswer

from ...support.fed_histories import differences
from ...support.spending import app, queue, report_of, until

QUICK = ModelRetryPolicy(
    initial_interval=timedelta(milliseconds=20), maximum_interval=timedelta(milliseconds=200)
)


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


def tasks_with(events: Sequence[HistoryEvent]) -> list[list[str]]:
    """The names of the failures and updates of each workflow task of a run, in order."""
    tasks: list[list[str]] = [[]]
    is_over = False
    for event in events:
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


@pytest.mark.slow
@pytest.mark.accepts("Y115")
async def test_resume_in_the_task_of_a_lost_call(perdure_server: str) -> None:
    """The call is lost while no worker runs, and then a person resumes: the next worker has both in
    one task. After each task, the state of the workflow is that of its reader.
    """
    hanging = Hanging()
    async with queue(perdure_server) as work:
        async with work.worker(app(model_retry=QUICK), hanging):
            turn = await work.client.start("spender", "go")
            await until(turn, WaitBegan)
            await hanging.is_asked.wait()
        handle = work.client.temporal.get_workflow_handle(turn.id)
        resuming = asyncio.create_task(handle.execute_update(RESUME, NOTHING))
        await asyncio.sleep(0.5)
        async with work.worker(app(model_retry=QUICK), ScriptedModel(says("done"))):
            await resuming
            report = await report_of(turn)
        events = (await work.client.history(turn)).events

    assert report.output == "done"
    assert await asyncio.to_thread(differences, events) == []
    assert ["ACTIVITY_TASK_FAILED", "WORKFLOW_EXECUTION_UPDATE_ACCEPTED"] in tasks_with(events)
