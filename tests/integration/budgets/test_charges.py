"""The charge of a model call that failed, or whose bill cannot be true."""

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any, NoReturn

import pytest

from perdure import Budget, Outcome, RequestOptions, ToolContext, ToolMessage, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.errors import PerdureError
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.testing.scripted import Reply
from perdure.values.reports import Usage

from ...conftest import Runtime, eventually
from ...support.spending import (
    SOON_S,
    TOKEN,
    Held,
    Improvised,
    app,
    at_most,
    ended,
    money_left,
    queue,
    report_of,
    spender,
    usage,
)

AT_ONCE = {"retry_after_s": 0.01}
SHORT = RequestOptions(max_output_tokens=1_000)
"""So that a reservation does not take all there is."""


def over(error: type[PerdureError], **context: Any) -> PerdureError:
    """An error after which the call is repeated at once."""
    return error("no answer", context={**AT_ONCE, **context})


CHARGED = {
    "too slow": over(errors.LLMTimeoutError),
    "cut off": over(errors.LLMUnavailableError, status=200, charged=True),
}
"""The provider may have billed these; the amount is unknown."""

FREE = {
    "busy": over(errors.LLMRateLimitError, status=429),
    "down": over(errors.LLMUnavailableError, status=503),
    "its own timeout": over(errors.LLMTimeoutError, status=504),
}
"""For these the provider stated that there is no answer."""

TOLD: dict[str, PerdureError | Reply] = {
    "half an answer": over(
        errors.LLMUnavailableError,
        status=200,
        charged=True,
        usage={"input_tokens": 690, "output_tokens": 10},
        cost="0.7",
    ),
    "nothing": says("", usage=usage(700)),
}
"""For these it reported the usage."""


@pytest.mark.accepts("B8")
@pytest.mark.slow
async def test_attempt_without_an_answer_is_charged_by_what_is_known_of_it(
    runtime: Runtime,
) -> None:
    """The charge is its usage if that is known, only the call after an error status, and otherwise
    the whole reservation; the next attempt has its own reservation.
    """
    first = {
        task: fails(reply) if isinstance(reply, PerdureError) else reply
        for task, reply in {**CHARGED, **FREE, **TOLD}.items()
    }
    models = {
        task: ScriptedModel(reply, says("done", usage=usage(200))) for task, reply in first.items()
    }
    async with runtime(app(options=SHORT), model=ByTask(models)) as client:
        turns = {
            task: await client.start("spender", task, budget=Budget(usd="5")) for task in models
        }
        reports = {task: await report_of(turn) for task, turn in turns.items()}

    charged = {
        task: money_left(model.requests[0]) - money_left(model.requests[1])
        for task, model in models.items()
    }
    assert {task: charged[task] for task in FREE} == dict.fromkeys(FREE, Decimal(0))
    assert {task: charged[task] for task in TOLD} == dict.fromkeys(TOLD, Decimal("0.7"))
    for task in CHARGED:
        assert at_most(models[task].requests[0]) <= charged[task] <= 5
    assert all(
        at_most(model.requests[1]) <= money_left(model.requests[1]) for model in models.values()
    )
    assert {task: report.cost for task, report in reports.items()} == {
        task: spent + Decimal("0.2") for task, spent in charged.items()
    }
    assert {
        (report.output, report.model_calls, report.spent.model_calls) for report in reports.values()
    } == {("done", 2, 2)}


@pytest.mark.accepts("B8")
async def test_attempt_that_leaves_nothing_for_another_is_the_last(runtime: Runtime) -> None:
    """The first one timed out, and may have cost the whole budget."""
    model = ScriptedModel(fails(CHARGED["too slow"]), says("never"))
    async with runtime(app(), model=model) as client:
        error = await ended(await client.start("spender", "go", budget=Budget(usd="2.5")))

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert error.report is not None
    assert at_most(model.requests[0]) <= (error.report.cost or 0) <= Decimal("2.5")
    assert (error.report.model_calls, model.call_count) == (1, 1)


def breaks(_: ModelRequest) -> NoReturn:
    raise KeyError("a bug in a provider")


@pytest.mark.accepts("B8")
async def test_provider_that_breaks_is_charged_for(runtime: Runtime) -> None:
    """It may have sent the request before it failed."""
    model = Improvised(breaks)
    async with runtime(app(), model=model) as client:
        error = await ended(await client.start("spender", "go", budget=Budget(usd="5")))

    assert type(error) is errors.LLMError
    assert "KeyError" in error.message
    assert error.report is not None
    assert 1 < (error.report.cost or 0) <= 5


@pytest.mark.accepts("B8")
async def test_call_that_is_cancelled_is_charged(runtime: Runtime) -> None:
    """It was sent, and its answer will be billed although it is not used."""
    model = ScriptedModel(says("late", delay=timedelta(seconds=30)))
    async with runtime(app(), model=model) as client:
        turn = await client.start("spender", "go", budget=Budget(usd="5"))
        await eventually(lambda: model.call_count == 1, "the model is asked")
        await turn.cancel()
        report = await report_of(turn)

    assert (report.outcome, report.spent.model_calls) == (Outcome.CANCELLED, 1)
    assert at_most(model.requests[0]) <= report.spent.usd <= 5


@pytest.mark.slow
@pytest.mark.accepts("B8")
async def test_every_attempt_that_is_lost_with_its_worker_is_charged(perdure_server: str) -> None:
    """Two workers are stopped during the model call; nothing is left for a third attempt, so it is
    not made.
    """
    models = [Held("lost"), Held("lost"), ScriptedModel("never")]
    async with queue(perdure_server) as work:
        turn = await work.client.start("spender", "go", budget=Budget(usd="6"))
        for model in models[:2]:
            async with work.worker(app(options=SHORT), model):
                await eventually(lambda model=model: model.call_count == 1, "the model is asked")  # type: ignore[misc]
        async with work.worker(app(options=SHORT), models[2]):
            error = await ended(turn)

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert error.report is not None
    first, second = models[0].requests[0], models[1].requests[0]
    assert at_most(first) <= money_left(first) - money_left(second)
    assert at_most(second) <= error.report.spent.usd - (money_left(first) - money_left(second))
    assert (error.report.spent.usd <= 6, error.report.model_calls, models[2].call_count) == (
        True,
        2,
        0,
    )


@pytest.mark.slow
@pytest.mark.accepts("B11")
async def test_tool_call_that_is_repeated_counts_again(perdure_server: str) -> None:
    """The first attempt is lost with its worker, so the limit of two leaves no second call."""
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    attempts: list[int] = []

    @tool(idempotent=True)
    async def fetch(ctx: ToolContext[None]) -> str:
        """Take long at first."""
        attempts.append(ctx.attempt)
        loop.call_soon_threadsafe(began.set)
        await asyncio.sleep(60 if ctx.attempt == 1 else 0)
        return "fetched"

    model = ScriptedModel(calls(call("fetch"), call("fetch"), usage=usage(100)))
    async with queue(perdure_server) as work:
        turn = await work.client.start("spender", "go", budget=Budget(tool_calls=2))
        async with work.worker(app(tools=[fetch]), model):
            await asyncio.wait_for(began.wait(), SOON_S)
        async with work.worker(app(tools=[fetch]), model):
            report = await report_of(turn)

    assert (report.outcome, attempts, report.spent.tool_calls) == (
        Outcome.BUDGET_EXHAUSTED,
        [1, 2],
        2,
    )
    assert [
        message.results[0].content
        for message in report.messages
        if isinstance(message, ToolMessage)
    ] == ["fetched"]


# --- usage that cannot be true


UNBELIEVABLE = {
    "missing": Usage(),
    "no input": Usage(output_tokens=10),
    "no output": Usage(input_tokens=10),
    "below zero": Usage(input_tokens=-300, output_tokens=-10),
    "half below zero": Usage(input_tokens=300, output_tokens=-10),
}


@pytest.mark.slow
@pytest.mark.accepts("B8")
async def test_usage_that_cannot_be_true_never_counts_as_nothing(runtime: Runtime) -> None:
    """The step costs its whole reservation, and the next request has the lower budget."""
    models = {
        task: ScriptedModel(
            calls(call("look"), text="hm", usage=used), says("done", usage=usage(100))
        )
        for task, used in UNBELIEVABLE.items()
    }
    async with runtime(app(options=SHORT), model=ByTask(models)) as client:
        turns = [await client.start("spender", task, budget=Budget(usd="9")) for task in models]
        reports = [await report_of(turn) for turn in turns]

    for report, model in zip(reports, models.values(), strict=True):
        charged = report.steps[0].cost
        assert charged is not None
        assert at_most(model.requests[0]) <= charged <= 3
        assert money_left(model.requests[1]) == 9 - charged
        assert (report.output, report.cost, report.steps[0].overrun) == (
            "done",
            charged + Decimal("0.1"),
            False,
        )


@pytest.mark.slow
async def test_usage_that_is_absurd_costs_the_reservation_and_ends_the_turn(
    runtime: Runtime,
) -> None:
    """A thousand billion tokens: the cost of the next request cannot be bounded."""
    model = ScriptedModel(calls(call("look"), usage=Usage(input_tokens=10**12, output_tokens=10)))
    async with runtime(app(options=SHORT), model=model) as client:
        error = await ended(await client.start("spender", "go", budget=Budget(usd="9")))

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert error.report is not None
    assert at_most(model.requests[0]) <= (error.report.cost or 0) <= 3
    assert model.call_count == 1


# --- a bill above its reservation


@pytest.mark.accepts("B15")
@pytest.mark.parametrize("policy", ["fail", "finish", "pause"])
@pytest.mark.parametrize("budget", [Budget(usd="5"), Budget(tokens=5_000)], ids=["money", "tokens"])
@pytest.mark.table(1)
async def test_bill_above_its_reservation_is_booked_whole_and_ends_the_turn(
    runtime: Runtime, policy: str, budget: Budget
) -> None:
    """No tool, no last answer, no pause: the cost of further calls has no reliable bound."""
    ran: list[str] = []

    @tool
    def act() -> str:
        """Do something."""
        ran.append("act")
        return "done"

    model = ScriptedModel(calls(call("act"), usage=usage(100_000)))
    async with runtime(app(tools=[act], on_exhausted=policy), model=model) as client:
        error = await ended(await client.start("spender", "go", budget=budget))

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert "billed more" in error.message
    assert error.context["overrun"] is True
    assert error.report is not None
    assert (error.report.cost, error.report.spent.tokens) == (100_000 * TOKEN, 100_000)
    assert (model.call_count, ran) == (1, [])


@pytest.mark.accepts("B15")
async def test_step_says_that_its_bill_was_too_high(runtime: Runtime) -> None:
    """The answer of that call is still returned."""
    async with runtime(app(), model=ScriptedModel(says("done", usage=usage(100_000)))) as client:
        report = await client.run("spender", "go", budget=Budget(usd="5"))

    assert (report.outcome, report.output, report.cost) == (Outcome.COMPLETED, "done", Decimal(100))
    assert [step.overrun for step in report.steps] == [True]


@pytest.mark.slow
async def test_bill_without_a_budget_is_never_too_high(runtime: Runtime) -> None:
    """There is no limit that it could exceed."""
    model = ScriptedModel(calls(call("look"), usage=usage(100_000)), says("done", usage=usage(100)))
    async with runtime(app(spender()), model=model) as client:
        report = await client.run("spender", "go")

    assert (report.cost, [step.overrun for step in report.steps]) == (
        Decimal("100.1"),
        [False, False],
    )
