"""Adding to the budget of a turn: a refused addition leaves no trace in history, and an early one
is kept.
"""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from perdure import Agent, AgentReport, Budget, errors
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.facts import AgentResolved, WaitBegan
from perdure.values.budgets import Remaining

from ...conftest import Runtime
from ...support.spending import (
    Held,
    app,
    ended,
    money_left,
    queue,
    report_of,
    spender,
    until,
    usage,
)

LEAVES_A_TRACE = (
    "workflow_execution_update_accepted_event_attributes",
    "workflow_execution_update_completed_event_attributes",
)


def updates_in(events: Iterable[HistoryEvent]) -> int:
    """The number of update events in a history."""
    return sum(event.HasField(kind) for event in events for kind in LEAVES_A_TRACE)  # type: ignore[arg-type]


@pytest.mark.slow
async def test_answer_says_what_is_left_then(runtime: Runtime) -> None:
    """For every limit; also with the id alone."""
    model = ScriptedModel(calls(call("look"), usage=usage(900)), says("done", usage=usage(100)))
    async with runtime(app(on_exhausted="pause"), model=model) as client:
        turn = await client.start(
            "spender",
            "go",
            id="add-by-id",
            budget=Budget(usd="2.5", time=timedelta(hours=1), tool_calls=2),
        )
        await until(turn, WaitBegan)
        left = await client.turn("add-by-id").add_budget(Budget(usd="2.5", tool_calls=3))
        await turn.result()

    assert left.time is not None
    assert left == Remaining(usd=Decimal("4.1"), time=left.time, tool_calls=4, iterations=9)
    assert money_left(model.requests[1]) == Decimal("4.1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (Budget(tokens=5), "no limit of tokens"),
        (Budget(usd="1", time=timedelta(days=1)), "no limit of time"),
        (Budget(usd="999999999"), "larger than a budget can be"),
    ],
    ids=["another limit", "a limit too many", "too much"],
)
async def test_what_cannot_be_added_is_refused(runtime: Runtime, more: Budget, reason: str) -> None:
    """As a whole, and without a trace; the turn keeps waiting for an addition that is valid."""
    model = ScriptedModel(calls(call("look"), usage=usage(900)), says("done", usage=usage(100)))
    async with runtime(app(on_exhausted="pause"), model=model) as client:
        turn = await client.start("spender", "go", budget=Budget(usd="2.5", tool_calls=5))
        await until(turn, WaitBegan)
        with pytest.raises(errors.InvalidRequestError, match=reason):
            await turn.add_budget(more)
        events = (await client.history(turn)).events
        left = await turn.add_budget(Budget(usd="2"))
        await turn.result()

    assert updates_in(events) == 0
    assert (left.usd, left.tokens) == (Decimal("3.6"), None)


ONE_EACH: list[Any] = [
    *({"usd": money} for money in (0.5, "-1", "0", "a lot", "NaN", "1e400")),
    *({"tokens": 1.5}, {"time": "P99999D"}, {}, {"dollars": "1"}, "1", None, [], b"\x00\xff"),
]
GARBAGE: list[list[Any]] = [*([given] for given in ONE_EACH), [], [{"usd": "1"}, {"usd": "2"}]]


@pytest.mark.slow
async def test_garbage_from_another_client_is_refused_typed(runtime: Runtime) -> None:
    """Temporal's own client can send anything: nothing of it enters history, and the turn
    continues.
    """
    model = ScriptedModel(calls(call("look"), usage=usage(900)), says("done", usage=usage(100)))
    refused: list[str | None] = []
    async with runtime(app(on_exhausted="pause"), model=model) as client:
        turn = await client.start("spender", "go", budget=Budget(usd="2.5"))
        await until(turn, WaitBegan)
        handle = client.temporal.get_workflow_handle(turn.id)
        for given in GARBAGE:
            with pytest.raises(WorkflowUpdateFailedError) as caught:
                await handle.execute_update("add_budget", args=given)
            assert isinstance(caught.value.cause, ApplicationError)
            refused.append(caught.value.cause.type)
        events = (await client.history(turn)).events
        await turn.add_budget(Budget(usd="2"))
        report = await report_of(turn)

    assert dict(zip(map(repr, GARBAGE), refused, strict=True)) == dict.fromkeys(
        map(repr, GARBAGE), "INVALID_REQUEST"
    )
    assert updates_in(events) == 0
    assert (report.output, report.cost) == ("done", Decimal(1))


@pytest.mark.slow
async def test_turn_without_a_budget_cannot_be_given_one(runtime: Runtime) -> None:
    """It has no limits."""
    model = Held("done")
    async with runtime(app(), model=model) as client:
        turn = await client.start("spender", "go")
        await until(turn, AgentResolved)
        with pytest.raises(errors.InvalidRequestError, match="no budget"):
            await turn.add_budget(Budget(usd="1"))
        model.let_go.set()
        report = await report_of(turn)

    assert report.output == "done"


@pytest.mark.slow
async def test_turn_that_is_over_takes_nothing(runtime: Runtime) -> None:
    """Neither a completed turn, nor one that is over budget, nor an unknown one."""
    models = {
        "well": ScriptedModel("done"),
        "poor": ScriptedModel(calls(call("look"), usage=usage(900))),
    }
    async with runtime(app(spender(name="well"), spender(name="poor")), model=models) as client:
        turns = [await client.start(name, "go", budget=Budget(usd="2.5")) for name in models]
        for turn in turns:
            await ended(turn)
            with pytest.raises(errors.InvalidRequestError, match="is over"):
                await turn.add_budget(Budget(usd="1"))
        with pytest.raises(errors.TurnNotFoundError):
            await client.turn("never-started").add_budget(Budget(usd="1"))


# --- before a worker has the turn


@pytest.mark.slow
async def test_budget_of_the_agent_can_be_added_to(runtime: Runtime) -> None:
    """The turn was started without a budget."""
    model = ScriptedModel(calls(call("look"), usage=usage(900)), says("done", usage=usage(100)))
    async with runtime(app(on_exhausted="pause", budget=Budget(usd="2.5")), model=model) as client:
        turn = await client.start("spender", "go")
        await until(turn, WaitBegan)
        left = await turn.add_budget(Budget(usd="2"))
        await turn.result()

    assert left.usd == Decimal("3.6")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "started_with"),
    [(spender(), Budget(usd="2")), (spender(budget=Budget(usd="2")), None)],
    ids=["turn", "agent"],
)
async def test_budget_can_be_added_to_before_a_worker_has_the_turn(
    perdure_server: str, agent: Agent, started_with: Budget | None
) -> None:
    """Right after the start, whether the turn or the agent has the budget: the update waits until
    it is known whether there is such a limit.
    """
    model = ScriptedModel("done")
    async with queue(perdure_server) as work:
        turn = await work.client.start("spender", "go", budget=started_with)
        adding = asyncio.create_task(turn.add_budget(Budget(usd="3")))
        await asyncio.sleep(0.3)
        async with work.worker(app(agent), model):
            await adding
            await ended(turn)

    assert money_left(model.requests[0]) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "reason"),
    [("spender", "no limit of tokens"), ("nobody", r"is over \(failed\)")],
    ids=["not limited", "never resolved"],
)
async def test_early_addition_that_fits_nothing_is_refused(
    perdure_server: str, agent: str, reason: str
) -> None:
    """As soon as the limits are known, or the turn has ended without them; the turn itself is not
    affected.
    """
    model = ScriptedModel("done")
    async with queue(perdure_server) as work:
        turn = await work.client.start(agent, "go", budget=Budget(usd="2"))
        adding = asyncio.create_task(turn.add_budget(Budget(tokens=3)))
        await asyncio.sleep(0.3)
        async with work.worker(app(spender()), model):
            with pytest.raises(errors.InvalidRequestError, match=reason):
                await adding
            end = await ended(turn)

    assert isinstance(end, errors.UnknownAgentError if agent == "nobody" else AgentReport)
