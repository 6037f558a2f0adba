"""Where tools run and how they stop: threads and loops, timeouts, cancels, and tools that block."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from perdure import Agent, AgentReport, Registry, errors, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.facts import Scheduled
from perdure.turn.keys import ToolKey
from perdure.values.messages import UNKNOWN_NOTE

from ...conftest import RecordingClient, Run, Runtime, eventually
from ...support.losses import timeless
from ...support.tooling import add, results_of


@pytest.mark.accepts("T11")
async def test_sync_tools_run_in_threads_and_async_tools_on_a_loop_of_their_own(run: Run) -> None:
    """Neither on the worker's thread; all async tools share one loop."""
    threads: dict[str, int] = {}
    loops: set[int] = set()

    @tool
    def sync() -> None:
        threads["sync"] = threading.get_ident()

    @tool
    async def first() -> None:
        threads["first"] = threading.get_ident()
        loops.add(id(asyncio.get_running_loop()))

    @tool
    async def second() -> None:
        threads["second"] = threading.get_ident()
        loops.add(id(asyncio.get_running_loop()))

    await results_of(run, call("sync"), call("first"), call("second"), tools=[sync, first, second])

    assert threads["first"] == threads["second"]
    assert len({threading.get_ident(), *threads.values()}) == 3
    assert len(loops) == 1


@pytest.mark.accepts("T11")
async def test_tool_is_stopped_at_its_own_timeout(run: Run) -> None:
    """Sync and async: the result has the duration, the function is interrupted, and the next call
    runs.
    """
    stopped: list[str] = []

    @tool(timeout=timedelta(seconds=1))
    def sync() -> None:
        _sleep_until_stopped(stopped)

    @tool(timeout=timedelta(seconds=1))
    async def later() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            stopped.append("async")

    results = await results_of(
        run, call("sync"), call("later"), call("add", a=2, b=3), tools=[sync, later, add]
    )
    await eventually(lambda: len(stopped) == 2, "both are interrupted")

    too_long = (
        f"stopped because it took longer than 1 s; whether it took effect is unknown{UNKNOWN_NOTE}"
    )
    told = [(timeless(content), is_error) for content, is_error in results]
    assert told == [(f"sync: {too_long}", True), (f"later: {too_long}", True), ("5", False)]
    assert sorted(stopped) == ["async", "sync"]


@pytest.mark.accepts("T11")
async def test_cancel_stops_a_tool_in_flight(runtime: Runtime) -> None:
    """Sync in its thread, async on the loop; the report says that nothing is still running."""
    started, stopped = list[str](), list[str]()

    @tool
    def sync() -> None:
        started.append("sync")
        _sleep_until_stopped(stopped)

    @tool
    async def later() -> None:
        started.append("async")
        try:
            await asyncio.sleep(30)
        finally:
            stopped.append("async")

    agents = [Agent(name=item.name, model="scripted:x", tools=[item]) for item in (sync, later)]
    models = {item.name: ScriptedModel(calls(call(item.name))) for item in agents}

    async with runtime(Registry(agents), model=models) as client:
        reports = await _cancelled_once(client, agents, lambda: len(started) == 2)

    assert sorted(stopped) == ["async", "sync"]
    assert [report.unstopped for report in reports] == [(), ()]


@pytest.mark.accepts("T11", "T18")
async def test_async_tool_whose_name_a_sync_tool_of_another_agent_has_is_stopped_too(
    runtime: Runtime,
) -> None:
    """One activity runs both kinds, and a cancel must still reach the coroutine within seconds."""
    started, stopped = list[str](), list[str]()

    @tool(name="work")
    def sync() -> None: ...

    @tool(name="work")
    async def later() -> None:
        started.append("async")
        try:
            await asyncio.sleep(30)
        finally:
            stopped.append("async")

    agents = [
        Agent(name="first", model="scripted:x", tools=[sync]),
        Agent(name="second", model="scripted:x", tools=[later]),
    ]

    async with runtime(Registry(agents), model=ScriptedModel(calls(call("work")))) as client:
        [report] = await _cancelled_once(client, agents[1:], lambda: len(started) == 1)
        stopped_with_the_turn = list(stopped)

    assert stopped_with_the_turn == ["async"]
    assert report.unstopped == ()


@pytest.mark.accepts("T21")
@pytest.mark.slow
async def test_tool_that_blocks_does_not_repeat_the_model_call_of_another_turn(
    runtime: Runtime,
) -> None:
    """For longer than the heartbeat timeout of 5 s, in a thread and on the loop of the tools, next
    to an equally long model call.
    """
    blocking: list[str] = []

    @tool
    def sync() -> str:
        blocking.append("sync")
        time.sleep(6.5)
        return "awake"

    @tool
    async def rude() -> str:
        blocking.append("async")
        time.sleep(6.5)  # noqa: ASYNC251 - the test is about tools that do this
        return "awake"

    sleepers = [Agent(name=item.name, model="scripted:x", tools=[item]) for item in (sync, rude)]
    thinker = Agent(name="thinker", model="scripted:x")
    models = {item.name: ScriptedModel(calls(call(item.name)), says("done")) for item in sleepers}
    slow = ScriptedModel(says("thought", delay=timedelta(seconds=6)))

    async with runtime(Registry([*sleepers, thinker]), model={**models, "thinker": slow}) as client:
        turns = [await client.start(agent, "sleep") for agent in sleepers]
        await eventually(lambda: len(blocking) == 2, "both tools block")
        thought = await client.run(thinker, "think")
        reports = [await turn.result() for turn in turns]

    assert (thought.output, thought.model_calls, slow.call_count) == ("thought", 1, 1)
    assert [(report.steps[0].results[0].content, report.model_calls) for report in reports] == [
        ("awake", 2)
    ] * 2
    assert sorted(blocking) == ["async", "sync"]


def _sleep_until_stopped(stopped: list[str]) -> None:
    try:
        for _ in range(1500):
            time.sleep(0.02)
    finally:
        stopped.append("sync")


async def _cancelled_once(
    client: RecordingClient, agents: list[Agent], ready: Callable[[], bool]
) -> list[AgentReport]:
    """The reports of turns that are cancelled when `ready` is set."""
    turns = [await client.start(agent, "go") for agent in agents]
    await eventually(ready, "the tools run")
    for turn in turns:
        await turn.cancel("enough")
    reports = []
    for turn in turns:
        with pytest.raises(errors.TurnCancelledError) as caught:
            await turn.result()
        assert caught.value.report is not None
        reports.append(caught.value.report)
    return reports


@pytest.mark.slow
@pytest.mark.accepts("T11")
async def test_tool_that_does_not_stop_is_named_in_the_report(runtime: Runtime) -> None:
    """An async tool that ignores its cancel is still running when the turn ends, and the report
    says so.
    """
    begun, free = threading.Event(), threading.Event()

    @tool
    async def stubborn() -> str:
        begun.set()
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        return "done at last"

    agent = Agent(name="worker", model="scripted:worker", tools=[stubborn])
    async with runtime(agent, model=ScriptedModel(calls(call("stubborn")))) as client:
        turn = await client.start(agent, "go")
        await eventually(begun.is_set, "the tool begins")
        await turn.cancel("enough")
        with pytest.raises(errors.TurnCancelledError) as caught:
            await turn.result()
        free.set()

    assert caught.value.report is not None
    assert caught.value.report.unstopped == ("step-1.call-1",)


@pytest.mark.slow
@pytest.mark.accepts("T11")
async def test_tool_that_was_cancelled_before_it_began_never_begins(runtime: Runtime) -> None:
    """Another tool blocks its loop when the cancel arrives."""
    blocked, free = threading.Event(), threading.Event()
    ran: list[str] = []

    @tool
    async def block() -> str:
        blocked.set()
        free.wait(30)
        return "free"

    @tool
    async def late() -> str:
        ran.append("late")
        return "late"

    agent = Agent(name="worker", model="scripted:worker", tools=[block, late])
    model = ScriptedModel(calls(call("block")), calls(call("late")), says("done"))
    async with runtime(agent, model=model) as client:
        first = await client.start(agent, "hold the loop")
        await eventually(blocked.is_set, "the loop is held up")
        second = await client.start(agent, "be late")
        async for event in second.events():
            if event.fact == Scheduled(ToolKey(1, 1)):
                break
        await second.cancel("too late")
        with pytest.raises(errors.TurnCancelledError):
            await second.result()
        free.set()
        report = await first.result()

    assert report.output == "done"
    assert ran == []
