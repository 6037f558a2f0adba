"""A provider's limit is used up for hours, and a turn waits for its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from perdure import Agent, Budget, ModelRetryPolicy, Observer, TurnInfo, errors
from perdure.agents.definitions import AgentDefinition
from perdure.testing import ScriptedModel, call, calls, fails, says, skip_time
from perdure.turn.facts import AgentResolved, ChildTold, WaitBegan, WaitEnded
from perdure.values.model_retry import PinnedRetry
from perdure.values.states import State
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.delegating import FREE, delegate
from ...support.listing import entry_of
from ...support.spending import app, ended, look, queue, until
from ...support.waiting import memo_of
from ...support.web_ui import card_of

SIGNALLED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
TIMER_CANCELLED = EventType.EVENT_TYPE_TIMER_CANCELED
HOUR = timedelta(hours=1)
FULL = fails(
    errors.LLMRateLimitError("used up", context={"status": 429, "retry_after_s": 5 * 3600})
)
DOWN = fails(errors.LLMUnavailableError("overloaded", context={"status": 503}))
WAITS = ModelRetryPolicy(initial_interval=timedelta(milliseconds=10), on_limit="wait")


class Sees(Observer):
    """Records what a turn waited for."""

    def __init__(self) -> None:
        self.waits: list[str] = []

    async def on_wait(self, turn: TurnInfo, kind: str, reason: str) -> None:
        self.waits.append(kind)


@pytest.mark.accepts("M40", "M41")
@pytest.mark.slow
async def test_limit_is_waited_for_outside_of_the_time_of_a_turn(runtime: Runtime) -> None:
    """For hours beyond its budget; the wait shows its end everywhere. Failures after it are retried
    as if they were the first.
    """
    model, seen = ScriptedModel(calls(call("look")), FULL, DOWN, says("done")), Sees()
    by = app(model_retry=WAITS, observers=[seen])
    async with runtime(by, model=model) as client:
        turn = await client.start("spender", "go", budget=Budget(time=HOUR))
        began = await until(turn, WaitBegan)
        await entry_of(client, turn.id, agent="spender", state=State.WAITING)
        status, memo = await turn.status(), await memo_of(client, turn)
        card = await card_of(client.temporal, turn.id)
        early = await turn.wait(timeout=0.1)
        await skip_time(client, turn, 5 * HOUR + timedelta(minutes=1))
        report = await turn.result()
        after = await turn.status()
        facts = [type(event.fact) async for event in turn.events()]

    fact = began.fact
    assert isinstance(fact, WaitBegan)
    assert (fact.kind, fact.reason, fact.limit, fact.attempt) == ("provider", "used up", True, 2)
    assert fact.until is not None
    assert abs(fact.until - began.at - 5 * HOUR) < timedelta(minutes=1)
    [wait] = status.waits
    assert (status.state, wait.kind, wait.until) == ("waiting", "provider", fact.until)
    assert status.doing.startswith("waits for provider, attempt 2 at 20")
    assert early.state == "waiting", "nobody is needed, so it did not return before its timeout"
    assert memo["perdure_waits_for"]["limit"] is True
    assert "Asked again at" in card
    assert (report.output, model.call_count) == ("done", 4)
    assert report.duration > 5 * HOUR
    assert after.spent.time < HOUR
    assert (facts.count(WaitBegan), facts.count(WaitEnded)) == (1, 1)
    assert seen.waits == ["provider"]


@pytest.mark.slow
@pytest.mark.accepts("M42")
async def test_limit_beyond_the_time_of_a_turn_ends_it_unless_its_agent_waits(
    runtime: Runtime,
) -> None:
    """As before; the pinned definition of an earlier release has no such field."""
    by = app(model_retry=ModelRetryPolicy())
    async with runtime(by, model=ScriptedModel(FULL, FULL)) as client:
        turn = await client.start("spender", "go")
        end = await ended(turn)
        [agent] = [
            event.fact.agent
            async for event in turn.events()
            if isinstance(event.fact, AgentResolved)
        ]
        timed = await ended(await client.start("spender", "go", budget=Budget(time=HOUR)))

    assert isinstance(end, errors.LLMRateLimitError)
    assert "which is all that its ModelRetryPolicy allows" in end.message
    assert isinstance(timed, errors.TurnBudgetExceededError)
    assert agent.model_retry is not None
    written = agent.model_dump(mode="json")
    del written["model_retry"]["waits_for_limits"]
    assert AgentDefinition.model_validate(written).model_retry == agent.model_retry
    assert PinnedRetry.model_fields["waits_for_limits"].default is False


@pytest.mark.accepts("M43")
async def test_wait_for_a_limit_survives_its_worker_and_is_cut_short(perdure_server: str) -> None:
    """By `resume`, and ended by a cancel."""
    model = ScriptedModel(FULL, FULL, says("done"))
    async with queue(perdure_server) as work:
        async with work.worker(app(model_retry=WAITS), model):
            turn = await work.client.start("spender", "go")
            await until(turn, WaitBegan)
            other = await work.client.start("spender", "go")
            await until(other, WaitBegan)
        async with work.worker(app(), model):
            await turn.resume()
            report = await turn.result()
            await other.cancel("enough")
            error = await ended(other)

    assert report.output == "done"
    assert isinstance(error, errors.TurnCancelledError)


@pytest.mark.accepts("M44")
async def test_delegate_at_a_limit_stops_the_clock_of_the_turn_above_it(runtime: Runtime) -> None:
    """Nobody is needed for that."""
    agents = [
        Agent(name="parent", model="scripted:parent", delegates=["helper"]),
        Agent(name="helper", model="scripted:helper", tools=[look]),
    ]
    models = {
        "parent": ScriptedModel(delegate("helper", "help"), says("done")),
        "helper": ScriptedModel(FULL, says("helped")),
    }
    by = AgentWorker(agents, prices=FREE, model_retry=WAITS)
    async with runtime(by, model=models) as client:
        turn = await client.start("parent", "go", budget=Budget(time=HOUR))
        await until(turn, ChildTold)
        early = await turn.wait(timeout=0.1)
        child = client.turn(f"{turn.id}/helper-1")
        below = await child.status()
        await skip_time(client, child, 5 * HOUR + timedelta(minutes=1))
        report = await turn.result()
        kinds = [event.event_type for event in (await client.history(turn)).events]
        news: list[Any] = [
            event.fact.news.waits_for
            async for event in turn.events()
            if isinstance(event.fact, ChildTold)
        ]

    assert (early.state, [wait.kind for wait in early.waits]) == ("running", ["provider"])
    assert below.state == "waiting"
    assert (report.output, news) == ("done", ["provider", ""])
    first, second = (place for place, kind in enumerate(kinds) if kind == SIGNALLED)
    assert TIMER_CANCELLED in kinds[first:second], "the timer of its time"
