"""Schedules with a budget for all of their turns: what counts, and what happens at its end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from perdure import Agent, Budget, Outcome, errors
from perdure.activities.settle_schedule import settle_schedule
from perdure.testing import Runtime as PlainRuntime
from perdure.testing import ScriptedModel, fails, says
from perdure.turn.schedule_account import SettleScheduleCall
from perdure.values.budgets import Spending

from ...conftest import Runtime, eventually
from ...support import encrypting
from ...support.scheduling import DAILY, REPORTER, at, existing, new_id, status_when, turns_of
from ...support.spending import Held, app, ended, usage


@pytest.mark.slow
@pytest.mark.accepts("E110")
async def test_schedule_pauses_when_its_turns_have_spent_their_total(runtime: Runtime) -> None:
    """Turns that failed count. A turn that is started all the same ends at once, and the schedule
    pauses again, until the total is raised.
    """
    model = ScriptedModel(
        says("one", usage=usage(1_000)),
        fails(errors.LLMRefusedError("no")),
        says("three", usage=usage(3_000)),
        says("four", usage=usage(500)),
    )
    async with runtime(app(REPORTER), model=model) as client:
        daily = await client.create_schedule(
            new_id("total"), "reporter", "Go.", **DAILY, total=Budget(usd="4", model_calls=50)
        )
        for turn in await turns_of(client, daily, await daily.backfill(at(2), at(4))):
            await ended(turn)
        before = await daily.status()
        last = await existing(client, await daily.run_now())
        await last.result()
        paused = await daily.status()
        await daily.resume()
        refused = await ended(await existing(client, await daily.run_now()))
        again = await daily.status()
        await daily.change(total=Budget(usd="8"), task="Go on.")
        await daily.resume()
        report = await (await existing(client, await daily.run_now())).result()
        after = await daily.status()
        await daily.delete()

    assert (before.is_paused, before.spent) == (
        False,
        Spending(usd=Decimal(1), tokens=1_000, model_calls=2),
    )
    assert (paused.is_paused, paused.spent.usd) == (True, Decimal(4))
    assert paused.reason.startswith("the total budget of the schedule is spent: $4 of $4; raise it")
    assert isinstance(refused, errors.TurnBudgetExceededError)
    assert "is spent: $4 of $4" in refused.message
    assert refused.report is not None
    assert refused.report.outcome is Outcome.BUDGET_EXHAUSTED
    assert (again.is_paused, again.spent) == (True, paused.spent)
    assert report.output == "four"
    assert (after.is_paused, after.spent.usd, after.task) == (False, Decimal("4.5"), "Go on.")
    assert after.total == Budget(usd="8")


@pytest.mark.accepts("E111")
async def test_turn_gets_what_is_left_and_no_more_than_its_own_budget(
    perdure_runtime: PlainRuntime,
) -> None:
    """Its agent's budget holds too. If the rest does not suffice, the schedule pauses as well; if
    the turn's own budget did not, it goes on. The account is encrypted.
    """
    agent = Agent(name="reporter", model="scripted:reporter", budget=Budget(usd="2.5"))
    model = ScriptedModel(says("one", usage=usage(2_000)), says("two", usage=usage(100)))
    async with perdure_runtime(
        app(agent), model=model, data_converter=encrypting.converter
    ) as client:
        daily = await client.create_schedule(
            new_id("rest"), "reporter", "Go.", **DAILY, total=Budget(usd="3")
        )
        first = await existing(client, await daily.run_now())
        report, budget = await first.result(), (await first.status()).budget
        second = await existing(client, await daily.run_now())
        short = await ended(second)
        paused = await daily.status()
        await daily.change(total=Budget(usd="30"), budget=Budget(usd="0.01"))
        await daily.resume()
        third = await ended(await existing(client, await daily.run_now()))
        going_on = await daily.status()
        await daily.delete()

    assert (report.output, budget) == ("one", Budget(usd="2.5"))
    assert isinstance(short, errors.TurnBudgetExceededError)
    assert short.context["limit"] == "1"
    assert (paused.is_paused, paused.spent.usd) == (True, Decimal(2))
    assert "does not suffice for another turn" in paused.reason
    assert isinstance(third, errors.TurnBudgetExceededError)
    assert (going_on.is_paused, going_on.spent.usd) == (False, Decimal(2))


@pytest.mark.accepts("E112")
async def test_turns_that_are_cancelled_or_terminated_count(runtime: Runtime) -> None:
    """One that is terminated counts at the end of the next one, once."""
    model = Held(*[says(f"{number}", usage=usage(1_000)) for number in range(4)])
    async with runtime(app(REPORTER), model=model) as client:
        daily = await client.create_schedule(
            new_id("lost"), "reporter", "Go.", **DAILY, total=Budget(tokens=100_000)
        )
        cancelled = await existing(client, await daily.run_now())
        await eventually(lambda: len(model.requests) == 1, "the model is asked")
        await cancelled.cancel()
        assert isinstance(await ended(cancelled), errors.TurnCancelledError)
        one = (await daily.status()).spent.tokens
        killed = await existing(client, await daily.run_now())
        await eventually(lambda: len(model.requests) == 2, "the model is asked again")
        await client.temporal.get_workflow_handle(killed.id).terminate()
        two = (await daily.status()).spent.tokens
        model.let_go.set()
        await daily.pause("for a test")
        await status_when(daily, "running", ())
        await (await existing(client, await daily.run_now())).result()
        three = await daily.status()
        await (await existing(client, await daily.run_now())).result()
        four = (await daily.status()).spent.tokens
        await daily.delete()

    assert one > 1_000  # a call without an answer costs what was reserved for it
    assert two == one
    assert three.spent.tokens == 2 * one + 1_000
    assert four == three.spent.tokens + 1_000
    assert (three.is_paused, three.reason) == (True, "for a test")


@pytest.mark.slow
@pytest.mark.accepts("E109", "E112")
async def test_turn_counts_once_beside_any_other_change(runtime: Runtime) -> None:
    """The activity is run again after a lost worker; at the same moment somebody changes the task,
    and another turn ends.
    """
    async with runtime(REPORTER, model=ScriptedModel()) as client:
        daily = await client.create_schedule(
            new_id("once"), "reporter", "Go.", **DAILY, total=Budget(tokens=1_000)
        )
        env = ActivityEnvironment(client=client.temporal)
        calls = [
            SettleScheduleCall(
                schedule_id=daily.id, run_id=f"run-{number}", spent=Spending(tokens=number)
            )
            for number in (100, 200)
        ]
        done = [env.run(settle_schedule, call) for call in (*calls, *calls)]
        await asyncio.gather(*done, daily.change(task="Go on."))
        status = await daily.status()
        await env.run(settle_schedule, calls[0].model_copy(update={"schedule_id": "unknown"}))
        await daily.delete()

    assert (status.task, status.spent, status.is_paused) == (
        "Go on.",
        Spending(tokens=300),
        False,
    )


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"if_running": "allow"}, "total needs turns that run one after another"),
    ({"session": "chat"}, "total cannot be combined with a session"),
    ({"total": Budget(usd="1", time=timedelta(hours=1))}, "total has no time"),
    ({"total": "1"}, "total must be"),
]


@pytest.mark.accepts("E113")
async def test_total_that_cannot_be_kept_is_refused_at_once(runtime: Runtime) -> None:
    """Before anything exists; a change and a backfill, too."""
    async with runtime(REPORTER, model=ScriptedModel()) as client:
        name = new_id("never")
        for given, said in REFUSED:
            wanted = {"total": Budget(usd="1"), **given}
            with pytest.raises(errors.InvalidRequestError) as raised:
                await client.create_schedule(name, "reporter", "Go.", **DAILY, **wanted)
            assert said in raised.value.message, (given, raised.value.message)
        with pytest.raises(errors.ScheduleNotFoundError):
            await client.schedule(name).status()
        daily = await client.create_schedule(
            name, "reporter", "Go.", **DAILY, total=Budget(usd="1")
        )
        same = await client.create_schedule(name, "reporter", "Go.", **DAILY, total=Budget(usd="1"))
        with pytest.raises(errors.ScheduleConflictError) as other:
            await client.create_schedule(name, "reporter", "Go.", **DAILY, total=Budget(usd="2"))
        with pytest.raises(errors.InvalidRequestError, match="total"):
            await daily.change(if_running="allow")
        with pytest.raises(errors.InvalidRequestError, match="cannot run at once"):
            await daily.backfill(at(2), at(4), at_once=True)
        await daily.change(total=None, if_running="allow")
        status = await daily.status()
        await daily.delete()

    assert same.id == name
    assert other.value.context["differs"] == ["total"]
    assert (status.total, status.spent) == (None, Spending())
