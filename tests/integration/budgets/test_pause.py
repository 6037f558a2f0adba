"""A turn with the policy `pause` waits for more budget, for days if necessary, and then
continues.
"""

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from perdure import Budget, ModelRetryPolicy, Outcome, RequestOptions, errors, tool
from perdure.clients import Turn
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.turn.facts import BudgetAdded, CallFailed, WaitBegan
from perdure.values.states import State

from ...conftest import Runtime, check_history
from ...support.listing import entry_of
from ...support.spending import (
    SHORT,
    Queue,
    app,
    at_most,
    ended,
    money_left,
    queue,
    report_of,
    skipping,
    sleep_through,
    spender,
    time_left,
    until,
    usage,
)
from ...support.waiting import memo_of

POLICY: dict[str, Any] = {
    "on_exhausted": "pause",
    "options": RequestOptions(max_output_tokens=100),
    "model_retry": ModelRetryPolicy(),
}
"""A call reserves little more than its input."""
PAUSES = app(**POLICY)


def two_steps() -> ScriptedModel:
    """A call of a tool for $0.90, and an answer for $0.10."""
    return ScriptedModel(calls(call("look"), usage=usage(900)), says("done", usage=usage(100)))


@pytest.mark.accepts("B10")
async def test_turn_without_money_waits_and_goes_on_when_some_is_added(runtime: Runtime) -> None:
    """Completed work is not repeated."""
    model = two_steps()
    async with runtime(PAUSES, model=model) as client:
        turn = await client.start("spender", "go", budget=Budget(usd="2.5"))
        wait = await until(turn, WaitBegan)
        left = await turn.add_budget(Budget(usd="2"))
        report = await turn.result()

    assert isinstance(wait.fact, WaitBegan)
    assert wait.fact.kind == "budget"
    assert "$1.6 are left of $2.5" in wait.fact.reason
    assert left.usd == Decimal("3.6")
    assert (report.outcome, report.output, report.cost, report.tool_calls) == (
        Outcome.COMPLETED,
        "done",
        Decimal("1"),
        1,
    )
    assert [money_left(request) for request in model.requests] == [Decimal("2.5"), Decimal("3.6")]


@pytest.mark.slow
@pytest.mark.accepts("B10")
async def test_wait_is_shown_while_it_lasts(runtime: Runtime) -> None:
    """In the list of turns and in Temporal's memo; afterwards both are cleared."""
    async with runtime(PAUSES, model=two_steps()) as client:
        turn = await client.start("spender", "go", budget=Budget(usd="2.5"))
        await until(turn, WaitBegan)
        await entry_of(client, turn.id, state=State.PAUSED)
        waits_for = await memo_of(client, turn)
        await turn.add_budget(Budget(usd="2"))
        await turn.result()
        await entry_of(client, turn.id, state=State.ENDED)
        memo = await memo_of(client, turn)

    assert waits_for["perdure_waits_for"]["kind"] == "budget"
    assert "perdure_waits_for" not in memo


@pytest.mark.slow
@pytest.mark.accepts("B10")
async def test_too_little_pauses_again(runtime: Runtime) -> None:
    """Until it is enough; two additions at once count twice."""
    async with runtime(PAUSES, model=two_steps()) as client:
        turn = await client.start("spender", "go", budget=Budget(usd="2.5"))
        await until(turn, WaitBegan)
        await turn.add_budget(Budget(usd="0.01"))
        await until(turn, WaitBegan, times=2)
        left = await asyncio.gather(
            turn.add_budget(Budget(usd="1")), turn.add_budget(Budget(usd="1"))
        )
        report = await turn.result()

    assert max(remaining.usd or 0 for remaining in left) == Decimal("3.61")
    assert (report.outcome, report.cost) == (Outcome.COMPLETED, Decimal("1"))


@pytest.mark.slow
async def test_budget_that_is_added_in_time_spares_the_wait(runtime: Runtime) -> None:
    """More money arrives while a tool runs, and the turn never waits."""
    turn: Turn
    loop = asyncio.get_running_loop()

    @tool
    async def ask_for_more() -> str:
        """Have somebody add to the budget."""
        asyncio.run_coroutine_threadsafe(turn.add_budget(Budget(usd="2")), loop).result()
        return "more"

    model = ScriptedModel(
        calls(call("ask_for_more"), usage=usage(900)), says("done", usage=usage(100))
    )
    async with runtime(app(on_exhausted="pause", tools=[ask_for_more]), model=model) as client:
        turn = await client.start("spender", "go", budget=Budget(usd="2.5"))
        report = await turn.result()
        facts = [type(event.fact) async for event in turn.events()]

    assert (report.output, money_left(model.requests[1])) == ("done", Decimal("3.6"))
    assert BudgetAdded in facts
    assert WaitBegan not in facts


@pytest.mark.table(1)
@pytest.mark.accepts("B10", "B11")
@pytest.mark.parametrize(
    ("budget", "more"),
    [
        (Budget(tokens=2_500), Budget(tokens=5_000)),
        (Budget(model_calls=1), Budget(model_calls=1)),
        (Budget(tool_calls=1), Budget(tool_calls=2)),
        (Budget(usd="2.5", tokens=2_500, time=timedelta(hours=1)), Budget(usd="2", tokens=2_000)),
    ],
    ids=["tokens", "model calls", "tool calls", "several"],
)
async def test_every_limit_can_be_waited_for(
    runtime: Runtime, budget: Budget, more: Budget
) -> None:
    """Even in the middle of several tool calls: the remaining calls are then made, each once."""
    model = ScriptedModel(
        calls(*[call("look", number=number) for number in (1, 2, 3)], usage=usage(900)),
        says("done", usage=usage(100)),
    )
    async with runtime(PAUSES, model=model) as client:
        turn = await client.start("spender", "go", budget=budget)
        await until(turn, WaitBegan)
        await turn.add_budget(more)
        report = await report_of(turn)

    assert (report.outcome, report.spent.model_calls, report.spent.tool_calls) == (
        Outcome.COMPLETED,
        2,
        3,
    )
    assert [result.content for result in report.steps[0].results] == ["seen 1", "seen 2", "seen 3"]


@pytest.mark.slow
@pytest.mark.accepts("B10")
async def test_turn_that_waits_needs_no_worker(perdure_server: str) -> None:
    """Its worker is stopped; the budget is increased without one, and another worker continues."""
    model = two_steps()
    async with queue(perdure_server) as work:
        async with work.worker(PAUSES, model):
            turn = await work.client.start("spender", "go", budget=Budget(usd="2.5"))
            await until(turn, WaitBegan)
        adding = asyncio.create_task(turn.add_budget(Budget(usd="2")))
        await asyncio.sleep(0.2)
        async with work.worker(PAUSES, model):
            left = await adding
            report = await report_of(turn)

    assert left.usd == Decimal("3.6")
    assert (report.output, report.cost, model.call_count) == ("done", Decimal("1"), 2)


@pytest.mark.slow
async def test_turn_that_waits_can_be_cancelled(runtime: Runtime) -> None:
    """Its cost is what it has spent, and it no longer waits."""
    async with runtime(PAUSES, model=two_steps()) as client:
        turn = await client.start("spender", "go", budget=Budget(usd="2.5"))
        await until(turn, WaitBegan)
        await turn.cancel("not worth it")
        error = await ended(turn)
        memo = await memo_of(client, turn)

    assert isinstance(error, errors.TurnCancelledError)
    assert error.report is not None
    assert (error.report.outcome, error.report.cost, error.report.tool_calls) == (
        Outcome.CANCELLED,
        Decimal("0.9"),
        1,
    )
    assert "perdure_waits_for" not in memo


# --- time


@pytest.mark.accepts("B8")
@pytest.mark.slow
async def test_turns_whose_time_is_up_wait_for_more_of_it(runtime: Runtime) -> None:
    """A running tool was stopped, and the model is told so. A model call that was stopped is
    charged, and made again after the wait, as a second attempt. Time that is added before moves the
    deadline of a tool that is already running.
    """
    in_time: Turn
    loop = asyncio.get_running_loop()

    @tool
    async def slow() -> str:
        """Be slow."""
        await asyncio.sleep(60)
        return "late"

    @tool
    async def work() -> str:
        """Ask for time, and use it."""
        more = Budget(time=timedelta(minutes=5))
        asyncio.run_coroutine_threadsafe(in_time.add_budget(more), loop)
        await asyncio.sleep(SHORT.total_seconds() + 0.5)
        return "worked"

    models = {
        "slow": ScriptedModel(calls(call("slow")), says("done")),
        "late": ScriptedModel(
            says("late", delay=timedelta(seconds=60)), says("done", usage=usage(100))
        ),
        "in_time": ScriptedModel(calls(call("work")), says("done")),
    }
    agents = [spender(name=name, tools=[slow, work], **POLICY) for name in models]
    async with runtime(app(*agents), model=models) as client:
        budget = Budget(usd="50", time=SHORT)
        in_time = await client.start("in_time", "go", budget=budget)
        turns = [await client.start(name, "go", budget=budget) for name in ("slow", "late")]
        for turn in turns:
            await until(turn, WaitBegan)
            await turn.add_budget(Budget(time=timedelta(minutes=5)))
        of_slow, of_late, of_in_time = [await report_of(turn) for turn in (*turns, in_time)]

    assert (of_slow.outcome, of_slow.output, of_slow.unstopped) == (Outcome.COMPLETED, "done", ())
    [result] = of_slow.steps[0].results
    assert result.is_error
    assert "its time was up" in result.content
    assert time_left(models["slow"].requests[1]) > timedelta(minutes=4)
    charged = 50 - money_left(models["late"].requests[1])
    assert at_most(models["late"].requests[0]) <= charged < 4
    expected = ("done", 2, charged + Decimal("0.1"))
    assert (of_late.output, of_late.model_calls, of_late.cost) == expected
    assert [result.content for result in of_in_time.steps[0].results] == ["worked"]


@pytest.mark.slow
@pytest.mark.accepts("B10", "O12")
async def test_days_of_waiting_do_not_count() -> None:
    """After three days of waiting for money and five for time, the turn has its earlier time plus
    what was added; the list shows the wait even without search attributes.
    """
    slow_down = errors.LLMRateLimitError("slow down", context={"status": 429, "retry_after_s": 300})
    model = ScriptedModel(
        calls(call("look"), usage=usage(900)), fails(slow_down), says("done", usage=usage(100))
    )
    async with skipping() as environment:
        work = Queue(environment.client)
        async with work.worker(PAUSES, model):
            turn = await work.client.start(
                "spender", "go", budget=Budget(usd="2.5", time=timedelta(minutes=2))
            )
            await until(turn, WaitBegan)
            await sleep_through(environment, turn, timedelta(days=3))
            await entry_of(work.client, turn.id, in_state=State.PAUSED)
            after_money = await turn.add_budget(Budget(usd="3"))
            await until(turn, CallFailed)
            await sleep_through(environment, turn, timedelta(minutes=3))
            await until(turn, WaitBegan, times=2)
            await sleep_through(environment, turn, timedelta(days=5))
            after_time = await turn.add_budget(Budget(time=timedelta(hours=3)))
            report = await report_of(turn)
        await check_history(environment.client, turn.id, await turn.first_run())

    minute = timedelta(minutes=1)
    assert after_money.time is not None
    assert after_time.time is not None
    assert minute < after_money.time <= 2 * minute
    assert timedelta(hours=2) < after_time.time <= timedelta(hours=3) + 2 * minute
    assert [minute < time_left(request) <= 2 * minute for request in model.requests] == [
        True,
        True,
        False,
    ]
    assert time_left(model.requests[2]) <= after_time.time
    assert (report.outcome, report.cost) == (Outcome.COMPLETED, Decimal("1"))
    assert timedelta(days=8) < report.duration < timedelta(days=9)
