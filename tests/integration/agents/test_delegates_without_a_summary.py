"""Delegates without a summary: the parent reads their spending from their history."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from perdure import AgentReport, Budget, Outcome
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient, Turn
from perdure.testing import ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.turn.facts import ChildRead, ChildScheduled, Scheduled
from perdure.turn.keys import ModelKey
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.delegating import PRICED, delegate, editor, researcher, spawn, used, writer
from ...support.ends import listening
from ...support.lost_delegates import found
from ...support.pausing import operator, pausable
from ...support.spending import look, queue, report_of, until

__all__ = ["pausable"]

LOOKS = calls(call("look"), usage=used(300))
BUDGETS = [None, Budget(time=timedelta(minutes=5)), Budget(usd="100"), Budget(model_calls=30)]


class Stuck(ScriptedModel):
    """A model that follows its script, and then never answers."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if self.call_count < len(self._replies):
            return await super().complete(request)
        self.requests.append(request)
        await asyncio.Event().wait()
        raise AssertionError


class ByName:
    """The provider of several models; each name has its script."""

    def __init__(self, models: dict[str, ScriptedModel]) -> None:
        self._models = models

    @property
    def counted(self) -> int:
        """The number of its requests."""
        return counted(list(self._models.values()))

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return await self._models[request.model].complete(request)

    async def close(self) -> None:
        """Nothing to close."""


def editing(*first: Reply) -> ScriptedModel:
    return ScriptedModel(*first, says("done", usage=used(300)))


async def terminate(client: AgentClient, turn_id: str, *, calls: int) -> Turn:
    """Terminate a turn during its model call with this number."""
    turn = await found(client, turn_id)
    async for event in turn.events():
        calls -= isinstance(event.fact, Scheduled) and isinstance(event.fact.key, ModelKey)
        if not calls:
            break
    await client.temporal.get_workflow_handle(turn_id).terminate()
    return turn


async def memo_of(client: AgentClient, turn: Turn) -> dict[str, str]:
    description = await client.temporal.get_workflow_handle(turn.id).describe()
    memo: dict[str, str] = await description.memo_value("perdure")
    return memo


def counted(models: Sequence[ScriptedModel]) -> int:
    """The number of requests to the provider."""
    return sum(model.call_count for model in models)


def own(report: AgentReport) -> tuple[object, ...]:
    """Money and calls in a report."""
    return report.cost, report.spent, report.children


@pytest.mark.accepts("Y22")
@pytest.mark.parametrize("budget", BUDGETS, ids=["none", "time", "usd", "calls"])
@pytest.mark.slow
async def test_parent_is_charged_what_a_terminated_delegate_spent(
    runtime: Runtime, budget: Budget | None
) -> None:
    """Report, memo, log and `children` include its calls, the one in flight at its upper bound,
    whatever limits the tree has.
    """
    models = {
        "editor": editing(delegate("researcher", "Find.", used(300))),
        "researcher": Stuck(LOOKS, LOOKS),
    }
    agents = [editor(delegates=["researcher"]), researcher(tools=[look])]
    async with (
        listening() as records,
        runtime(AgentWorker(agents, prices=PRICED), model=models) as client,
    ):
        turn = await client.start("editor", "go", budget=budget)
        await until(turn, ChildScheduled)
        await terminate(client, f"{turn.id}/researcher-1", calls=3)
        report = await report_of(turn)
        memo = await memo_of(client, turn)
        again = await report_of(client.turn(turn.id))
    [child] = report.children
    [told] = [
        record
        for record in records
        if record["task"] == turn.id and record["event"] == "turn_completed"
    ]
    assert (report.outcome, child.outcome, child.steps) == (
        Outcome.COMPLETED,
        Outcome.TERMINATED,
        2,
    )
    assert (child.spent.model_calls, child.spent.tool_calls) == (3, 2)
    assert report.spent.model_calls == counted(list(models.values())) == 5
    assert report.spent.tokens >= 600 + 600
    assert report.cost == report.spent.usd == told["cost_usd"] > child.spent.usd > 0
    assert child.cost == child.spent.usd
    assert memo["cost"] == f"${report.cost:f}"
    assert own(again) == own(report)


@pytest.mark.slow
@pytest.mark.accepts("Y22")
async def test_delegates_of_a_terminated_delegate_are_read_too(runtime: Runtime) -> None:
    """Those terminated with it, those that stop because of it, and those that had ended before are
    all in the cost.
    """
    models = {
        "editor": editing(delegate("writer", "Write.", used(300))),
        "writer": ScriptedModel(
            delegate("researcher", "First.", used(300)),
            spawn(("researcher", "Second."), ("checker", "Third."), usage=used(300)),
        ),
        "researcher": Stuck(says("found", usage=used(300)), LOOKS),
        "checker": Stuck(LOOKS),
    }
    checker = researcher(name="checker", model="scripted:checker", tools=[look])
    agents = [
        editor(delegates=["writer"]),
        writer(delegates=["researcher", "checker"]),
        researcher(tools=[look]),
        checker,
    ]
    async with runtime(AgentWorker(agents, prices=PRICED), model=models) as client:
        turn = await client.start("editor", "go", budget=Budget(time=timedelta(minutes=5)))
        above = f"{turn.id}/writer-1"
        stopped = await found(client, f"{above}/checker-3")
        await until(stopped, Scheduled, times=3)
        lost = await found(client, f"{above}/researcher-2")
        await until(lost, Scheduled, times=3)
        for one in (above, lost.id):
            await client.temporal.get_workflow_handle(one).terminate()
        report = await report_of(turn)
    [child] = report.children
    assert [one.spent.model_calls for one in child.children] == [1, 2, 2]
    assert child.spent.model_calls == 7
    assert report.spent.model_calls == counted(list(models.values())) == 9
    assert report.cost == report.spent.usd
    assert None not in [one.cost for one in child.children]


@pytest.mark.slow
@pytest.mark.accepts("Y22")
async def test_one_of_several_is_terminated_and_the_model_is_told_the_same(
    runtime: Runtime,
) -> None:
    """Its history is read for the cost: the model's result is that of a delegate about which
    nothing is known.
    """
    model = editing(spawn(("researcher", "Find."), ("writer", "Write."), usage=used(300)))
    models = {"editor": model, "researcher": Stuck(LOOKS), "writer": Stuck()}
    agents = [editor(on_child_error="cancel"), researcher(tools=[look]), writer()]
    async with runtime(AgentWorker(agents, prices=PRICED), model=models) as client:
        turn = await client.start("editor", "go")
        await until(turn, ChildScheduled, times=2)
        await until(await found(client, f"{turn.id}/writer-2"), Scheduled)
        await terminate(client, f"{turn.id}/researcher-1", calls=2)
        report = await report_of(turn)
        facts = [event.fact async for event in turn.events()]
    assert [child.outcome for child in report.children] == [Outcome.TERMINATED, Outcome.CANCELLED]
    assert report.spent.model_calls == counted(list(models.values()))
    [read] = [fact for fact in facts if isinstance(fact, ChildRead)]
    assert str(read.key) == "step-1.call-1.child-1.read"
    [result] = report.steps[0].results
    assert '"output":"","error":"it was terminated"' in result.content


@pytest.mark.slow
@pytest.mark.accepts("Y22")
async def test_delegate_that_outlives_the_grace_of_a_cancel_is_read(pausable: str) -> None:
    """It still runs when its parent has ended: its calls until then are in the parent's cost."""
    models = ByName(
        {
            "editor": editing(delegate("researcher", "Find.", used(300))),
            "researcher": Stuck(LOOKS, LOOKS),
        }
    )
    given = AgentWorker([editor(delegates=["researcher"]), researcher(tools=[look])], prices=PRICED)
    async with queue(pausable) as work, work.worker(given, models):
        turn = await work.client.start("editor", "go")
        child = await found(work.client, f"{turn.id}/researcher-1")
        await until(child, Scheduled, times=5)
        await operator(pausable, "pause", child.id)
        await turn.cancel("enough")
        report = await report_of(turn)
        await operator(pausable, "unpause", child.id)
        await report_of(child)
    [told] = report.children
    assert (report.outcome, told.outcome, told.spent.model_calls) == (Outcome.CANCELLED, None, 3)
    assert report.spent.model_calls == models.counted == 4
    assert report.cost == report.spent.usd > told.spent.usd > 0
