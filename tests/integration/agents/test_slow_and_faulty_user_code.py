"""Policies, checks, observers and factories that block, are late or have bugs: other turns are not
affected, and no check is skipped.
"""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Agent,
    Allow,
    Budget,
    InputGuardrail,
    Middleware,
    Outcome,
    OutputGuardrail,
    ProposedCall,
    Registry,
    Task,
    errors,
    tool,
)
from perdure.agents.observers import Observer
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.turn.facts import WaitBegan
from perdure.values.reports import AgentReport, Step
from perdure.values.tasks import TurnInfo
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.spending import SHORT, SOON_S, until

LATE_S = SHORT.total_seconds() + 2


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


def agent(**fields: Any) -> Agent:
    """An agent that can look."""
    return Agent(**{"name": "looker", "model": "scripted:looker", "tools": [look], **fields})


def freed_by_the_loop() -> threading.Event:
    """Set by the loop of this test's worker: never, while something blocks the loop."""
    free = threading.Event()
    asyncio.get_running_loop().call_later(0.5, free.set)
    return free


@pytest.mark.slow
async def test_policy_check_and_observer_may_block(runtime: Runtime) -> None:
    """They run in threads, where they wait for the worker's loop."""
    free = freed_by_the_loop()
    seen: list[object] = []

    def policy(proposed: ProposedCall) -> Allow:
        seen.append(free.wait(60))
        return Allow()

    def check(report: AgentReport) -> bool:
        seen.append(free.wait(60))
        return True

    class Blocking(Observer):
        async def on_step(self, turn: TurnInfo, step: Step) -> None:
            seen.append(step.number)

    blocking = agent(
        policy=policy,
        middleware=[InputGuardrail(lambda task: free.wait(60)), OutputGuardrail(check)],
        observers=[Blocking()],
    )
    async with runtime(blocking, model=ScriptedModel(calls(call("look")), says("done"))) as client:
        report = await client.run("looker", "go")

    assert report.output == "done"
    assert seen == [True, 1, 2, True]


@pytest.mark.slow
async def test_factory_may_block_and_is_called_once_for_a_turn(runtime: Runtime) -> None:
    """Even if several of its tools need the agent at the same moment."""
    free = freed_by_the_loop()
    made: list[str] = []

    def looker(about: TurnInfo) -> Agent:
        made.append(about.turn_id)
        free.wait(60)
        return agent(parallel_tools=True)

    async with runtime(
        Registry([looker]), model=ScriptedModel(calls(call("look"), call("look")), says("done"))
    ) as client:
        report = await client.run("looker", "go", id="made-once")

    assert report.output == "done"
    assert made == ["made-once"]


@pytest.mark.slow
@pytest.mark.accepts("O6")
async def test_observer_that_is_written_wrongly_hurts_no_other(runtime: Runtime) -> None:
    """One without an argument, one that is not async, one that cancels itself: each is logged, and
    the next one is called.
    """
    seen: list[int] = []

    class Short(Observer):
        async def on_step(self, step: Step) -> None:  # type: ignore[override]
            raise AssertionError("it cannot be called so")

    class Plain(Observer):
        def on_step(self, turn: TurnInfo, step: Step) -> None:  # type: ignore[override]
            raise ValueError("no")

    class Cancelling(Observer):
        async def on_step(self, turn: TurnInfo, step: Step) -> None:
            raise asyncio.CancelledError

    class Good(Observer):
        async def on_step(self, turn: TurnInfo, step: Step) -> None:
            seen.append(step.number)

    observed = agent(observers=[Short(), Plain(), Cancelling(), Good()])
    async with runtime(observed, model=ScriptedModel(calls(call("look")), says("done"))) as client:
        report = await client.run("looker", "go")

    assert (report.output, seen) == ("done", [1, 2])


@pytest.mark.table(1)
@pytest.mark.accepts("A1")
@pytest.mark.parametrize(
    "raised",
    [SystemExit(3), asyncio.CancelledError(), ValueError("no")],
    ids=lambda one: type(one).__name__,
)
async def test_policy_that_raises_what_stops_programs_denies(
    runtime: Runtime, raised: BaseException
) -> None:
    """Like one with any other exception."""

    async def policy(proposed: ProposedCall) -> Allow:
        raise raised

    async with runtime(
        agent(policy=policy), model=ScriptedModel(calls(call("look")), says("done"))
    ) as client:
        report = await client.run("looker", "go")

    (result,) = report.steps[0].results
    assert report.output == "done"
    assert result.content.startswith("This call was not run: it was denied: the policy failed: ")


class Late(Middleware):
    """Refuses, but only after the turn's time is over."""

    async def after(self, report: AgentReport) -> None:
        await asyncio.sleep(LATE_S)
        raise errors.GuardrailError("too late to look away")


class LateBefore(Middleware):
    async def before(self, task: Task) -> None:
        await asyncio.sleep(LATE_S)
        raise errors.GuardrailError("too late to look away")


@pytest.mark.slow
async def test_time_that_is_over_lets_nothing_past_a_guardrail(runtime: Runtime) -> None:
    """For every policy of the budget: the turn waits for the check, before it and after it."""
    limited = {"budget": Budget(time=SHORT)}
    agents = [
        agent(name=f"{moment}-{policy}", middleware=[stage], on_exhausted=policy, **limited)
        for moment, stage in {"before": LateBefore(), "after": Late()}.items()
        for policy in ("fail", "finish", "pause")
    ]
    model = ByTask({item.name: ScriptedModel(says("leaked"), says("leaked")) for item in agents})
    async with runtime(agents, model=model) as client:
        async with asyncio.timeout(SOON_S):
            ended = await asyncio.gather(
                *(client.run(item.name, item.name) for item in agents), return_exceptions=True
            )

    asked = {name: script.call_count for name, script in model.scripts.items()}
    assert {item.name: type(one) for item, one in zip(agents, ended, strict=True)} == {
        item.name: errors.GuardrailError for item in agents
    }
    assert asked == {item.name: 0 if item.name.startswith("before") else 1 for item in agents}


@pytest.mark.slow
@pytest.mark.accepts("O6", "O12")
async def test_observers_miss_nothing_when_the_time_is_over(runtime: Runtime) -> None:
    """The step that the deadline ended, the wait for budget, and later events."""
    seen: list[object] = []

    class Watching(Observer):
        async def on_step(self, turn: TurnInfo, step: Step) -> None:
            seen.append(step.number)

        async def on_wait(self, turn: TurnInfo, kind: str, reason: str) -> None:
            seen.append(kind)

        async def on_end(self, turn: TurnInfo, report: AgentReport) -> None:
            seen.append(report.outcome)

    @tool(read_only=True)
    async def wait() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return "never"

    waiting = agent(
        tools=[wait], observers=[Watching()], budget=Budget(time=SHORT), on_exhausted="pause"
    )
    async with runtime(
        AgentWorker(waiting), model=ScriptedModel(calls(call("wait")), says("done"))
    ) as client:
        turn = await client.start("looker", "go")
        await until(turn, WaitBegan)
        await turn.add_budget(Budget(time=timedelta(minutes=5)))
        report = await turn.result()

    assert report.output == "done"
    assert seen == [1, "budget", 2, Outcome.COMPLETED]
