"""Delegation: agents that give tasks to other agents, as child workflows."""

import asyncio
import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic_core import from_json

from perdure import (
    Agent,
    Budget,
    Delegate,
    Outcome,
    Registry,
    Task,
    TurnInfo,
    UserMessage,
    errors,
    tool,
)
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient, Turn
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import PendingApproval
from perdure.values.messages import ToolCall
from perdure.worker import AgentWorker

from ...conftest import Runtime, eventually
from ...support.delegating import (
    FREE,
    app,
    delegate,
    editor,
    entries,
    researcher,
    results,
    spawn,
    used,
    writer,
)
from ...support.spending import Held

TOOLS = ("list_agents", "delegate_to_agent", "spawn_agents")


@tool(read_only=True)
def look(number: int = 1) -> str:
    """Look somewhere."""
    return f"seen {number}"


@pytest.mark.accepts("D1")
async def test_agent_with_delegates_gets_three_tools_and_one_without_gets_none(
    runtime: Runtime,
) -> None:
    """After its own tools, for its delegates only, whatever else is in the registry."""
    models = {"editor": ScriptedModel("done"), "loner": ScriptedModel("done")}
    loner = Agent(name="loner", model="scripted:loner", tools=[look])
    worker = AgentWorker([editor(tools=[look]), researcher(), writer(), loner], prices=FREE)
    async with runtime(worker, model=models) as client:
        await client.run("editor", "go")
        await client.run("loner", "go")

    assert [item.name for item in models["editor"].requests[0].tools] == ["look", *TOOLS]
    assert [item.name for item in models["loner"].requests[0].tools] == ["look"]
    agent = models["editor"].requests[0].tools[2].parameters["properties"]["agent"]  # type: ignore[index,call-overload]
    assert agent["enum"] == ["researcher", "writer"]  # type: ignore[index,call-overload]


@pytest.mark.table(1)
@pytest.mark.accepts("D2")
@pytest.mark.parametrize(
    ("agents", "listed"),
    [
        (
            [writer(), researcher()],
            [
                {"name": "researcher", "description": "Finds facts."},
                {"name": "writer", "description": "Writes texts."},
            ],
        ),
        ([], []),
    ],
    ids=["others", "alone"],
)
async def test_list_of_agents_is_sorted_and_without_oneself(
    runtime: Runtime, agents: list[Agent], listed: list[dict[str, str]]
) -> None:
    """With the whole registry as delegates; an agent on its own gets an empty list."""
    model = ScriptedModel(calls(call("list_agents")), says("done"))
    async with runtime(
        AgentWorker([editor(delegates="all"), *agents], prices=FREE), model={"editor": model}
    ) as client:
        await client.run("editor", "go")

    [result] = results(model)
    assert (from_json(result.content), result.is_error) == (listed, False)


@pytest.mark.accepts("D2", "T23")
async def test_agent_of_a_factory_is_listed_with_its_docstring(runtime: Runtime) -> None:
    """Before the factory is called."""

    def maker(info: TurnInfo) -> Agent:
        """Makes things."""
        return Agent(name="maker", model="scripted:maker")

    model = ScriptedModel(calls(call("list_agents")), says("done"))
    async with runtime(
        AgentWorker(Registry([editor(delegates="all"), maker]), prices=FREE),
        model={"editor": model},
    ) as client:
        await client.run("editor", "go")

    [result] = results(model)
    assert from_json(result.content) == [{"name": "maker", "description": "Makes things."}]


@pytest.mark.accepts("D3")
async def test_delegate_is_a_child_workflow_that_sees_only_its_task(runtime: Runtime) -> None:
    """Its id is readable, its answer is the result of the call, and the parent's report contains
    it.
    """
    models = {
        "editor": ScriptedModel(delegate("researcher", "How long?"), says("30 days it is")),
        "researcher": ScriptedModel("30 days"),
    }
    async with runtime(app(), model=models) as client:
        turn = await client.start(
            "editor", "Write about notice", id="ticket-1", labels={"team": "hr"}
        )
        report = await turn.result()
        child = client.turn("ticket-1/researcher-1")
        inside = await child.result()
        described = await client.temporal.get_workflow_handle("ticket-1/researcher-1").describe()

    [result] = results(models["editor"])
    assert (result.name, result.content, result.is_error) == ("delegate_to_agent", "30 days", False)
    assert models["researcher"].requests[0].messages == (UserMessage.of("How long?"),)
    assert (report.output, inside.output) == ("30 days it is", "30 days")
    [branch] = report.children
    assert (branch.turn_id, branch.agent, branch.task, branch.outcome, branch.steps) == (
        "ticket-1/researcher-1",
        "researcher",
        "How long?",
        Outcome.COMPLETED,
        1,
    )
    assert described.parent_id == "ticket-1"


ODD = [
    (call("delegate_to_agent", agent="editor", task="x"), "cannot delegate to itself"),
    (
        call("delegate_to_agent", agent="nobody", task="x"),
        "there is no agent named 'nobody' to delegate to; there are: researcher, writer",
    ),
    (call("delegate_to_agent", agent="researcher"), "task is missing"),
    (call("delegate_to_agent", agent="researcher", task="  "), "task is missing"),
    (call("delegate_to_agent", agent=3, task="x"), "agent is missing, or no text"),
    (call("delegate_to_agent").model_copy(update={"arguments": '{"agent": "resea'}), "no JSON"),
    (call("delegate_to_agent").model_copy(update={"arguments": "[]"}), "agent is missing"),
    (call("spawn_agents", tasks="all"), "tasks is missing"),
    (call("spawn_agents", tasks=[{"agent": "researcher"}]), "task 1: task is missing"),
    (
        call(
            "spawn_agents",
            tasks=[{"agent": "researcher", "task": "x"}, {"agent": "editor", "task": "y"}],
        ),
        "cannot delegate to itself",
    ),
    (
        call("spawn_agents", tasks=[{"agent": "researcher", "task": "x"}] * 6),
        "6 agents at once are more than 5",
    ),
]


@pytest.mark.accepts("D4", "D8")
@pytest.mark.parametrize(
    ("asked", "reason"), ODD, ids=lambda one: one if isinstance(one, str) else ""
)
@pytest.mark.table(2)
async def test_what_a_guard_refuses_is_an_error_result_and_starts_nothing(
    runtime: Runtime, asked: ToolCall, reason: str
) -> None:
    """Itself, an unknown agent, invalid arguments, too many at once; one such task refuses the
    whole batch.
    """
    model = ScriptedModel(calls(asked), says("done"))
    async with runtime(app(), model={"editor": model}) as client:
        report = await client.run("editor", "go")

    [result] = results(model)
    assert reason in result.content
    assert "nothing was started" in result.content
    assert (result.is_error, report.children, report.outcome) == (True, (), Outcome.COMPLETED)


@pytest.mark.accepts("D4")
async def test_depth_of_nothing_refuses(runtime: Runtime) -> None:
    """An agent with max_depth=0 may not delegate."""
    model = ScriptedModel(delegate("researcher", "x"), says("done"))
    async with runtime(app(max_depth=0), model={"editor": model}) as client:
        report = await client.run("editor", "go")

    assert "may not delegate" in results(model)[0].content
    assert report.children == ()


@pytest.mark.accepts("D5")
async def test_depth_is_the_least_of_all_above(runtime: Runtime) -> None:
    """A child of an agent with max_depth=1 may not delegate, even if its own limit is larger."""
    models = {
        "editor": ScriptedModel(delegate("researcher", "find"), says("done")),
        "researcher": ScriptedModel(delegate("writer", "write"), says("not I")),
    }
    worker = app(researcher(delegates=["writer"], max_depth=9), writer(), max_depth=1)
    async with runtime(worker, model=models) as client:
        await client.run("editor", "go")

    assert "may not delegate" in results(models["researcher"])[0].content
    assert results(models["editor"])[0].content == "not I"


@pytest.mark.slow
@pytest.mark.accepts("D14")
async def test_cycle_ends_at_the_depth_limit(runtime: Runtime) -> None:
    """A delegates to B, B to A, and so on, down to three levels below the root."""
    other = {"editor": "researcher", "researcher": "editor"}
    models = {
        name: ScriptedModel(
            *[delegate(other[name], "go on") for _ in range(2)],
            *[says(f"{name} ends") for _ in range(4)],
        )
        for name in other
    }
    worker = AgentWorker(
        [editor(delegates=["researcher"]), researcher(delegates=["editor"])], prices=FREE
    )
    async with runtime(worker, model=models) as client:
        turn = await client.start("editor", "go", id="cycle")
        report = await turn.result()

    ids, level = [], report.children
    while level:
        ids.append(level[0].turn_id)
        level = level[0].children
    assert ids == [
        "cycle/researcher-1",
        "cycle/researcher-1/editor-1",
        "cycle/researcher-1/editor-1/researcher-1",
    ]


@pytest.mark.accepts("D14")
async def test_number_of_children_of_a_turn_is_limited(runtime: Runtime) -> None:
    """The third one is refused if two may be started, with the reason."""
    model = ScriptedModel(
        *[delegate("writer", f"text {number}") for number in range(3)], says("done")
    )
    scripts = {f"text {number}": ScriptedModel("ok") for number in range(3)} | {"go": model}
    async with runtime(app(max_children=2), model=ByTask(scripts)) as client:
        report = await client.run("editor", "go")

    assert "may start 2 agents, and 0 of them are left" in results(model)[0].content
    assert [child.turn_id.rpartition("/")[2] for child in report.children] == [
        "writer-1",
        "writer-2",
    ]


@pytest.mark.accepts("D18", "D19")
async def test_number_of_turns_of_a_tree_is_limited(runtime: Runtime) -> None:
    """A delegate cannot start more than its share; its parent uses the rest, and no more."""
    researching = ScriptedModel(
        delegate("writer", "below"), delegate("writer", "too many"), says("found")
    )
    model = ScriptedModel(
        delegate("researcher", "research"),
        *[delegate("writer", f"text {number}") for number in range(3)],
        says("done"),
    )
    scripts = {"research": researching, "below": ScriptedModel("ok"), "go": model} | {
        f"text {number}": ScriptedModel("ok") for number in range(3)
    }
    agents = researcher(delegates=["writer"]), writer()
    async with runtime(app(*agents, max_descendants=4), model=ByTask(scripts)) as client:
        report = await client.run("editor", "go")

    refusal = "nothing was started: the tree of agents is limited, and 0 more of them are left here"
    assert refusal in results(researching)[0].content
    assert [len(child.children) for child in report.children] == [1, 0, 0]
    assert [refusal in step.results[0].content for step in report.steps[:-1]] == [
        False,
        False,
        False,
        True,
    ]


@pytest.mark.accepts("D6")
async def test_spawned_agents_overlap_and_their_results_are_in_input_order(
    runtime: Runtime,
) -> None:
    """The slowest is first in the input and first in the result."""
    model = ScriptedModel(
        spawn(("writer", "slow"), ("researcher", "quick"), ("writer", "middle")), says("done")
    )
    scripts = {
        "go": model,
        "slow": ScriptedModel(says("s", delay=timedelta(seconds=1.5))),
        "quick": ScriptedModel("q"),
        "middle": ScriptedModel(says("m", delay=timedelta(seconds=0.5))),
    }
    async with runtime(app(), model=ByTask(scripts)) as client:
        turn = await client.start("editor", "go", id="spawned")
        await turn.result()
        times = [await _times(client, child) for child in ("writer-1", "researcher-2", "writer-3")]

    assert [(one["agent"], one["outcome"], one["output"]) for one in entries(model)] == [
        ("writer", "completed", "s"),
        ("researcher", "completed", "q"),
        ("writer", "completed", "m"),
    ]
    assert max(began for began, _ in times) < min(ended for _, ended in times)


async def _times(client: AgentClient, child: str) -> tuple[datetime, datetime]:
    described = await client.temporal.get_workflow_handle(f"spawned/{child}").describe()
    assert described.close_time is not None
    return described.start_time, described.close_time


@pytest.mark.slow
async def test_empty_batch_is_an_empty_list(runtime: Runtime) -> None:
    """There is no task, so nothing is started."""
    model = ScriptedModel(spawn(), says("done"))
    async with runtime(app(), model={"editor": model}) as client:
        report = await client.run("editor", "go")

    assert [(result.content, result.is_error) for result in results(model)] == [("[]", False)]
    assert report.children == ()


@pytest.mark.table(1)
@pytest.mark.accepts("D7")
@pytest.mark.parametrize("mode", ["cancel", "collect"])
async def test_first_error_cancels_the_others_or_all_are_collected(
    runtime: Runtime, mode: str
) -> None:
    """The work of a cancelled one is kept in its entry."""
    held = ScriptedModel(
        calls(call("look"), text="half"),
        says("whole", delay=timedelta(seconds=0.5 if mode == "collect" else 60)),
    )

    class Broken(ScriptedModel):
        """Fails while the other agent is at its second step."""

        async def complete(self, request: ModelRequest) -> ModelAnswer:
            await eventually(lambda: held.call_count == 2, "the other agent works")
            return await super().complete(request)

    model = ScriptedModel(spawn(("writer", "long"), ("researcher", "broken")), says("done"))
    broken_model = Broken(fails(errors.LLMAuthError("no key")))
    scripts = {"go": model, "long": held, "broken": broken_model}
    worker = app(researcher(), writer(tools=[look]), on_child_error=mode)
    async with runtime(worker, model=ByTask(scripts)) as client:
        report = await client.run("editor", "go", id=f"first-error-{mode}")

    long, broken = entries(model)
    assert (broken["outcome"], broken["error"]) == ("failed", "LLM_AUTH: no key")
    if mode == "collect":
        assert long == {"agent": "writer", "outcome": "completed", "output": "whole"}
    else:
        assert (long["outcome"], long["output"]) == ("cancelled", "half")
        assert long["error"] == f"TURN_CANCELLED: first-error-{mode}/researcher-2 failed"
    assert [child.steps for child in report.children] == [2 if mode == "collect" else 1, 0]


@pytest.mark.accepts("D9", "D10")
async def test_child_has_its_own_tools_then_those_of_its_parent(runtime: Runtime) -> None:
    """For a duplicate name the child's own tool counts; each tool runs its owner's code; a tool
    that is not allowed is not offered.
    """

    @tool(name="common")
    def of_parent() -> str:
        return "the parent's"

    @tool(name="common")
    def of_child() -> str:
        return "the child's"

    @tool
    def secret() -> str:
        return "not for children"

    models = {
        "editor": ScriptedModel(delegate("writer", "write"), says("done")),
        "writer": ScriptedModel(calls(call("common"), call("look", number=2)), says("text")),
    }
    worker = app(
        writer(tools=[of_child]),
        tools=[of_parent, look, secret],
        delegates=[Delegate("writer", allowed_tools=["common", "look"])],
    )
    async with runtime(worker, model=models) as client:
        await client.run("editor", "go")

    assert [item.name for item in models["writer"].requests[0].tools] == ["common", "look"]
    assert [result.content for result in results(models["writer"])] == ["the child's", "seen 2"]


@pytest.mark.slow
@pytest.mark.accepts("D10")
async def test_inherited_tool_that_the_parent_may_not_use_is_not_offered_and_its_call_is_unknown(
    runtime: Runtime,
) -> None:
    """The parent's turn may only delegate, so its child inherits no tools."""
    models = {
        "editor": ScriptedModel(delegate("writer", "write"), says("done")),
        "writer": ScriptedModel(calls(call("look")), says("text")),
    }
    async with runtime(app(writer(), tools=[look], delegates=["writer"]), model=models) as client:
        await client.run("editor", "go", allowed_tools=["delegate_to_agent"])

    assert models["writer"].requests[0].tools == ()
    assert "There is no tool named 'look'" in results(models["writer"])[0].content


@pytest.mark.slow
async def test_tools_are_inherited_over_two_levels_or_not_at_all(runtime: Runtime) -> None:
    """With `inherit=False`, a delegate has only its own tools."""
    models = {
        "editor": ScriptedModel(
            delegate("researcher", "find"), delegate("writer", "alone"), says("done")
        ),
        "researcher": ScriptedModel(delegate("writer", "with all"), says("found")),
    }
    scripts = {
        "go": models["editor"],
        "find": models["researcher"],
        "with all": ScriptedModel(calls(call("look")), says("ok")),
        "alone": ScriptedModel("no"),
    }
    worker = app(
        researcher(delegates=["writer"]),
        writer(),
        tools=[look],
        delegates=["researcher", Delegate("writer", inherit=False)],
    )
    async with runtime(worker, model=ByTask(scripts)) as client:
        await client.run("editor", "go")

    assert [item.name for item in scripts["with all"].requests[0].tools] == ["look"]
    assert results(scripts["with all"])[0].content == "seen 1"
    assert scripts["alone"].requests[0].tools == ()


@pytest.mark.accepts("D15")
async def test_delegation_without_delegates_is_an_unknown_tool(runtime: Runtime) -> None:
    """Even if the registry has other agents."""
    model = ScriptedModel(delegate("writer", "x"), says("done"))
    async with runtime(app(delegates=[]), model={"editor": model}) as client:
        report = await client.run("editor", "go")

    assert (
        results(model)[0].content
        == "There is no tool named 'delegate_to_agent'. The tools are: none."
    )
    assert report.children == ()


@pytest.mark.accepts("D11")
async def test_cancel_reaches_every_descendant_with_its_reason(runtime: Runtime) -> None:
    """Three levels; each ends as cancelled, with its work so far, and nothing keeps running."""
    held = ScriptedModel(says("never", delay=timedelta(seconds=60)))
    scripts = {
        "go": ScriptedModel(delegate("researcher", "find")),
        "find": ScriptedModel(delegate("writer", "write")),
        "write": held,
    }
    async with runtime(
        app(researcher(delegates=["writer"]), writer()), model=ByTask(scripts)
    ) as client:
        turn = await client.start("editor", "go", id="stopped")
        await eventually(lambda: bool(held.requests), "the model is asked three levels down")
        await turn.cancel("enough of it")
        with pytest.raises(errors.TurnCancelledError) as stopped:
            await turn.result()
        outcomes = []
        for below in ("stopped/researcher-1", "stopped/researcher-1/writer-1"):
            with pytest.raises(errors.TurnCancelledError, match=r"enough of it") as caught:
                await client.turn(below).result()
            assert caught.value.report is not None
            outcomes.append(caught.value.report.outcome)

    assert outcomes == ["cancelled", "cancelled"]
    assert stopped.value.report is not None
    [child] = stopped.value.report.children
    assert (child.outcome, child.children[0].outcome, child.children[0].turn_id) == (
        "cancelled",
        "cancelled",
        "stopped/researcher-1/writer-1",
    )


async def test_terminated_parent_leaves_no_child_running(runtime: Runtime) -> None:
    """No code of the parent runs then; the server requests the cancellation of its children, and
    they end with their work so far.
    """
    held = ScriptedModel(says("never", delay=timedelta(seconds=60)))
    scripts = {"go": ScriptedModel(delegate("writer", "write")), "write": held}
    async with runtime(app(), model=ByTask(scripts)) as client:
        turn = await client.start("editor", "go", id="shot")
        await eventually(lambda: bool(held.requests), "the child asks its model")
        await client.temporal.get_workflow_handle("shot").terminate("an operator")
        with pytest.raises(errors.TurnTerminatedError) as ended:
            await turn.result()
        child = client.turn("shot/writer-1")
        with pytest.raises(errors.TurnCancelledError):
            await child.result()

    assert ended.value.report is not None
    assert [one.outcome for one in ended.value.report.children] == [None]


@pytest.mark.slow
async def test_terminated_child_is_told_to_its_parent_and_charged_with_what_it_reserved(
    runtime: Runtime,
) -> None:
    """The charge is read from its history: one call without an answer, at its upper bound, and not
    the whole lease.
    """
    held = ScriptedModel(says("never", delay=timedelta(seconds=60)))
    model = ScriptedModel(
        delegate("writer", "write", usage=used(100)), says("done", usage=used(200))
    )
    async with runtime(app(), model=ByTask({"go": model, "write": held})) as client:
        turn = await client.start("editor", "go", id="bereft", budget=Budget(tokens=100_000))
        await eventually(lambda: bool(held.requests), "the child asks its model")
        await client.temporal.get_workflow_handle("bereft/writer-1").terminate("an operator")
        report = await turn.result()

    assert results(model)[0].content == "writer: it was terminated"
    [child] = report.children
    assert child.outcome == Outcome.TERMINATED
    assert child.spent.model_calls == 1
    assert 0 < child.spent.tokens < (100_000 - 100) // 2
    assert report.spent.tokens == child.spent.tokens + 300


@pytest.mark.slow
async def test_delegation_can_want_an_approval_and_its_child_keeps_what_the_task_wants(
    runtime: Runtime,
) -> None:
    """`requires_human_approval` is passed down the tree: a delegate needs approval for what its
    parent needs it for.
    """

    @tool
    def send(text: str) -> str:
        return f"sent {text}"

    models = {
        "editor": ScriptedModel(delegate("writer", "send it"), says("done")),
        "writer": ScriptedModel(calls(call("send", text="hello")), says("sent")),
    }
    async with runtime(app(writer(tools=[send]), delegates=["writer"]), model=models) as client:
        turn = await client.start(
            "editor", Task(content="go", requires_human_approval=True), id="careful"
        )
        asked = await _first_pending(turn)
        assert (asked.tool, from_json(asked.arguments)) == (
            "delegate_to_agent",
            {"agent": "writer", "task": "send it"},
        )
        await turn.approve(asked)
        child = await _existing(client, "careful/writer-1")
        below = await _first_pending(child)
        assert below.tool == "send"
        await child.deny(below, "not today")
        report = await turn.result()

    assert results(models["writer"])[0].content == "This call was not run: it was denied: not today"
    assert report.outcome == Outcome.COMPLETED


async def _first_pending(turn: Turn[Any]) -> PendingApproval:
    async with asyncio.timeout(60):
        while True:
            pending = await turn.pending_approvals()
            if pending:
                return pending[0]
            await asyncio.sleep(0.05)


async def _existing(client: AgentClient, turn_id: str) -> Turn[Any]:
    async with asyncio.timeout(60):
        while True:
            try:
                await client.turn(turn_id).first_run()
                return client.turn(turn_id)
            except errors.TurnNotFoundError:
                await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_child_whose_id_is_taken_gets_another(runtime: Runtime) -> None:
    """Another turn with that id is running, such as a child of an earlier run: it is not
    touched.
    """
    held = Held("late")
    scripts = {
        "go": ScriptedModel(delegate("writer", "write"), says("done")),
        "write": ScriptedModel("text"),
        "mine": held,
    }
    async with runtime(app(), model=ByTask(scripts)) as client:
        other = await client.start("writer", "mine", id="taken/writer-1")
        turn = await client.start("editor", "go", id="taken")
        report = await turn.result()
        held.let_go.set()
        kept = await other.result()

    [child] = report.children
    assert re.fullmatch("taken/writer-1-[0-9a-f]{4}", child.turn_id)
    assert (results(scripts["go"])[0].content, report.spent.tool_calls, kept.output) == (
        "text",
        1,
        "late",
    )
