"""Which tool runs: two tools with the same name, tools that were changed or added, and tools of
factories.
"""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.worker import Worker

from perdure import Agent, Outcome, Registry, Toolbox, TurnInfo, UserMessage, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.agents.tools import Tool
from perdure.temporal.connect import connect
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker, PerdurePlugin
from perdure.worker.settings import WorkerSettings

from ...conftest import RecordingClient, Runtime, eventually
from ...support.tooling import add

MISFIT = (
    "changed was not called: it has changed since this turn began, and the arguments do not fit it:"
    " loud: Field required. Its arguments are now: "
    '{"additionalProperties":false,'
    '"properties":{"word":{"type":"string"},"loud":{"type":"boolean"}},'
    '"required":["word","loud"],"type":"object"}'
)


class Paused:
    """A model that answers when it is released."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self.go = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        answer = await self.model.complete(request)
        await self.go.wait()
        return answer

    async def close(self) -> None: ...


@pytest.mark.slow
@pytest.mark.accepts("T18")
async def test_two_agents_with_different_tools_of_one_name_run_their_own(runtime: Runtime) -> None:
    """Even if one is sync and the other async, with other arguments."""

    @tool(name="find")
    def in_books(word: str) -> str:
        return f"book about {word}"

    @tool(name="find")
    async def in_drawers(drawer: int) -> str:
        return f"drawer {drawer}"

    agents = [
        Agent(name="reader", model="scripted:x", tools=[in_books]),
        Agent(name="clerk", model="scripted:x", tools=[in_drawers]),
    ]
    models = {
        "reader": ScriptedModel(calls(call("find", word="law")), says("done")),
        "clerk": ScriptedModel(calls(call("find", drawer=4)), says("done")),
    }

    async with runtime(Registry(agents), model=models) as client:
        reports = await asyncio.gather(*(client.run(agent, "go") for agent in agents))

    assert [report.steps[0].results[0].content for report in reports] == [
        "book about law",
        "drawer 4",
    ]
    assert [
        list(models[name].requests[0].tools[0].parameters["properties"])  # type: ignore[arg-type]
        for name in models
    ] == [
        ["word"],
        ["drawer"],
    ]


@pytest.mark.slow
@pytest.mark.accepts("T18")
async def test_tool_is_an_activity_of_its_name(runtime: Runtime) -> None:
    """Its name is shown in the Temporal UI."""
    agent = Agent(name="adder", model="scripted:x", tools=[add])

    async with runtime(
        agent, model=ScriptedModel(calls(call("add", a=2, b=3)), says("five"))
    ) as client:
        turn = await client.start(agent, "2 + 3?")
        await turn.result()
        types = await _activity_types(client, turn.id)

    assert types == ["perdure.call_model", "add", "perdure.call_model"]


@pytest.mark.accepts("T22")
async def test_tool_with_the_name_of_another_activity_is_refused_when_the_worker_is_built(
    perdure_server: str,
) -> None:
    """With both names and a solution; no event loop is left open."""

    @activity.defn(name="add")
    async def book_a_sum() -> None: ...

    client = await connect(perdure_server)
    app = AgentWorker(
        Agent(name="adder", model="scripted:x", tools=[add]),
        providers={"scripted": ScriptedModel()},
    )

    with pytest.raises(errors.ConfigurationError) as caught:
        Worker(client, task_queue="taken", activities=[book_a_sum], plugins=[PerdurePlugin(app)])

    assert (
        caught.value.message == "the tool 'add' and the worker's activity"
        " 'test_tool_with_the_name_of_another_activity_is_refused_when_the_worker_is_built"
        ".<locals>.book_a_sum'"
        " have the same name; rename one of them"
    )
    del caught
    _collect()


@pytest.mark.accepts("T22")
async def test_name_of_an_activity_of_ours_is_refused_too(perdure_server: str) -> None:
    """Perdure's own activities have names with a dot, which users may choose as well."""

    @activity.defn(name="perdure.call_model")
    async def mine() -> None: ...

    client = await connect(perdure_server)
    app = AgentWorker(
        Agent(name="adder", model="scripted:x", tools=[add]),
        providers={"scripted": ScriptedModel()},
    )

    with pytest.raises(
        errors.ConfigurationError,
        match=r"Perdure's activity 'perdure\.call_model' and the worker's activity '.*mine'",
    ):
        Worker(client, task_queue="taken", activities=[mine], plugins=[PerdurePlugin(app)])

    _collect()


@pytest.mark.table(1)
@pytest.mark.accepts("T4")
@pytest.mark.parametrize(
    ("fields", "sources"),
    [
        (
            {"toolboxes": [Toolbox("maths", [add]), Toolbox("sums", [add])]},
            "toolbox 'maths' and from toolbox 'sums'",
        ),
        (
            {"tools": [add], "toolboxes": [Toolbox("maths", [add])]},
            "the agent's tools and from toolbox 'maths'",
        ),
    ],
    ids=["two boxes", "agent and box"],
)
async def test_duplicate_tool_fails_the_turn_before_the_model_is_asked(
    runtime: Runtime, fields: dict[str, Any], sources: str
) -> None:
    """With the tool and both sources; the agent was registered after the worker had started."""
    model = ScriptedModel(says("never"))
    registry = Registry()

    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        registry.add(Agent(name="adder", model="scripted:x", **fields))
        with pytest.raises(errors.DuplicateToolError) as caught:
            await client.run("adder", "2 + 3?")

    assert (
        caught.value.message
        == f"agent adder: the tool 'add' comes from {sources}; rename one with @tool(name=…), or"
        " take toolbox.prefixed(…)"
    )
    assert caught.value.report is not None
    assert (caught.value.report.outcome, caught.value.report.model_calls, model.call_count) == (
        Outcome.FAILED,
        0,
        0,
    )


@pytest.mark.slow
@pytest.mark.accepts("T4")
async def test_duplicate_tool_of_a_registered_agent_is_refused_when_the_worker_is_built(
    runtime: Runtime,
) -> None:
    """Before the first turn."""
    agent = Agent(
        name="adder", model="scripted:x", tools=[add], toolboxes=[Toolbox("maths", [add])]
    )

    with pytest.raises(
        errors.DuplicateToolError,
        match="the tool 'add' comes from the agent's tools and from toolbox 'maths'",
    ):
        async with runtime(agent, model=ScriptedModel()):
            pass

    _collect()


@pytest.mark.slow
@pytest.mark.accepts("T20")
async def test_tool_that_changed_while_the_model_was_thinking_is_not_called(
    runtime: Runtime,
) -> None:
    """A tool that is gone or has other arguments gives an error result with its name. One with a
    new body runs as deployed, and the next turn has the new tools.
    """
    called: list[str] = []

    def before(name: str) -> Tool:
        @tool(name=name)
        def act(word: str) -> str:
            called.append(f"old {name}")
            return "old"

        return act

    @tool(name="changed")
    def changed(word: str, loud: bool) -> str:
        called.append("new changed")
        return "new"

    @tool(name="kept")
    def kept(word: str) -> str:
        called.append("new kept")
        return "new"

    agent = Agent(
        name="worker", model="scripted:x", tools=[before("gone"), before("changed"), before("kept")]
    )
    asked = [call(name, word="a") for name in ("gone", "changed", "kept")]
    model = Paused(ScriptedModel(calls(*asked), says("done"), calls(*asked), says("done")))
    registry = Registry([agent])

    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        turn = await client.start(agent, "go")
        await eventually(lambda: model.model.call_count == 1, "the model thinks")
        registry.add(replace(agent, tools=[changed, kept]), replace=True)
        model.go.set()
        running, following = await turn.result(), await client.run(agent, "go")

    assert [
        (result.name, result.content, result.is_error) for result in running.steps[0].results
    ] == [
        (
            "gone",
            "gone: the deployed worker does not have this tool of agent worker any more",
            True,
        ),
        ("changed", MISFIT, True),
        ("kept", "new", False),
    ]
    assert [[item.name for item in request.tools] for request in model.model.requests] == [
        ["gone", "changed", "kept"]
    ] * 2 + [["changed", "kept"]] * 2
    assert [(result.content, result.is_error) for result in following.steps[0].results] == [
        ("There is no tool named 'gone'. The tools are: changed, kept.", True),
        ("changed was not called, its arguments are not valid: loud: Field required", True),
        ("new", False),
    ]
    assert called == ["new kept", "new kept"]


@pytest.mark.slow
@pytest.mark.accepts("T20")
async def test_tool_of_a_replaced_agent_may_change_its_kind(runtime: Runtime) -> None:
    """Sync when the worker started, async now, and the other way round: the deployed function runs
    and its result is recorded.
    """

    @tool(name="first")
    def first_sync() -> str:
        return "old"

    @tool(name="second")
    async def second_async() -> str:
        return "old"

    @tool(name="first")
    async def first_async() -> str:
        return "new, async"

    @tool(name="second")
    def second_sync() -> str:
        return "new, sync"

    agent = Agent(name="worker", model="scripted:x", tools=[first_sync, second_async])
    registry = Registry([agent])
    model = ScriptedModel(calls(call("first"), call("second")), says("done"))

    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        registry.add(replace(agent, tools=[first_async, second_sync]), replace=True)
        report = await client.run(agent, "go")

    assert [result.content for result in report.steps[0].results] == ["new, async", "new, sync"]


@pytest.mark.accepts("T20")
async def test_tool_added_after_the_worker_started_runs_in_the_next_turn(runtime: Runtime) -> None:
    """In the activity for tools that were not known at the start."""
    agent = Agent(name="worker", model="scripted:x")
    registry = Registry([agent])
    model = ScriptedModel(calls(call("add", a=2, b=3)), says("five"))

    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        registry.add(replace(agent, tools=[add]), replace=True)
        turn = await client.start(agent, "2 + 3?")
        report = await turn.result()
        types = await _activity_types(client, turn.id)

    assert report.steps[0].results[0].content == "5"
    assert types == [
        "perdure.call_model",
        "perdure.call_sync_tool",
        "perdure.call_model",
    ]


@pytest.mark.slow
@pytest.mark.accepts("T20")
async def test_worker_of_another_release_without_the_tool_answers_with_an_error_result(
    perdure_server: str,
) -> None:
    """The worker that started the turn stops during the model call; the next one never had the
    tool's activity.
    """
    client = await connect(perdure_server)
    settings = WorkerSettings(task_queue="test-two-releases", grace=timedelta(milliseconds=100))
    agent = Agent(name="worker", model="scripted:x", tools=[add])
    old = Paused(ScriptedModel(says("never")))
    new = ScriptedModel(calls(call("add", a=2, b=3)), says("done"))
    recording = RecordingClient(client, "test-two-releases")

    async with AgentWorker(agent, providers={"scripted": old}).running(client, settings=settings):
        turn = await recording.start(agent, "2 + 3?")
        await eventually(lambda: old.model.call_count == 1, "the model thinks")
    async with AgentWorker(replace(agent, tools=[]), providers={"scripted": new}).running(
        client, settings=settings
    ):
        report = await turn.result()

    [result] = report.steps[0].results
    assert (result.content, result.is_error) == (
        "add: it could not be run: the deployed worker does not have this tool",
        True,
    )
    assert report.output == "done"


@pytest.mark.slow
@pytest.mark.accepts("D16")
async def test_factory_is_called_once_a_turn_and_the_tools_it_makes_run(runtime: Runtime) -> None:
    """With task and labels; sync and async tools that no worker had before, over several steps and
    concurrent turns.
    """
    made: list[TurnInfo] = []

    def clerk(info: TurnInfo) -> Agent:
        made.append(info)
        team = info.labels["team"]

        @tool
        def look() -> str:
            return f"{team} looked"

        @tool
        async def ask() -> str:
            return f"{team} asked"

        return Agent(name="clerk", model="scripted:x", tools=[look, ask])

    script = [calls(call("look"), call("ask")), calls(call("look")), says("done")]
    teams = ["law", "tax", "art"]

    async with runtime(
        Registry([clerk]),
        model={"clerk": _ByTask({team: ScriptedModel(*script) for team in teams})},
    ) as client:
        turns = [
            await client.start("clerk", team, id=f"factory-{team}", labels={"team": team})
            for team in teams
        ]
        reports = [await turn.result() for turn in turns]
        types = await _activity_types(client, "factory-law")

    assert sorted(
        (info.turn_id, info.agent, info.task.text, info.labels["team"]) for info in made
    ) == [(f"factory-{team}", "clerk", team, team) for team in sorted(teams)]
    assert [
        [result.content for step in report.steps for result in step.results] for report in reports
    ] == [[f"{team} looked", f"{team} asked", f"{team} looked"] for team in teams]
    assert types[2:4] == ["perdure.call_sync_tool", "perdure.call_tool"]


@pytest.mark.slow
@pytest.mark.accepts("D16")
async def test_factory_of_a_turn_that_another_process_began_is_called_there_too(
    perdure_server: str,
) -> None:
    """Task and labels come from the turn's input, so the tools are the same."""
    made: list[tuple[str, TurnInfo]] = []

    def factory_of(process: str) -> Callable[[TurnInfo], Agent]:
        def clerk(info: TurnInfo) -> Agent:
            made.append((process, info))

            @tool
            def look(word: str) -> str:
                return f"{process} looked for {word}, {info.labels['team']}: {info.task.text}"

            return Agent(name="clerk", model="scripted:x", tools=[look])

        return clerk

    client = await connect(perdure_server)
    settings = WorkerSettings(task_queue="test-two-processes", grace=timedelta(milliseconds=100))
    old = Paused(ScriptedModel(says("never")))
    new = ScriptedModel(calls(call("look", word="a")), says("done"))
    recording = RecordingClient(client, "test-two-processes")

    async with AgentWorker([factory_of("first")], providers={"scripted": old}).running(
        client, settings=settings
    ):
        turn = await recording.start("clerk", "go", labels={"team": "law"})
        await eventually(lambda: old.model.call_count == 1, "the model thinks")
    async with AgentWorker([factory_of("second")], providers={"scripted": new}).running(
        client, settings=settings
    ):
        report = await turn.result()

    assert report.steps[0].results[0].content == "second looked for a, law: go"
    assert [process for process, _ in made] == ["first", "second"]
    assert made[0][1] == made[1][1]


@pytest.mark.accepts("D16")
@pytest.mark.slow
async def test_agents_added_from_threads_while_turns_start_are_all_there(runtime: Runtime) -> None:
    """Each of them runs a turn as soon as it is registered."""
    registry = Registry()
    names = [f"agent-{n}" for n in range(20)]
    model = ScriptedModel(*[says("here")] * len(names))

    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:

        async def add_and_run(name: str) -> str:
            await asyncio.to_thread(registry.add, Agent(name=name, model="scripted:x"))
            return str((await client.run(name, "go")).output)

        outputs = await asyncio.gather(*(add_and_run(name) for name in names))

    assert outputs == ["here"] * len(names)
    assert registry.list() == tuple(sorted(names))


class _ByTask:
    """Sends each turn's requests to the model for its task."""

    def __init__(self, models: dict[str, ScriptedModel]) -> None:
        self._models = models

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        [first, *_] = request.messages
        assert isinstance(first, UserMessage)
        return await self._models[first.text].complete(request)

    async def close(self) -> None: ...


def _collect() -> None:
    """Collect garbage, so that an open event loop of a refused worker warns here and not in a later
    test.
    """
    gc.collect()


async def _activity_types(client: RecordingClient, turn_id: str) -> list[str]:
    history = await client.temporal.get_workflow_handle(turn_id).fetch_history()
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
