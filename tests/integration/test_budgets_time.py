"""The time budget of a turn: calls in flight at the deadline are stopped, and none starts
after it.
"""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from perdure import Budget, ModelRetryPolicy, Outcome, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.values.answers import ModelAnswer
from perdure.values.messages import ToolMessage

from ..conftest import Runtime, eventually
from .spending import SHORT, SOON_S, app, at_most, ended, look, queue, time_left

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


@pytest.mark.accepts("B4")
async def test_tool_slower_than_the_time_left_is_stopped(runtime: Runtime) -> None:
    """The turn ends at its deadline, not when the tool ends."""
    stopped = threading.Event()

    @tool
    async def slow() -> str:
        """Be slow."""
        try:
            await asyncio.sleep(LONG_S)
        finally:
            stopped.set()
        return "late"

    async with runtime(app(tools=[slow]), model=ScriptedModel(calls(call("slow")))) as client:
        error = await ended(await client.start("spender", "go", budget=Budget(time=SHORT)))
        await eventually(stopped.is_set, "the tool is stopped")

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert error.context == {"dimension": "time", "limit": str(SHORT)}
    assert error.report is not None
    assert (error.report.outcome, error.report.model_calls) == (Outcome.BUDGET_EXHAUSTED, 1)
    assert SHORT <= error.report.duration < PROMPTLY


@pytest.mark.accepts("B4")
async def test_tool_that_cannot_be_stopped_is_named_and_the_turn_ends_anyway(
    runtime: Runtime,
) -> None:
    """It hangs in a call that cannot be interrupted."""
    let_go = threading.Event()

    @tool
    def hang() -> str:
        """Hang."""
        let_go.wait(LONG_S)
        return "late"

    async with runtime(
        app(tools=[look, hang]),
        model=ScriptedModel(calls(call("look"), call("hang"), call("look", number=2))),
    ) as client:
        try:
            error = await ended(
                await client.start("spender", "go", budget=Budget(time=SHORT, tool_calls=9))
            )
        finally:
            let_go.set()

    assert isinstance(error, errors.TurnBudgetExceededError)
    report = error.report
    assert report is not None
    assert (report.unstopped, report.spent.tool_calls) == (("step-1.call-2",), 2)
    assert report.duration < PROMPTLY
    assert isinstance(report.messages[-1], ToolMessage)
    assert [result.content for result in report.messages[-1].results] == ["seen 1"]


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


@pytest.mark.accepts("B8")
async def test_model_call_in_flight_at_the_deadline_is_charged(runtime: Runtime) -> None:
    """It is cancelled, but may be billed."""
    model = ScriptedModel(says("late", delay=timedelta(seconds=LONG_S)))
    async with runtime(app(), model=model) as client:
        error = await ended(await client.start("spender", "go", budget=Budget(usd="5", time=SHORT)))

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert error.report is not None
    assert error.report.duration < PROMPTLY
    assert (error.report.model_calls, error.report.spent.model_calls) == (1, 1)
    assert at_most(model.requests[0]) <= error.report.spent.usd <= 5


@pytest.mark.accepts("B8")
async def test_model_call_that_cannot_be_stopped_is_named_and_charged(runtime: Runtime) -> None:
    """A call that is still open when a turn ends costs its reservation."""
    model = Deaf()
    async with runtime(app(), model=model) as client:
        try:
            error = await ended(
                await client.start("spender", "go", budget=Budget(usd="5", time=SHORT))
            )
        finally:
            model.hung_up.set()

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert error.report is not None
    assert error.report.unstopped == ("step-1",)
    assert at_most(model.requests[0]) <= error.report.spent.usd <= 5


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
