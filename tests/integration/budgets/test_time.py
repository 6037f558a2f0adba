"""The time budget of a turn: calls in flight at the deadline are stopped, and none starts
after it.
"""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from perdure import AgentReport, Budget, ModelRetryPolicy, Outcome, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.values.answers import ModelAnswer
from perdure.values.messages import ToolMessage

from ...conftest import Runtime, eventually
from ...support.spending import SHORT, SOON_S, app, at_most, ended, look, queue, spender, time_left

LONG_S = 90.0
PROMPTLY = timedelta(seconds=40)
"""Far from both: a turn of the short time ends before, also on a busy machine, and nothing that
takes long has ended by then.
"""


@tool
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


@pytest.mark.accepts("B2")
async def test_next_request_carries_the_time_that_is_left(runtime: Runtime) -> None:
    """The duration of the tool is subtracted, too."""
    model = ScriptedModel(calls(call("wait", seconds=1)), says("done"))
    async with runtime(app(tools=[wait]), model=model) as client:
        await client.run("spender", "go", budget=Budget(time=timedelta(minutes=5)))

    first, second = map(time_left, model.requests)
    assert timedelta(minutes=4) < first <= timedelta(minutes=5)
    assert timedelta(seconds=1) <= first - second < PROMPTLY


class Deaf(ScriptedModel):
    """A model whose client ignores a cancel, like a library with its own threads."""

    def __init__(self) -> None:
        super().__init__("late")
        self.hung_up = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        answer = await super().complete(request)
        while not self.hung_up.is_set():
            try:
                await self.hung_up.wait()
            except asyncio.CancelledError:
                continue
        return answer


@pytest.mark.slow
@pytest.mark.accepts("B4")
async def test_tools_slower_than_the_time_left_are_stopped_or_named(runtime: Runtime) -> None:
    """Their turns end at the deadline, not when the tools end; one of these hangs in a call that
    cannot be interrupted.
    """
    stopped, let_go = threading.Event(), threading.Event()

    @tool
    async def slow() -> str:
        """Be slow."""
        try:
            await asyncio.sleep(LONG_S)
        finally:
            stopped.set()
        return "late"

    @tool
    def hang() -> str:
        """Hang."""
        let_go.wait(LONG_S)
        return "late"

    agents = spender(name="slow", tools=[slow]), spender(name="hanging", tools=[look, hang])
    looks = calls(call("look"), call("hang"), call("look", number=2))
    models = {"slow": ScriptedModel(calls(call("slow"))), "hanging": ScriptedModel(looks)}
    async with runtime(app(*agents), model=models) as client:
        try:
            ends = await at_deadline(client, *models, budget=Budget(time=SHORT, tool_calls=9))
        finally:
            let_go.set()
        await eventually(stopped.is_set, "the tool is stopped")

    of_slow, of_hanging = ends
    assert (of_slow.outcome, of_slow.model_calls) == (Outcome.BUDGET_EXHAUSTED, 1)
    assert SHORT <= of_slow.duration < PROMPTLY
    assert (of_hanging.unstopped, of_hanging.spent.tool_calls) == (("step-1.call-2",), 2)
    assert of_hanging.duration < PROMPTLY
    assert isinstance(of_hanging.messages[-1], ToolMessage)
    assert [result.content for result in of_hanging.messages[-1].results] == ["seen 1"]


@pytest.mark.accepts("B8")
@pytest.mark.slow
async def test_model_calls_in_flight_at_the_deadline_are_charged(runtime: Runtime) -> None:
    """One is cancelled, but may be billed. One cannot be stopped: it is named, and a call that is
    still open when a turn ends costs its reservation.
    """
    late, deaf = ScriptedModel(says("late", delay=timedelta(seconds=LONG_S))), Deaf()
    agents = spender(name="late"), spender(name="deaf")
    async with runtime(app(*agents), model={"late": late, "deaf": deaf}) as client:
        try:
            ends = await at_deadline(client, "late", "deaf", budget=Budget(usd="5", time=SHORT))
        finally:
            deaf.hung_up.set()

    of_late, of_deaf = ends
    assert of_late.duration < PROMPTLY
    assert (of_late.model_calls, of_late.spent.model_calls) == (1, 1)
    assert (of_late.unstopped, of_deaf.unstopped) == ((), ("step-1",))
    for report, model in ((of_late, late), (of_deaf, deaf)):
        assert at_most(model.requests[0]) <= report.spent.usd <= 5


async def at_deadline(client: AgentClient, *agents: str, budget: Budget) -> list[AgentReport]:
    """The reports of turns that run at the same time until theirs is up."""
    turns = [await client.start(agent, "go", budget=budget) for agent in agents]
    reports = []
    for error in await asyncio.gather(*map(ended, turns)):
        assert isinstance(error, errors.TurnBudgetExceededError)
        assert error.context == {"dimension": "time", "limit": str(SHORT)}
        assert error.report is not None
        reports.append(error.report)
    return reports


@pytest.mark.accepts("B4")
async def test_pause_that_is_longer_than_the_time_left_is_not_begun(runtime: Runtime) -> None:
    """A provider asks for a longer pause than the time left: the turn ends at once, with the
    reason.
    """
    model = ScriptedModel(
        fails(
            errors.LLMRateLimitError("slow down", context={"status": 429, "retry_after_s": LONG_S})
        )
    )
    async with runtime(app(model_retry=ModelRetryPolicy()), model=model) as client:
        error = await ended(await client.start("spender", "go", budget=Budget(time=SHORT)))

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert "would come after the time of the turn is up" in error.message
    assert isinstance(error.__cause__, errors.LLMRateLimitError)
    assert model.call_count == 1


# --- without a worker


async def test_time_in_the_queue_counts(perdure_server: str) -> None:
    """The turn waited for a worker until its time was over: the model is not called."""
    model = ScriptedModel("never")
    async with queue(perdure_server) as work:
        turn = await work.client.start("spender", "go", budget=Budget(time=timedelta(seconds=0.5)))
        await asyncio.sleep(1)
        async with work.worker(app(), model):
            error = await ended(turn)

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert model.call_count == 0


@pytest.mark.accepts("B16")
@pytest.mark.slow
async def test_worker_that_was_away_while_the_time_ran_out_calls_nothing(
    perdure_server: str,
) -> None:
    """It was stopped in a repeatable tool: the turn is over budget when another worker starts, with
    its earlier work.
    """
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    attempts: list[int] = []

    @tool(idempotent=True)
    async def fetch() -> str:
        """Take long."""
        attempts.append(1)
        loop.call_soon_threadsafe(began.set)
        await asyncio.sleep(LONG_S)
        return "fetched"

    model = ScriptedModel(calls(call("look"), call("fetch")))
    worker: Any = app(tools=[look, fetch])
    async with queue(perdure_server) as work:
        async with work.worker(worker, model):
            turn = await work.client.start("spender", "go", budget=Budget(time=SHORT))
            await asyncio.wait_for(began.wait(), SOON_S)
        await asyncio.sleep(SHORT.total_seconds())
        async with work.worker(worker, model):
            error = await ended(turn)

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert error.report is not None
    assert [type(message).__name__ for message in error.report.messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
    ]
    assert (model.call_count, len(attempts)) == (1, 1)
