"""Separate task queues for the model calls of a provider, and the priority of a turn."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from temporalio.client import Client

from perdure import Agent, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.testing import ScriptedModel, call, calls, fails
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker, ModelQueue

from ...conftest import RecordingClient, Runtime
from ...support.spending import queue


@tool(read_only=True)
def look() -> str:
    """Look somewhere."""
    return "seen"


def app(**fields: Any) -> AgentWorker:
    return AgentWorker(Agent(name="asker", model="slow:m", tools=[look]), **fields)


async def queues(client: RecordingClient, turn_id: str) -> dict[str, set[str]]:
    """The task queues of each kind of activity of a turn, without the turn's own prefix."""
    events = (await client.temporal.get_workflow_handle(turn_id).fetch_history()).events
    found: dict[str, set[str]] = {}
    for event in events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled = event.activity_task_scheduled_event_attributes
            found.setdefault(scheduled.activity_type.name, set()).add(
                scheduled.task_queue.name.removeprefix(client.task_queue)
            )
    return found


@pytest.mark.slow
async def test_model_calls_of_a_provider_go_through_its_own_queue(runtime: Runtime) -> None:
    """The calls of its fallback and of tools use other queues, and the turn completes as usual."""
    busy = fails(errors.LLMInvalidRequestError("no such model"))
    providers = {"slow": ScriptedModel(calls(call("look")), busy), "quick": ScriptedModel("done")}
    agent = Agent(name="asker", model=["slow:m", "quick:m"], tools=[look])
    async with runtime(
        AgentWorker(agent, providers=providers, queues={"slow": ModelQueue()})
    ) as client:
        turn = await client.start("asker", "go")
        report = await turn.result()
        found = await queues(client, turn.id)

    assert report.output == "done"
    assert found == {
        "perdure.call_model": {".slow", ""},
        "look": {""},
    }


class Punctual:
    """A model that records the times of its calls."""

    def __init__(self) -> None:
        self.moments: list[float] = []
        self.at_once = self.most_at_once = 0

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.moments.append(time.monotonic())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.05)
        self.at_once -= 1
        return await ScriptedModel("done").complete(request)

    async def close(self) -> None:
        """Nothing to close."""


@pytest.mark.slow
async def test_rate_of_a_queue_is_kept_over_all_its_workers(perdure_server: str) -> None:
    """Two workers, and nine concurrent turns: at most two calls per second, and at most the limit
    of each worker at once.
    """
    model = Punctual()
    limited = app(providers={"slow": model}, queues={"slow": ModelQueue(per_second=2, at_once=1)})
    async with queue(perdure_server) as work:
        second = replace(limited, task_queue=work.client.task_queue).running(
            await Client.connect(perdure_server)
        )
        async with work.worker(limited), second:
            turns = [await work.client.start("asker", f"go {number}") for number in range(9)]
            reports = await asyncio.gather(*(turn.result() for turn in turns))

    assert [report.output for report in reports] == ["done"] * 9
    assert model.moments[-1] - model.moments[0] > 2, (
        "nine at two a second, of which some may come at once"
    )
    assert model.most_at_once <= 2


@pytest.mark.slow
async def test_worker_that_stops_leaves_the_calls_to_another(perdure_server: str) -> None:
    """A model call that has not been started waits in its queue."""
    model = ScriptedModel(calls(call("look")), "done")
    limited = app(providers={"slow": model}, queues={"slow": ModelQueue(per_second=5)})
    async with queue(perdure_server) as work:
        async with work.worker(limited):
            pass
        turn = await work.client.start("asker", "go")
        async with work.worker(limited):
            report = await turn.result()

    assert (report.output, model.call_count) == ("done", 2)


@pytest.mark.parametrize(
    "fields",
    [{"per_second": 0}, {"per_second": float("inf")}, {"per_second": float("nan")}, {"at_once": 0}],
)
def test_queue_that_cannot_work_is_refused(fields: dict[str, Any]) -> None:
    """When it is constructed."""
    with pytest.raises(errors.ConfigurationError):
        ModelQueue(**fields)


async def test_queue_for_a_provider_that_is_not_there_is_refused(runtime: Runtime) -> None:
    """When the worker is built, because its calls would wait forever."""
    with pytest.raises(errors.ConfigurationError, match=r"'sloe'.*slow"):
        async with runtime(app(providers={"slow": ScriptedModel()}, queues={"sloe": ModelQueue()})):
            """Never reached."""


@pytest.mark.slow
async def test_priority_of_a_turn_is_that_of_its_delegates(runtime: Runtime) -> None:
    """Temporal has the priority of the turn and passes it down; there is none by default."""
    parent, child = (
        Agent(name="asker", model="slow:m", delegates=["helper"]),
        Agent(name="helper", model="quick:m"),
    )
    asked = calls(call("delegate_to_agent", agent="helper", task="help"))
    providers = {
        "slow": ScriptedModel(asked, "done", asked, "done"),
        "quick": ScriptedModel("helped", "helped"),
    }
    async with runtime(AgentWorker([parent, child], providers=providers)) as client:
        turns = []
        for priority in (1, None):
            turns.append(await client.start("asker", "go", priority=priority))
            await turns[-1].result()
        ids = [turn_id for turn in turns for turn_id in (turn.id, f"{turn.id}/helper-1")]
        found = [
            (await client.temporal.get_workflow_handle(one).describe()).raw_description
            for one in ids
        ]

    assert [one.workflow_execution_info.priority.priority_key for one in found] == [1, 1, 0, 0]


@pytest.mark.parametrize("priority", [0, -1, 6])
async def test_priority_that_there_is_not_is_refused(runtime: Runtime, priority: int) -> None:
    """Before anything is started."""
    async with runtime(app(providers={"slow": ScriptedModel()})) as client:
        with pytest.raises(errors.InvalidRequestError, match="from 1, the first, to 5"):
            await client.start("asker", "go", priority=priority)
