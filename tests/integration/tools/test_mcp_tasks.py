"""Tasks of MCP servers: such a call stays open without a worker until its result comes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, MCPEffect, MCPServer, ToolOutcome, errors, tool
from perdure.clients import AgentClient, Turn
from perdure.clients.turns.status import Wait
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Runtime, eventually
from ...support.gateway.served import served
from ...support.spending import SOON_S

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ...support.mcp.task_server import TaskServer, done, task_server

BUILD = calls(call("works__build", what="a house"))


@pytest.fixture
async def works() -> AsyncIterator[TaskServer]:
    """The server."""
    async with task_server() as server:
        yield server


def builder(works: TaskServer, **options: Any) -> Agent:
    """An agent with the server."""
    return Agent(name="builder", model="scripted:x", toolboxes=[works.box(**options)])


async def result_of(turn: Turn[Any]) -> tuple[ToolOutcome, str]:
    """The result of the only call."""
    report = await turn.result()
    [result] = report.steps[0].results
    return result.outcome, result.content


async def waiting(turn: Turn[Any]) -> Wait:
    """The wait of a turn, when it has begun."""
    async with asyncio.timeout(SOON_S):
        while True:
            waits = (await turn.status()).waits
            if waits and waits[0].kind == "job":
                return waits[0]
            await asyncio.sleep(0.05)


async def unreachable(client: AgentClient, turn: Turn[Any]) -> None:
    """Wait until a poll of the turn has not reached the server."""
    handle = client.temporal.get_workflow_handle(turn.id)
    async with asyncio.timeout(SOON_S):
        while True:
            [poll] = (await handle.describe()).raw_description.pending_activities
            if "the MCP server 'works': " in poll.last_failure.message:
                return
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def begun(
    runtime: Runtime, works: TaskServer, **options: Any
) -> AsyncIterator[tuple[AgentClient, Turn[Any], dict[str, Any]]]:
    """A client, and a turn whose call has become a task, which was asked for its result once."""
    async with runtime(builder(works, **options), model=ScriptedModel(BUILD, says("ok"))) as client:
        turn = await client.start("builder", "go")
        task = await works.first()
        await waiting(turn)
        await eventually(lambda: bool(works.times("tasks/get")), "it is asked for")
        yield client, turn, task


@pytest.mark.accepts("T66")
async def test_task_of_a_server_is_a_call_whose_result_comes_later(
    runtime: Runtime, works: TaskServer
) -> None:
    """It waits as a job does. A call that the server answers at once is none."""
    both = calls(call("works__build", what="a house"), call("works__look", what="the garden"))
    model = ScriptedModel(both, says("ok"))
    agent = Agent(name="builder", model="scripted:x", toolboxes=[works.box()], parallel_tools=True)
    async with runtime(agent, model=model) as client:
        turn = await client.start("builder", "go")
        task = await works.first()
        wait = await waiting(turn)
        task.update(done("a house of stone"))
        report = await turn.result()

    built, looked = report.steps[0].results
    assert (built.outcome, built.content) == (ToolOutcome.DONE, "a house of stone")
    assert (looked.outcome, looked.content) == (ToolOutcome.DONE, "the garden looks good")
    assert works.built == [{"what": "a house"}]
    assert wait.reason == "works__build: build-1"
    assert report.tool_calls == 2


FINAL: dict[str, tuple[dict[str, Any], ToolOutcome, str]] = {
    "error of the tool": (
        done("no stone left", is_error=True),
        ToolOutcome.FAILED,
        "no stone left",
    ),
    "error of the protocol": (
        {"status": "failed", "error": {"code": -32603, "message": "the crane fell"}},
        ToolOutcome.FAILED,
        "works__build failed: the MCP server 'works' refused: the crane fell",
    ),
    "cancelled by the server": (
        {"status": "cancelled", "statusMessage": "it rains"},
        ToolOutcome.UNKNOWN,
        "works__build: the MCP server 'works' has cancelled its task: it rains; whether ",
    ),
    "no status": (
        {"status": "vanished"},
        ToolOutcome.UNKNOWN,
        "works__build: what the MCP server 'works' says of its task is not valid: status: ",
    ),
    "no result": (
        {"status": "completed"},
        ToolOutcome.UNKNOWN,
        "works__build: the MCP server 'works' has completed its task without a result; whether ",
    ),
}


@pytest.mark.accepts("T67")
@pytest.mark.parametrize(("end", "outcome", "words"), FINAL.values(), ids=FINAL)
@pytest.mark.table(2)
async def test_end_of_a_task_is_the_result_of_its_call(
    runtime: Runtime, works: TaskServer, end: dict[str, Any], outcome: ToolOutcome, words: str
) -> None:
    """A failure if the server says so; unknown if it does not say what became of it."""
    works.new = end
    async with runtime(builder(works), model=ScriptedModel(BUILD, says("ok"))) as client:
        found = await result_of(await client.start("builder", "go"))

    assert found[0] is outcome
    assert found[1].startswith(words)


@pytest.mark.accepts("T67")
async def test_task_that_the_server_has_forgotten_has_an_unknown_outcome(
    runtime: Runtime, works: TaskServer
) -> None:
    """Because it expired, or because the server was restarted."""
    async with begun(runtime, works) as (_, turn, _):
        works.tasks.clear()
        outcome, content = await result_of(turn)

    assert outcome is ToolOutcome.UNKNOWN
    assert content.startswith(
        "works__build: the MCP server 'works' does not know its task any more: Task not found;"
        " whether it took effect is unknown"
    )


@pytest.mark.accepts("T67", "T53")
async def test_lost_task_is_looked_up_with_another_task(
    runtime: Runtime, works: TaskServer
) -> None:
    """As the agent declares it for the effect of the tool. The read-back waits for its own task."""
    works.upcoming = [{"status": "cancelled"}, {"status": "working", "pollIntervalMs": 1}]
    effect = MCPEffect(effect=["what"], verify="build")
    agent = builder(works, effects={"build": effect})
    async with runtime(agent, model=ScriptedModel(BUILD, says("ok"))) as client:
        turn = await client.start("builder", "go")
        await eventually(lambda: len(works.tasks) == 2, "it is looked up")
        works.tasks["build-2"] = done("there is a house")
        outcome, content = await result_of(turn)

    assert outcome is ToolOutcome.VERIFIED
    assert content.startswith("there is a house")


@pytest.mark.slow
@pytest.mark.accepts("T67")
async def test_server_that_is_away_for_a_while_is_asked_again(
    runtime: Runtime, works: TaskServer
) -> None:
    """Whether it refuses or does not listen; the task is not begun again."""
    async with begun(runtime, works) as (client, turn, task):
        works.is_refusing = True
        refused = len(works.times("tasks/get")) + 1
        await eventually(lambda: len(works.times("tasks/get")) >= refused, "it is refused")
        await works.stop()
        works.is_refusing = False
        task.update(done("a house"))
        await unreachable(client, turn)
        await works.start()
        found = await result_of(turn)

    assert found == (ToolOutcome.DONE, "a house")
    assert len(works.built) == 1


@pytest.mark.accepts("T68")
@pytest.mark.parametrize("knows", [True, False], ids=["known", "forgotten"])
async def test_cancel_of_a_turn_cancels_the_task(
    runtime: Runtime, works: TaskServer, knows: bool
) -> None:
    """Once. The report names the call; a server that has forgotten the task has nothing to do."""
    works.new["pollIntervalMs"] = 60_000
    async with begun(runtime, works) as (_, turn, _):
        if not knows:
            works.tasks.clear()
        await turn.cancel("it rains")
        with pytest.raises(errors.TurnCancelledError) as cancelled:
            await turn.result()

    assert len(works.times("tasks/cancel")) == 1
    assert works.tasks == ({"build-1": {"status": "cancelled"}} if knows else {})
    assert cancelled.value.report is not None
    [unsettled] = cancelled.value.report.unsettled
    assert unsettled.tool == "works__build"
    assert unsettled.reason == "the job 'build-1' has no result yet; it was cancelled"


@pytest.mark.accepts("T68")
async def test_time_limit_of_a_task_cancels_it(runtime: Runtime, works: TaskServer) -> None:
    """The model reads that its outcome is unknown, and that it was cancelled."""
    async with runtime(
        builder(works, tasks=timedelta(seconds=1)), model=ScriptedModel(BUILD, says("ok"))
    ) as client:
        outcome, content = await result_of(await client.start("builder", "go"))

    assert outcome is ToolOutcome.UNKNOWN
    assert "its job 'build-1' has no result after 1 s, so it was cancelled" in content
    assert works.tasks == {"build-1": {"status": "cancelled"}}


@pytest.mark.accepts("T69")
async def test_server_says_how_often_it_is_asked(runtime: Runtime, works: TaskServer) -> None:
    """With each answer, within limits."""
    works.new["pollIntervalMs"] = 1
    async with begun(runtime, works) as (_, turn, task):
        task["pollIntervalMs"] = 1_000
        await eventually(lambda: len(works.times("tasks/get")) == 2, "it is asked again")
        task.update(done("a house"))
        await turn.result()

    first, second, third = works.times("tasks/get")
    assert 0.4 <= second - first < 10
    assert 0.9 <= third - second < 10


@pytest.mark.accepts("T70")
@pytest.mark.parametrize("tasks", [False, None], ids=["declined", "not declared"])
async def test_server_without_tasks_answers_at_once(runtime: Runtime, tasks: bool | None) -> None:
    """Also one that has them, if the agent does not want them. The definition has no job."""
    works = TaskServer()
    works.declares = tasks is not None
    await works.start()
    try:
        model = ScriptedModel(BUILD, says("ok"))
        async with runtime(builder(works, tasks=tasks), model=model) as client:
            found = await result_of(await client.start("builder", "go"))
    finally:
        await works.stop()

    assert found == (ToolOutcome.DONE, "built a house at once")


@pytest.mark.accepts("T70")
async def test_task_that_asks_its_user_is_cancelled(runtime: Runtime, works: TaskServer) -> None:
    """If people may not be asked, the client says so; who asks nevertheless gets no answer."""
    works.new = {"status": "input_required", "inputRequests": {}, "statusMessage": "Which colour?"}
    async with runtime(
        builder(works, asks=False), model=ScriptedModel(BUILD, says("ok"))
    ) as client:
        outcome, content = await result_of(await client.start("builder", "go"))

    assert outcome is ToolOutcome.UNKNOWN
    assert "because it asks its user something, which it cannot here: Which colour?" in content
    assert works.tasks == {"build-1": {"status": "cancelled"}}


@pytest.mark.slow
@pytest.mark.accepts("T66", "H41")
async def test_turn_of_another_deployment_is_such_a_call(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gateway answers `start_turn` with a task; the result is that of its turn."""
    monkeypatch.setenv("DESK_TOKEN", "anna")
    held = asyncio.Event()

    @tool
    async def look_up() -> str:
        """Look something up."""
        await held.wait()
        return "42"

    desk = Agent(name="desk", model="main", tools=[look_up])
    of_desk = ScriptedModel(calls(call("look_up")), says("It is 42."))
    async with runtime(desk, model=of_desk) as client, served(client) as http:
        other = MCPServer.http(
            "other", f"{http.base_url}/mcp", headers_env={"authorization": "DESK_TOKEN"}
        )
        boss = Agent(name="boss", model="scripted:x", toolboxes=[other])
        start = call("other__start_turn", agent="desk", task="Find it.", id="found")
        async with runtime(boss, model=ScriptedModel(calls(start), says("ok"))) as above:
            turn = await above.start("boss", "go")
            wait = await waiting(turn)
            held.set()
            outcome, content = await result_of(turn)

    assert wait.reason == "other__start_turn: @acme/found"
    assert outcome is ToolOutcome.DONE
    assert '"output": "It is 42."' in content
