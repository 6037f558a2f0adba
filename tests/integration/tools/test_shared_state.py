"""The shared state of a turn, which its tools read and change."""

from __future__ import annotations

import math

import pytest

from perdure import Delegate, Task, ToolContext, errors, limits, tool
from perdure.clients import Turn
from perdure.testing import FunctionModel, ModelRequest, Reply, ScriptedModel, call, calls, says
from perdure.turn.facts import ToolReturned
from perdure.values.messages import ToolMessage

from ...conftest import Runtime
from ...support.long_turns import SHORT_TASK, begin, runs_of
from ...support.resets import reset, task_ends
from ...support.scheduling import new_id
from ...support.sharing import keeper, putting
from ...support.spending import look

BIG = "x" * (limits.SHARED_STATE_BYTES // 2)


def puts_task(request: ModelRequest) -> Reply:
    """Put what the last message says, as `name value`, and answer what was in the state."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return says(last.results[0].content)
    name, _, value = last.text.partition(" ")
    return calls(putting(name, value))


async def patches(turn: Turn) -> list[object]:
    """What the results of a turn say that they have changed."""
    facts = [event.fact async for event in turn.events()]
    returned = [fact.output.shared_patch for fact in facts if isinstance(fact, ToolReturned)]
    return [patch for patch in returned if patch]


@pytest.mark.accepts("F34")
async def test_changes_are_recorded_with_results(runtime: Runtime) -> None:
    """Later calls see them, and so do status, report and history; a call that raises has none."""
    model = ScriptedModel(
        calls(putting("cart", {"lamps": 1})),
        calls(call("fail")),
        calls(putting("cart", {"chairs": 2})),
        calls(putting("user", None)),
        says("done"),
    )
    async with runtime(keeper(), model=model) as client:
        turn = await client.start("keeper", "go", shared_state={"user": "ada"})
        report = await turn.result()
        status = await turn.status()
        now = await turn.shared_state()
        recorded = await patches(turn)

    contents = [result.content for step in report.steps for result in step.results]
    assert [contents[0], *contents[2:]] == ["cart, user", "cart, user", "cart"]
    assert report.shared_state == {"cart": {"lamps": 1, "chairs": 2}}
    assert status.shared_state == now == report.shared_state
    assert recorded == [{"cart": {"lamps": 1}}, {"cart": {"chairs": 2}}, {"user": None}]


@pytest.mark.accepts("F34", "F36")
async def test_calls_side_by_side_and_local_calls(runtime: Runtime) -> None:
    """Changes of calls that run together are merged; a local call has them as any other."""
    agent = keeper(parallel_tools=True)
    model = ScriptedModel(
        calls(putting("a", 1), putting("b", 2)),
        calls(call("tick", name="n")),
        calls(call("tick", name="n")),
        says("done"),
    )
    async with runtime(agent, model=model) as client:
        report = await client.run("keeper", "go")

    assert report.shared_state == {"a": 1, "b": 2, "n": 2}


@pytest.mark.accepts("F40")
async def test_state_has_a_limit(runtime: Runtime) -> None:
    """A call is told at once; of calls side by side, one that does not fit changes nothing."""
    agent = keeper(parallel_tools=True)
    model = ScriptedModel(
        calls(putting("a", "x" * limits.SHARED_STATE_BYTES)),
        calls(putting("a", BIG), putting("b", BIG)),
        says("done"),
    )
    async with runtime(agent, model=model) as client:
        with pytest.raises(errors.TooLargeError, match="the shared state is"):
            await client.start("keeper", "go", shared_state={"a": BIG, "b": BIG})
        with pytest.raises(errors.InvalidRequestError, match="no JSON"):
            await client.start("keeper", "go", shared_state={"a": math.inf})
        report = await client.run("keeper", "go")

    [alone], together = (step.results for step in report.steps[:2])
    assert alone.is_error
    assert "the shared state is" in alone.content
    assert [result.is_error for result in together] == [False, False]
    fits = ["do not fit into 16384 bytes" not in result.content for result in together]
    assert sorted(fits) == [False, True]  # whichever was recorded first
    assert report.shared_state == {("a" if fits[0] else "b"): BIG}


@pytest.mark.accepts("F36")
async def test_later_runs_and_handoffs_have_it(runtime: Runtime) -> None:
    """Also after another agent has taken over."""
    tools = [*keeper().tools, look]
    desk = keeper(name="desk", description="A desk.", tools=tools, parallel_tools=True)
    first = keeper(handoffs=["desk"])
    model = ScriptedModel(
        calls(putting("a", 1)),
        calls(call("hand_over", agent="desk", message="yours")),
        calls(putting("b", 2)),
        *(calls(*(call("look", number=n + 60 * step) for n in range(60))) for step in range(2)),
        calls(putting("c", 3)),
        says("done"),
    )
    async with runtime([first, desk], model=model) as client:
        turn = await begin(client, "keeper", timeout=SHORT_TASK, max_iterations=20)
        report = await turn.result()
        runs = await runs_of(client, turn)

    assert len(runs) > 1
    assert report.shared_state == {"a": 1, "b": 2, "c": 3}


@pytest.mark.accepts("F36")
async def test_reset_has_the_state_of_its_point(runtime: Runtime) -> None:
    """What was changed after it is gone; the calls that are made again change it again."""
    model = ScriptedModel(calls(putting("a", 1)), calls(putting("b", 2)), says("x"), says("again"))
    async with runtime(keeper(), model=model) as client:
        turn = await client.start("keeper", "go")
        await turn.result()
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
        again = await reset(client, turn, task_ends(history)[2])
        report = await again.result()

    assert report.shared_state in ({"a": 1}, {"a": 1, "b": 2})
    assert len(report.shared_state) == sum(len(step.results) for step in report.steps)


@pytest.mark.accepts("F37")
async def test_fork_has_the_state_of_its_step(runtime: Runtime) -> None:
    """Or another one; a resume goes on with that of the last step."""
    model = ScriptedModel(
        calls(putting("a", 1)),
        calls(putting("b", 2)),
        says("done"),
        *(says("fork") for _ in range(3)),
        calls(putting("c", 3)),
        calls(putting("d", 4)),
        says("resumed"),
    )
    async with runtime(keeper(), model=model) as client:
        turn = await client.start("keeper", "go")
        await turn.result()
        kept = [await turn.fork(step, say="And?") for step in (1, 2)]
        other = await turn.fork(1, say="And?", shared_state={"z": 0})
        states = [(await fork.result()).shared_state for fork in (*kept, other)]
        stopped = await client.start("keeper", "go", max_iterations=1)
        with pytest.raises(errors.MaxIterationsError) as ended:
            await stopped.result()
        resumed = await (await stopped.resume(max_iterations=5)).result()

    assert states == [{"a": 1}, {"a": 1, "b": 2}, {"z": 0}]
    assert ended.value.report is not None
    assert ended.value.report.shared_state == {"c": 3}
    assert resumed.shared_state == {"c": 3, "d": 4}


@pytest.mark.accepts("F38")
async def test_turns_of_a_session_go_on_with_it(runtime: Runtime) -> None:
    """A message may bring another; a fork of the session has that of its turn."""
    async with runtime(keeper(), model=FunctionModel(puts_task)) as client:
        session = client.session(new_id("chat"), "keeper")
        outputs = [(await (await session.say(f"{name} 1")).result()).output for name in "abc"]
        with pytest.raises(errors.InvalidRequestError, match="a shared state of its own"):
            await session.say("x 1", shared_state={}, if_busy="steer")
        with pytest.raises(errors.TooLargeError, match="the shared state is"):
            await session.say("x 1", shared_state={"a": BIG, "b": BIG})
        early = await session.fork(1, id=new_id("early"))
        late = await session.fork(id=new_id("late"))
        forked = [(await (await each.say("d 1")).result()).output for each in (early, late)]
        brought = await session.say("e 1", shared_state={"z": 1})
        outputs.append((await brought.result()).output)
        emptied = await session.say("f 1", shared_state={})
        outputs.append((await emptied.result()).output)

    assert outputs == ["a", "a, b", "a, b, c", "e, z", "f"]
    assert forked == ["a, d", "a, b, c, d"]


@pytest.mark.accepts("F39")
async def test_delegates_and_batches_have_states_of_their_own(runtime: Runtime) -> None:
    """A delegate begins without one, and what it changes stays in its turn."""
    boss = keeper(name="boss", delegates=[Delegate("keeper")])
    helper = keeper(description="Keeps.")
    model = ScriptedModel(
        calls(putting("a", 1)),
        calls(call("delegate_to_agent", agent="keeper", task="help")),
        calls(putting("b", 2)),
        says("helped"),
        says("done"),
    )
    async with runtime([boss, helper], model=model) as client:
        turn = await client.start("boss", "go", shared_state={"z": 0})
        report = await turn.result()
        below = await client.turn(report.children[0].turn_id).shared_state()

    assert report.shared_state == {"z": 0, "a": 1}
    assert below == {"b": 2}


@pytest.mark.accepts("F39")
async def test_each_task_of_a_batch_begins_with_the_state_of_the_batch(runtime: Runtime) -> None:
    """And changes its own; a message of a schedule to a session has none."""
    async with runtime(keeper(), model=FunctionModel(puts_task)) as client:
        batch = await client.start_batch(
            new_id("batch"), "keeper", ["a 1", "b 1"], shared_state={"z": 0}
        )
        await batch.wait()
        outputs = sorted([str(result.output) async for result in batch.results()])
        with pytest.raises(errors.InvalidRequestError, match="shared_state cannot be combined"):
            await client.create_schedule(
                new_id("daily"),
                "keeper",
                "a 1",
                cron="0 7 * * *",
                timezone="UTC",
                session=new_id("chat"),
                shared_state={"z": 0},
            )

    assert outputs == ["a, z", "b, z"]


@pytest.mark.accepts("F41")
async def test_job_changes_it_when_it_is_started_and_not_when_it_is_polled(
    runtime: Runtime,
) -> None:
    """What looks after a call only reads it."""
    said: list[str] = []

    def poll(ctx: ToolContext[None], handle: str) -> str:
        try:
            ctx.change_shared_state({"polled": True})
        except ValueError as error:
            said.append(str(error))
        return f"{handle}: {sorted(ctx.shared_state)}"

    @tool(later=True, poll=poll)
    def launch(ctx: ToolContext[None]) -> str:
        """Start a job."""
        ctx.change_shared_state({"job": "begun"})
        return "j-1"

    model = ScriptedModel(calls(call("launch")), says("done"))
    async with runtime(keeper(tools=[launch]), model=model) as client:
        turn = await client.start("keeper", Task(content="go"))
        report = await turn.result()

    assert report.shared_state == {"job": "begun"}
    assert report.steps[0].results[0].content == "j-1: ['job']"
    assert said == ["only the call of a tool itself changes the shared state"]
