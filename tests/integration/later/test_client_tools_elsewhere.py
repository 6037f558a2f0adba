"""Tools that the client of a turn runs, where other features meet them."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from perdure import Agent, Delegate, errors, tool
from perdure.testing import FunctionModel, ModelRequest, Reply, ScriptedModel, call, calls, says
from perdure.values.messages import ToolMessage

from ...conftest import Runtime
from ...support.client_tools import CONFIRM, LOCATE, guide, until_calls
from ...support.long_turns import SHORT_TASK, begin, runs_of
from ...support.resets import reset, task_ends
from ...support.scheduling import new_id
from ...support.spending import look


def locates_once(request: ModelRequest) -> Reply:
    """Ask where the user is, if there is such a tool, and say it."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return says(last.results[0].content)
    offered = [item.name for item in request.tools]
    return calls(call("locate")) if "locate" in offered else says(f"only {', '.join(offered)}")


@pytest.mark.accepts("F29")
async def test_calls_wait_in_a_new_run_and_in_a_reset(runtime: Runtime) -> None:
    """With their tokens, and the result that was sent to the run before a reset."""
    model = ScriptedModel(
        calls(*(call("look", number=n) for n in range(60))),
        calls(call("locate"), call("confirm")),
        says("done"),
        says("again"),
    )
    agent = guide(tools=[look], parallel_tools=True)
    async with runtime(agent, model=model) as client:
        turn = await begin(client, "guide", timeout=SHORT_TASK, client_tools=(LOCATE, CONFIRM))
        first, second = await until_calls(turn, 2)
        before = len(await runs_of(client, turn))
        for number in range(200):
            await turn.add_budget(iterations=1, by=f"{number}")
            if len(await runs_of(client, turn)) > before:
                break
        assert len(await runs_of(client, turn)) > before
        assert await until_calls(turn, 2) == (first, second)
        await client.finish_call(first.token, "Bern")
        await client.finish_call(second.token, "yes")
        report = await turn.result()
        assert [result.content for result in report.steps[-2].results] == ["Bern", "yes"]


@pytest.mark.accepts("F29")
async def test_turn_is_reset_into_the_wait(runtime: Runtime) -> None:
    """The result that was sent counts in the new run."""
    model = ScriptedModel(calls(call("locate")), says("done"), says("again"))
    async with runtime(guide(), model=model) as client:
        turn = await client.start("guide", "go", client_tools=[LOCATE])
        [waiting] = await until_calls(turn)
        await client.finish_call(waiting.token, "Bern")
        await turn.result()
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
        timer = EventType.EVENT_TYPE_TIMER_STARTED
        started = next(event.event_id for event in history.events if event.event_type == timer)
        again = await reset(client, turn, min(e for e in task_ends(history) if e > started))
        report = await again.result()

    assert [result.content for result in report.steps[0].results] == ["Bern"]


@pytest.mark.accepts("F30")
async def test_delegates_and_other_agents_do_not_have_the_tools(runtime: Runtime) -> None:
    """They are for the agent that the caller named; it has them again when it is handed back."""
    boss = guide(name="boss", tools=[], delegates=[Delegate("helper")], handoffs=["desk"])
    helper = guide(name="helper", tools=[], description="Helps.")
    desk = guide(name="desk", tools=[look], handoffs=["boss"], description="A desk.")
    model = ScriptedModel(
        calls(call("delegate_to_agent", agent="helper", task="help")),
        says("helped"),
        calls(call("hand_over", agent="desk", message="yours")),
        calls(call("look")),
        calls(call("hand_over", agent="boss", message="back")),
        calls(call("locate")),
        says("done"),
    )
    async with runtime([boss, helper, desk], model=model) as client:
        turn = await client.start("boss", "go", client_tools=[LOCATE])
        [waiting] = await until_calls(turn)
        await client.finish_call(waiting.token, "Bern")
        report = await turn.result()

    assert report.output == "done"
    offered = [{item.name for item in request.tools} for request in model.requests]
    assert ["locate" in names for names in offered] == [True, False, True, False, False, True, True]


@pytest.mark.accepts("F31")
async def test_turns_of_a_session_have_the_tools_of_their_messages(runtime: Runtime) -> None:
    """A turn has none if its message brings none; they cannot be steered."""
    async with runtime(guide(tools=[]), model=FunctionModel(locates_once)) as client:
        session = client.session(new_id("chat"), "guide")
        sent = await session.say("Where?", client_tools=[LOCATE])
        [waiting] = await until_calls(await sent.turn())
        behind = await session.say("And now?", client_tools=[CONFIRM])
        status = await session.status()
        with pytest.raises(errors.InvalidRequestError, match="with tools of its own"):
            await session.say("No.", client_tools=[LOCATE], if_busy="steer")
        with pytest.raises(errors.InvalidRequestError, match="two tools"):
            await session.say("No.", client_tools=[LOCATE, LOCATE])
        await client.finish_call(waiting.token, "Bern")
        answers = [(await sent.result()).output, (await behind.result()).output]
        last = await session.say("And without?")
        answers.append((await last.result()).output)

    assert answers == ["Bern", "only confirm", "only "]
    assert status.queue[0].client_tools == ()


@pytest.mark.accepts("F32")
async def test_fork_and_resume_keep_the_tools_or_have_others(runtime: Runtime) -> None:
    """A resume asks the client again about a call that was not answered."""
    async with runtime(guide(tools=[]), model=FunctionModel(locates_once)) as client:
        turn = await client.start("guide", "go", client_tools=[LOCATE])
        [waiting] = await until_calls(turn)
        await client.finish_call(waiting.token, "Bern")
        await turn.result()
        kept = await turn.fork(say="Again.")
        [again] = await until_calls(kept)
        await client.finish_call(again.token, "Basel")
        other = await turn.fork(say="Again.", client_tools=[CONFIRM])
        none = await turn.fork(say="Again.", client_tools=[])
        outputs = [(await fork.result()).output for fork in (kept, other, none)]
        stopped = await client.start("guide", "go", client_tools=[LOCATE])
        await until_calls(stopped)
        await stopped.cancel()
        with pytest.raises(errors.TurnCancelledError):
            await stopped.result()
        resumed = await stopped.resume()
        [asked] = await until_calls(resumed)
        await client.finish_call(asked.token, "Chur")
        outputs.append((await resumed.result()).output)

    assert outputs == ["Basel", "only confirm", "only ", "Chur"]


@pytest.mark.accepts("F22")
async def test_own_calls_go_on_beside_those_of_the_client(runtime: Runtime) -> None:
    """The turn waits for its client once nothing else runs, and results keep their order."""
    begun: list[Any] = []

    @tool(idempotent=True)
    def flaky() -> str:
        """Fail once."""
        begun.append(1)
        if len(begun) == 1:
            raise ValueError("no")
        return "well"

    model = ScriptedModel(calls(call("locate"), call("flaky"), call("confirm")), says("done"))
    agent: Agent[Any] = guide(tools=[flaky], parallel_tools=True)
    async with runtime(agent, model=model) as client:
        turn = await client.start("guide", "go", client_tools=[LOCATE, CONFIRM])
        waiting = await until_calls(turn, 2)
        kinds = [change.state.waiting.kind async for change in _until_client(turn)]
        for one in waiting:
            await client.finish_call(one.token, one.tool)
        report = await turn.result()

    assert kinds[-1] == "client"
    contents = [result.content for result in report.steps[0].results]
    assert contents[0] == "locate"
    assert contents[2] == "confirm"


async def _until_client(turn: Any) -> Any:
    async for change in turn.changes():
        if change.state.waiting is not None:
            yield change
            if change.state.waiting.kind == "client":
                return
