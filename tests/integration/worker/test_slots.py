"""Slots of a worker: model calls have their own, and all other activities share theirs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.worker import Worker, WorkerTuner

from perdure import Agent, AgentReport, UserMessage, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.testing import ScriptedModel, call, calls
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker, PerdurePlugin
from perdure.worker.settings import WorkerSettings

from ...conftest import eventually
from ...support.spending import Queue, ended, queue


class AtOnce:
    """Counts what happens at once."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0

    async def __aenter__(self) -> None:
        self.now += 1
        self.total += 1
        self.most = max(self.most, self.now)

    async def __aexit__(self, *raised: object) -> None:
        self.now -= 1


class Patient:
    """A model that waits for the task `wait`, and has a script for others."""

    def __init__(self, *replies: Any) -> None:
        self.waiting, self.script, self.may_answer = (
            AtOnce(),
            ScriptedModel(*replies),
            asyncio.Event(),
        )

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if UserMessage.of("wait") not in request.messages:
            return await self.script.complete(request)
        async with self.waiting:
            await self.may_answer.wait()
        return await ScriptedModel("done").complete(request)

    async def close(self) -> None:
        """Nothing to close."""


def settings(**slots: Any) -> WorkerSettings:
    return WorkerSettings(grace=timedelta(seconds=0.1), **slots)


def app(work: Queue, model: Patient, **fields: Any) -> AgentWorker:
    agent = Agent(name="patient", model="scripted:m", **fields)
    return AgentWorker(agent, task_queue=work.client.task_queue, providers={"scripted": model})


@pytest.mark.accepts("Y63")
@pytest.mark.parametrize("waiting", [10, pytest.param(50, marks=pytest.mark.slow)])
async def test_waiting_model_calls_leave_the_slots_to_tools(
    perdure_server: str, waiting: int
) -> None:
    """With two slots for activities, six calls of a tool run, and never more than two at once."""
    working, both = AtOnce(), asyncio.Event()

    @tool(read_only=True)
    async def work(number: int) -> str:
        """Work beside another call."""
        async with working:
            if working.now == 2:
                both.set()
            await both.wait()
            await asyncio.sleep(0.02)
        return f"worked on {number}"

    model = Patient(calls(*(call("work", number=number) for number in range(6))), "done")
    async with queue(perdure_server) as used:
        given = app(used, model, tools=[work], parallel_tools=True)
        async with given.running(used.client.temporal, settings=settings(max_activities=2)):
            turns = [await used.client.start("patient", "wait") for _ in range(waiting)]
            await eventually(lambda: model.waiting.now == waiting, "all model calls wait")
            end = await ended(await used.client.start("patient", "work"))
            model.may_answer.set()
            await asyncio.gather(*map(ended, turns))

    assert isinstance(end, AgentReport), end
    assert end.output == "done"
    assert (working.total, working.most) == (6, 2)
    assert model.waiting.most == waiting


@pytest.mark.table(1)
@pytest.mark.accepts("Y64")
@pytest.mark.parametrize(
    ("most", "options", "at_once"),
    [
        (None, {"max_concurrent_activities": 1}, 4),
        (2, {"max_concurrent_activities": 1}, 2),
        (None, {"tuner": WorkerTuner.create_fixed(activity_slots=3)}, 3),
    ],
    ids=["default", "limited", "tuner"],
)
async def test_limit_of_model_calls_is_kept(
    perdure_server: str, most: int | None, options: dict[str, Any], at_once: int
) -> None:
    """In a worker of one's own; a tuner of its own stays, and then the limit is the tuner's."""
    model = Patient()
    async with queue(perdure_server) as used:
        worker = Worker(
            used.client.temporal,
            task_queue=used.client.task_queue,
            plugins=[PerdurePlugin(app(used, model), max_model_calls=most)],
            graceful_shutdown_timeout=timedelta(seconds=0.1),
            **options,
        )
        async with worker:
            turns = [await used.client.start("patient", "wait") for _ in range(4)]
            await eventually(lambda: model.waiting.now == at_once, "the model calls wait")
            model.may_answer.set()
            await asyncio.gather(*map(ended, turns))

    assert (model.waiting.total, model.waiting.most) == (4, at_once)


async def test_worker_whose_pollers_wait_for_slots_stops_at_once(perdure_server: str) -> None:
    """Also in asyncio's debug mode, in which nothing may cancel a plain future from a thread."""
    loop, model = asyncio.get_running_loop(), Patient()
    loop.set_debug(True)
    try:
        async with queue(perdure_server) as used:
            async with app(used, model).running(
                used.client.temporal, settings=settings(max_activities=1)
            ):
                turn = await used.client.start("patient", "wait")
                await eventually(lambda: bool(model.waiting.now), "the model call waits")
                waiting = pollers()
                model.may_answer.set()
                await ended(turn)
            left = pollers()
    finally:
        loop.set_debug(False)

    assert waiting
    assert left == []


def pollers() -> list[asyncio.Task[Any]]:
    """The tasks that wait for a slot."""
    return [task for task in asyncio.all_tasks() if "reserve_slot" in repr(task.get_coro())]


@pytest.mark.parametrize("slots", [{"max_activities": 0}, {"max_model_calls": -1}])
async def test_worker_without_slots_is_refused(perdure_server: str, slots: dict[str, int]) -> None:
    """When it is built, because it would take no work."""
    async with queue(perdure_server) as used:
        with pytest.raises(errors.ConfigurationError, match=r"at least 1 slot"):
            app(used, Patient()).build(used.client.temporal, settings=settings(**slots))
