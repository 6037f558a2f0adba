"""Middleware and observers whose worker is lost during their call."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from perdure import Agent, InputGuardrail, Middleware, Outcome, errors, limits, tool
from perdure.agents.observers import Observer
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.reports import Step
from perdure.values.tasks import Task, TurnInfo
from perdure.worker import AgentWorker

from ...support.hooks import Noting, Watching
from ...support.spending import ended, queue, report_of


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


def app(**fields: Any) -> AgentWorker:
    """A worker with an agent that can look."""
    return AgentWorker(
        Agent(**{"name": "looker", "model": "scripted:looker", "tools": [look], **fields})
    )


@dataclass(frozen=True)
class Stuck(Middleware, Observer):
    """Never returns, as middleware or as an observer, while its worker lives."""

    called: asyncio.Event = field(default_factory=asyncio.Event)

    async def before(self, task: Task) -> None:
        self.called.set()
        await asyncio.sleep(60)

    async def check(self, task: Task) -> bool:
        await self.before(task)
        return True

    async def on_step(self, turn: TurnInfo, step: Step) -> None:
        self.called.set()
        await asyncio.sleep(60)


@pytest.mark.slow
async def test_middleware_whose_worker_is_lost_is_called_again(perdure_server: str) -> None:
    """The next worker calls its own, and the turn continues."""
    stuck, notes = Stuck(), list[str]()
    async with queue(perdure_server) as work:
        async with work.worker(app(middleware=[stuck]), ScriptedModel()):
            turn = await work.client.start("looker", "go")
            await asyncio.wait_for(stuck.called.wait(), 60)
        async with work.worker(app(middleware=[Noting("a", notes)]), ScriptedModel(says("done"))):
            report = await report_of(turn)

    assert (report.outcome, notes) == (Outcome.COMPLETED, ["a before go"])


@pytest.mark.slow
async def test_guardrail_whose_worker_is_lost_each_time_is_not_passed(perdure_server: str) -> None:
    """The turn fails, and no model is called: without the check nothing passes."""
    model = ScriptedModel(says("done"))
    async with queue(perdure_server) as work:
        turn = await work.client.start("looker", "go")
        for _ in range(limits.LOST_ATTEMPTS):
            stuck = Stuck()
            async with work.worker(app(middleware=[InputGuardrail(stuck.check)]), model):
                await asyncio.wait_for(stuck.called.wait(), 60)
        async with work.worker(app(middleware=[InputGuardrail(lambda _: True)]), model):
            error = await ended(turn)

    assert isinstance(error, errors.PerdureError)
    assert (
        error.message == f"the worker was lost {limits.LOST_ATTEMPTS} times while it ran"
        f" before-1.try-{limits.LOST_ATTEMPTS}"
    )
    assert model.call_count == 0


@pytest.mark.slow
async def test_observers_whose_worker_is_lost_are_told_again(perdure_server: str) -> None:
    """The next worker passes on the pending event, and then the rest."""
    stuck, watching = Stuck(), Watching()
    model = ScriptedModel(calls(call("look")), says("done"))
    async with queue(perdure_server) as work:
        async with work.worker(app(observers=[stuck]), model):
            turn = await work.client.start("looker", "go", id="told-again")
            await asyncio.wait_for(stuck.called.wait(), 60)
        async with work.worker(app(observers=[watching]), model):
            await report_of(turn)

    assert watching.notes == [
        "step 1: ['seen']",
        "step 2: []",
        "told-again completed after 2 steps",
    ]
