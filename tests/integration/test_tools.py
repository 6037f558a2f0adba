"""Tools at work: what they may do wrong, what they get, where they run, and what becomes of them."""

import asyncio
import contextlib
import gc
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.worker import Worker

from perdure import (
    Agent,
    AgentReport,
    AssistantMessage,
    Outcome,
    Registry,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolMessage,
    ToolResult,
    TurnInfo,
    UserMessage,
    errors,
    limits,
    tool,
)
from perdure.activities.connection import connect
from perdure.activities.models import ModelRequest
from perdure.facts import Key, Scheduled
from perdure.testing import ScriptedModel, call, calls, says
from perdure.tools import AnyTool
from perdure.wire import ModelAnswer
from perdure.worker import AgentWorker, PerdurePlugin
from perdure.worker.settings import WorkerSettings

from ..conftest import RecordingClient, Run, Runtime, eventually


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Paused:
    """A model that gives its answers when it is let."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self.go = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        answer = await self.model.complete(request)
        await self.go.wait()
        return answer

    async def close(self) -> None: ...


async def results_of(run: Run, *asked: ToolCall, tools: list[Any]) -> list[tuple[str, bool]]:
    """Content and `is_error` of each call's result, in a turn that goes on to its answer."""
    model = ScriptedModel(calls(*asked), says("done"))

    report: AgentReport = await run(model, tools=tools)

    assert (report.outcome, report.output) == (Outcome.COMPLETED, "done")
    assert model.requests[1].messages[-1] == ToolMessage(results=report.steps[0].results)
    return [(result.content, result.is_error) for result in report.steps[0].results]


# What a tool does wrong is data for the model.


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Stop(BaseException):
    """Neither Exception nor SystemExit, like those of test runners and schedulers."""


def raises(error: BaseException) -> AnyTool:
    @tool(name="break")
    def broken() -> None:
        raise error

    return broken


def raises_later(error: BaseException) -> AnyTool:
    @tool(name="break", timeout=timedelta(seconds=5))
    async def broken() -> None:
        raise error

    return broken


@pytest.mark.accepts("T1")
@pytest.mark.parametrize("make", [raises, raises_later], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("error", "content"),
    [
        (ValueError("the file is empty"), "break failed: ValueError: the file is empty"),
        (KeyError(), "break failed: KeyError: no message"),
        (errors.LLMAuthError("no key"), "break failed: LLMAuthError: no key"),
        (ValueError("half \ud800 a pair"), "break failed: ValueError: half ? a pair"),
    ],
    ids=["message", "no message", "ours", "surrogate"],
)
async def test_tool_that_raises_is_an_error_result(run: Run, make: Callable[[BaseException], AnyTool], error: BaseException, content: str) -> None:
    """Type and message of the exception, and the loop goes on; an error of ours raised by a tool ends nothing either."""
    results = await results_of(run, call("break"), tools=[make(error)])

    assert results == [(content, True)]


@pytest.mark.accepts("T1", "T2")
@pytest.mark.parametrize("make", [raises, raises_later], ids=["sync", "async"])
@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), Stop("halt"), GeneratorExit(), asyncio.CancelledError(), UnprintableError()],
    ids=lambda error: type(error).__name__,
)
async def test_tool_that_raises_what_nobody_catches_is_an_error_result(
    run: Run, make: Callable[[BaseException], AnyTool], error: BaseException
) -> None:
    """The worker lives, the next call works, and the model reads that the tool ran and failed, which is not the same as "could not be run"."""
    results = await results_of(run, call("break"), call("add", a=2, b=3), tools=[make(error), add])

    assert results[0][1]
    assert results[0][0].startswith(f"break failed: {type(error).__name__}: ")
    assert results[1] == ("5", False)


@pytest.mark.accepts("T2")
async def test_sync_tool_that_calls_exit_is_an_error_result(run: Run) -> None:
    """`sys.exit` with a message, as command lines do."""

    @tool
    def leave() -> None:
        sys.exit("usage: leave NAME")

    results = await results_of(run, call("leave"), call("add", a=2, b=3), tools=[leave, add])

    assert results == [("leave failed: SystemExit: usage: leave NAME", True), ("5", False)]


@pytest.mark.accepts("T2")
async def test_exit_in_a_task_of_an_async_tool_does_not_end_the_loop_of_all_tools(run: Run) -> None:
    """`gather` and `wait_for` make tasks, and asyncio lets a `SystemExit` of a task fall through the loop: other tools must not hang after it."""

    async def command_line() -> None:
        sys.exit(3)

    @tool(timeout=timedelta(seconds=2))
    async def leave() -> None:
        await asyncio.gather(command_line())

    @tool(timeout=timedelta(seconds=2))
    async def stay() -> str:
        return "here"

    async with asyncio.timeout(12):
        results = await results_of(run, call("leave"), call("stay"), tools=[leave, stay])

    assert results == [("leave failed: SystemExit: 3", True), ("here", False)]


@pytest.mark.accepts("T8")
async def test_results_are_text_json_or_an_error_result(run: Run) -> None:
    """What cannot be encoded is said to the model; it is no failure of the turn."""
    values: dict[str, object] = {
        "text": "plain",
        "number": 1.5,
        "nothing": None,
        "nested": {"rows": [{"id": 1, "name": "é"}]},
        "opaque": object(),
        "bytes": b"\xff",
    }

    @tool
    def fetch(which: str) -> object:
        return values[which]

    results = await results_of(run, *(call("fetch", which=which) for which in values), tools=[fetch])

    assert results == [
        ("plain", False),
        ("1.5", False),
        ("null", False),
        ('{"rows":[{"id":1,"name":"é"}]}', False),
        ("fetch failed: ValueError: object cannot be encoded as JSON: Unable to serialize unknown type: <class 'object'>", True),
        (
            "fetch failed: ValueError: bytes cannot be encoded as JSON: Error serializing to JSON: invalid utf-8 sequence of 1 bytes from index 0",
            True,
        ),
    ]


@pytest.mark.accepts("T3")
async def test_unknown_tool_is_an_error_result_that_names_it_and_those_there_are(run: Run) -> None:
    """The model may recover; no activity is started for it."""
    results = await results_of(run, call("subtract", a=1), call("add", a=2, b=3), tools=[add, Toolbox("more", [_named("neg")]).tools[0]])

    assert results == [("There is no tool named 'subtract'. The tools are: add, neg.", True), ("5", False)]


@pytest.mark.accepts("T3")
async def test_call_to_an_agent_without_tools_is_an_error_result(run: Run) -> None:
    """The list of those there are says none."""
    assert await results_of(run, call("add", a=2), tools=[]) == [("There is no tool named 'add'. The tools are: none.", True)]


@pytest.mark.accepts("T7")
async def test_arguments_that_do_not_fit_are_an_error_result_and_call_nothing(run: Run) -> None:
    """Not JSON, wrong types, missing, unknown, absurd: what is wrong is said, and a right call beside them runs."""
    called: list[int] = []

    @tool
    def count(n: int) -> int:
        called.append(n)
        return n

    texts = ["{", "", "[]", '{"n": "many"}', '{"n": 1, "m": 2}', '{"n": ' + "9" * 5000 + "}", '{"n": ' + "[" * 10_000, '{"n": 7}']
    results = await results_of(run, *(ToolCall(id="", name="count", arguments=text) for text in texts), tools=[count])

    wrong = "count was not called, its arguments are not valid: "
    assert [(content.partition(" at line ")[0], is_error) for content, is_error in results] == [
        (f"{wrong}arguments: Invalid JSON: EOF while parsing an object", True),
        (f"{wrong}n: Field required", True),
        (f"{wrong}arguments: Input should be an object", True),
        (f"{wrong}n: Input should be a valid integer, unable to parse string as an integer", True),
        (f"{wrong}m: Extra inputs are not permitted", True),
        (f"{wrong}arguments: Invalid JSON: number out of range", True),
        (f"{wrong}arguments: Invalid JSON: recursion limit exceeded", True),
        ("7", False),
    ]
    assert called == [7]


# Calls, results and their ids.


@pytest.mark.accepts("T9")
async def test_calls_without_an_id_or_with_one_that_is_taken_get_their_own(run: Run) -> None:
    """Unique in the whole transcript, an earlier turn's included; each result stands under the id of its call."""
    earlier = (
        UserMessage.of("1 + 1?"),
        AssistantMessage(parts=(ToolCall(id="c1", name="add", arguments='{"a": 1, "b": 1}'),)),
        ToolMessage(results=(ToolResult(call_id="c1", name="add", content="2"),)),
    )
    asked = [ToolCall(id=call_id, name="add", arguments=f'{{"a": {n}, "b": 0}}') for n, call_id in enumerate(["", "c1", "c2", "c2", "call_1_1"])]
    model = ScriptedModel(calls(*asked), calls(call("add", call_id="c2", a=5, b=0), call("add", a=6, b=0)), says("done"))

    report = await run(model, tools=[add], start={"history": earlier})

    ids = [[part.id for part in step.message.calls] for step in report.steps]
    assert ids == [["call_1_1", "call_1_2", "c2", "call_1_4", "call_1_5"], ["call_2_1", "call_2_2"], []]
    assert [[(result.call_id, result.content) for result in step.results] for step in report.steps] == [
        [("call_1_1", "0"), ("call_1_2", "1"), ("c2", "2"), ("call_1_4", "3"), ("call_1_5", "4")],
        [("call_2_1", "5"), ("call_2_2", "6")],
        [],
    ]
    assert model.requests[2].messages == report.messages[:-1]


@pytest.mark.accepts("T10")
async def test_tools_are_offered_in_the_order_given(run: Run) -> None:
    """In every request: the agent's own, then toolbox by toolbox."""
    model = ScriptedModel(calls(call("m")), says("done"))
    boxes = [Toolbox("two", [_named("z"), _named("a")]), Toolbox("one", [_named("m")])]

    await run(model, tools=[_named("y"), add], toolboxes=boxes)

    assert [[item.name for item in request.tools] for request in model.requests] == [["y", "add", "z", "a", "m"]] * 2


@pytest.mark.accepts("T13", "Y9")
async def test_long_result_is_clipped_with_a_note_of_both_sizes(run: Run) -> None:
    """At the limit it is whole; over it, in bytes, the beginning and the note fit into the limit."""

    @tool
    def fetch(letter: str, times: int) -> str:
        return letter * times

    limit = limits.TOOL_RESULT_BYTES
    asked = [call("fetch", letter="x", times=limit), call("fetch", letter="x", times=limit + 1), call("fetch", letter="é", times=1_500_000)]
    whole, clipped, multibyte = await results_of(run, *asked, tools=[fetch])

    assert whole == ("x" * limit, False)
    assert clipped == ("x" * 65_504 + "\n[clipped: 65504 of 65537 bytes]", False)
    assert multibyte == ("é" * 32_751 + "\n[clipped: 65502 of 3000000 bytes]", False)


@pytest.mark.accepts("T13", "Y9")
async def test_long_error_is_clipped_and_stays_an_error(run: Run) -> None:
    """A traceback of a megabyte in an exception's text is cut to the limit, its beginning kept."""
    [(content, is_error)] = await results_of(run, call("break"), tools=[raises(ValueError("boom " * 600_000))])

    assert is_error
    assert content.startswith("break failed: ValueError: boom boom")
    assert content.endswith(" of 3000026 bytes]")
    assert len(content) <= limits.TOOL_RESULT_BYTES


@pytest.mark.accepts("T3", "T13")
async def test_result_for_an_unknown_tool_is_clipped_too(run: Run) -> None:
    """A model that writes its answer into the name of a tool does not get all of it back."""
    [(content, is_error)] = await results_of(run, call("x" * 500_000), tools=[add])

    assert is_error
    assert len(content.encode()) <= limits.TOOL_RESULT_BYTES


# What a tool gets.


@pytest.mark.accepts("T12")
async def test_context_is_injected_and_hidden_from_the_model(runtime: Runtime) -> None:
    """Turn, call, attempt, labels, deps and a key of 32 hexadecimal digits, in sync and async tools."""
    seen: list[ToolContext[str]] = []

    @tool
    def note(ctx: ToolContext[str], word: str) -> str:
        seen.append(ctx)
        return word

    @tool
    async def keep(word: str, ctx: ToolContext[str]) -> str:
        seen.append(ctx)
        return word

    agent = Agent(name="clerk", model="scripted:x", tools=[note, keep])
    model = ScriptedModel(calls(call("note", call_id="c1", word="a"), call("keep", call_id="c2", word="b")), says("done"))

    async with runtime(agent, model=model, deps="shelf") as client:
        await client.run(agent, "go", id="note-1", labels={"team": "maths"})

    assert [(ctx.turn_id, ctx.call_id, ctx.attempt, ctx.labels, ctx.deps) for ctx in seen] == [
        ("note-1", "c1", 1, {"team": "maths"}, "shelf"),
        ("note-1", "c2", 1, {"team": "maths"}, "shelf"),
    ]
    assert all(len(ctx.idempotency_key) == 32 and int(ctx.idempotency_key, 16) for ctx in seen)
    assert [item.parameters["properties"] for item in model.requests[0].tools] == [{"word": {"type": "string"}}] * 2


@pytest.mark.accepts("T12")
async def test_each_call_has_an_idempotency_key_of_its_own(runtime: Runtime) -> None:
    """Equal calls of one turn differ, and so does the same call of a turn that is started anew under its id."""
    keys: list[str] = []

    @tool
    def pay(ctx: ToolContext[None], amount: int) -> str:
        keys.append(ctx.idempotency_key)
        return "paid"

    agent = Agent(name="clerk", model="scripted:x", tools=[pay])
    script = [calls(call("pay", amount=1), call("pay", amount=1)), calls(call("pay", amount=1)), says("done")]

    async with runtime(agent, model=ScriptedModel(*script, *script)) as client:
        await client.run(agent, "go", id="pay-1")
        await client.run(agent, "go", id="pay-1", if_exists="restart")

    assert len(keys) == len(set(keys)) == 6


@pytest.mark.accepts("T12")
async def test_tool_reads_a_secret_from_the_environment_of_the_worker(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is missing is an error result that names the variable."""
    monkeypatch.setenv("SHELF_KEY", "k-123")
    seen: list[str] = []

    @tool
    def unlock(ctx: ToolContext[None], name: str) -> str:
        seen.append(ctx.secret(name))
        return "open"

    results = await results_of(run, call("unlock", name="SHELF_KEY"), call("unlock", name="SHELF_KEY_2"), tools=[unlock])

    message = "unlock failed: ConfigurationError: the environment variable SHELF_KEY_2 is not set; the worker needs it"
    assert results == [("open", False), (message, True)]
    assert seen == ["k-123"]


@pytest.mark.accepts("T12")
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_heartbeat_of_a_tool_is_seen_while_it_runs(runtime: Runtime, kind: str) -> None:
    """The note that it leaves is what Temporal shows of the pending activity, and Perdure's own heartbeats keep it."""
    over = threading.Event()

    @tool(name="sync")
    def work(ctx: ToolContext[None]) -> str:
        ctx.heartbeat("page 3", {"of": 7})
        over.wait(10)
        return "read"

    @tool(name="async")
    async def work_async(ctx: ToolContext[None]) -> str:
        ctx.heartbeat("page 3", {"of": 7})
        await asyncio.to_thread(over.wait, 10)
        return "read"

    agent = Agent(name="reader", model="scripted:x", tools=[work, work_async])

    async with runtime(agent, model=ScriptedModel(calls(call(kind)), says("done"))) as client:
        turn = await client.start(agent, "go")
        try:
            await _until(lambda: _heartbeat(client, turn.id), ["page 3", {"of": 7}])
        finally:
            over.set()
        report = await turn.result()

    assert report.steps[0].results[0].content == "read"


@pytest.mark.accepts("T12")
async def test_heartbeat_works_from_a_thread_that_the_tool_made(run: Run) -> None:
    """`ThreadPoolExecutor` and `run_in_executor` do not copy context variables."""
    problems: list[Exception] = []

    @tool
    def read(ctx: ToolContext[None]) -> str:
        def page() -> None:
            try:
                ctx.heartbeat("page 1")
            except Exception as error:  # noqa: BLE001 - the test is about whatever it raises
                problems.append(error)

        thread = threading.Thread(target=page)
        thread.start()
        thread.join()
        return "read"

    await results_of(run, call("read"), tools=[read])

    assert problems == []


# Where a tool runs, and how it is stopped.


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
    """Sync and async: the model is told after how long, the function is interrupted, and the next call runs."""
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

    results = await results_of(run, call("sync"), call("later"), call("add", a=2, b=3), tools=[sync, later, add])
    await eventually(lambda: len(stopped) == 2, "both are interrupted")

    too_long = "stopped because it took longer than 1 s; whether it took effect is unknown"
    assert results == [(f"sync: {too_long}", True), (f"later: {too_long}", True), ("5", False)]
    assert sorted(stopped) == ["async", "sync"]


@pytest.mark.accepts("T11")
async def test_cancel_stops_a_tool_in_flight(runtime: Runtime) -> None:
    """Sync in its thread, async on the loop; the report says that nothing is left running."""
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
async def test_async_tool_whose_name_a_sync_tool_of_another_agent_has_is_stopped_too(runtime: Runtime) -> None:
    """One activity serves both kinds, and a cancel must still reach the coroutine within seconds."""
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

    agents = [Agent(name="first", model="scripted:x", tools=[sync]), Agent(name="second", model="scripted:x", tools=[later])]

    async with runtime(Registry(agents), model=ScriptedModel(calls(call("work")))) as client:
        [report] = await _cancelled_once(client, agents[1:], lambda: len(started) == 1)
        stopped_with_the_turn = list(stopped)

    assert stopped_with_the_turn == ["async"]
    assert report.unstopped == ()


@pytest.mark.accepts("T21")
async def test_tool_that_blocks_does_not_repeat_the_model_call_of_another_turn(runtime: Runtime) -> None:
    """Longer than the heartbeat timeout of 5 s, in a thread and on the loop of the tools, beside a model that thinks as long."""
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
    assert [(report.steps[0].results[0].content, report.model_calls) for report in reports] == [("awake", 2)] * 2
    assert sorted(blocking) == ["async", "sync"]


# Names.


@pytest.mark.accepts("T18")
async def test_two_agents_with_different_tools_of_one_name_run_their_own(runtime: Runtime) -> None:
    """Also where one is sync and the other async, with other arguments."""

    @tool(name="find")
    def in_books(word: str) -> str:
        return f"book about {word}"

    @tool(name="find")
    async def in_drawers(drawer: int) -> str:
        return f"drawer {drawer}"

    agents = [Agent(name="reader", model="scripted:x", tools=[in_books]), Agent(name="clerk", model="scripted:x", tools=[in_drawers])]
    models = {
        "reader": ScriptedModel(calls(call("find", word="law")), says("done")),
        "clerk": ScriptedModel(calls(call("find", drawer=4)), says("done")),
    }

    async with runtime(Registry(agents), model=models) as client:
        reports = await asyncio.gather(*(client.run(agent, "go") for agent in agents))

    assert [report.steps[0].results[0].content for report in reports] == ["book about law", "drawer 4"]
    assert [list(models[name].requests[0].tools[0].parameters["properties"]) for name in models] == [["word"], ["drawer"]]  # type: ignore[arg-type]


@pytest.mark.accepts("T18")
async def test_tool_is_an_activity_of_its_name(runtime: Runtime) -> None:
    """That is what the Temporal UI shows."""
    agent = Agent(name="adder", model="scripted:x", tools=[add])

    async with runtime(agent, model=ScriptedModel(calls(call("add", a=2, b=3)), says("five"))) as client:
        turn = await client.start(agent, "2 + 3?")
        await turn.result()
        types = await _activity_types(client, turn.id)

    assert types == ["perdure.resolve_agent", "perdure.call_model", "add", "perdure.call_model"]


@pytest.mark.accepts("T22")
async def test_tool_with_the_name_of_another_activity_is_refused_when_the_worker_is_built(perdure_server: str) -> None:
    """Both are named, with the way out; no event loop is left behind."""

    @activity.defn(name="add")
    async def book_a_sum() -> None: ...

    client = await connect(perdure_server)
    app = AgentWorker(Agent(name="adder", model="scripted:x", tools=[add]), providers={"scripted": ScriptedModel()})

    with pytest.raises(errors.ConfigurationError) as caught:
        Worker(client, task_queue="taken", activities=[book_a_sum], plugins=[PerdurePlugin(app)])

    assert caught.value.message == (
        "the tool 'add' and the worker's activity "
        "'test_tool_with_the_name_of_another_activity_is_refused_when_the_worker_is_built.<locals>.book_a_sum' have one name; rename one of them"
    )
    del caught
    _collect()


@pytest.mark.accepts("T22")
async def test_name_of_an_activity_of_ours_is_refused_too(perdure_server: str) -> None:
    """Perdure's own activities have names with a dot, which somebody may take as well."""

    @activity.defn(name="perdure.call_model")
    async def mine() -> None: ...

    client = await connect(perdure_server)
    app = AgentWorker(Agent(name="adder", model="scripted:x", tools=[add]), providers={"scripted": ScriptedModel()})

    with pytest.raises(errors.ConfigurationError, match=r"Perdure's activity 'perdure\.call_model' and the worker's activity '.*mine'"):
        Worker(client, task_queue="taken", activities=[mine], plugins=[PerdurePlugin(app)])

    _collect()


@pytest.mark.accepts("T4")
@pytest.mark.parametrize(
    ("fields", "sources"),
    [
        ({"toolboxes": [Toolbox("maths", [add]), Toolbox("sums", [add])]}, "toolbox 'maths' and from toolbox 'sums'"),
        ({"tools": [add], "toolboxes": [Toolbox("maths", [add])]}, "the agent's tools and from toolbox 'maths'"),
    ],
    ids=["two boxes", "agent and box"],
)
async def test_duplicate_tool_fails_the_turn_before_the_model_is_asked(runtime: Runtime, fields: dict[str, Any], sources: str) -> None:
    """Tool and both sources are named; the agent came into the registry after the worker had started."""
    model = ScriptedModel(says("never"))
    registry = Registry()

    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        registry.add(Agent(name="adder", model="scripted:x", **fields))
        with pytest.raises(errors.DuplicateToolError) as caught:
            await client.run("adder", "2 + 3?")

    assert caught.value.message == f"agent adder: the tool 'add' comes from {sources}; rename one with @tool(name=…)"
    assert caught.value.report is not None
    assert (caught.value.report.outcome, caught.value.report.model_calls, model.call_count) == (Outcome.FAILED, 0, 0)


@pytest.mark.accepts("T4")
async def test_duplicate_tool_of_a_registered_agent_is_refused_when_the_worker_is_built(runtime: Runtime) -> None:
    """Nobody needs to wait for the first turn."""
    agent = Agent(name="adder", model="scripted:x", tools=[add], toolboxes=[Toolbox("maths", [add])])

    with pytest.raises(errors.DuplicateToolError, match="the tool 'add' comes from the agent's tools and from toolbox 'maths'"):
        async with runtime(agent, model=ScriptedModel()):
            pass

    _collect()


# Another deploy in the middle of a turn.


@pytest.mark.accepts("T20")
async def test_tool_that_changed_while_the_model_was_thinking_is_not_called(runtime: Runtime) -> None:
    """Gone, or with other arguments: an error result that names it. Another body is the deployed code, and runs. The next turn has what is there."""
    called: list[str] = []

    def before(name: str) -> AnyTool:
        @tool(name=name)
        def act(word: str) -> str:
            called.append(f"old {name}")
            return "old"

        return act

    @tool(name="changed")
    def changed(word: str, loud: bool = False) -> str:
        called.append("new changed")
        return "new"

    @tool(name="kept")
    def kept(word: str) -> str:
        called.append("new kept")
        return "new"

    agent = Agent(name="worker", model="scripted:x", tools=[before("gone"), before("changed"), before("kept")])
    asked = [call(name, word="a") for name in ("gone", "changed", "kept")]
    model = Paused(ScriptedModel(calls(*asked), says("done"), calls(*asked), says("done")))
    registry = Registry([agent])

    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        turn = await client.start(agent, "go")
        await eventually(lambda: model.model.call_count == 1, "the model thinks")
        registry.add(replace(agent, tools=[changed, kept]), replace=True)
        model.go.set()
        running, following = await turn.result(), await client.run(agent, "go")

    assert [(result.name, result.content, result.is_error) for result in running.steps[0].results] == [
        ("gone", "gone: the deployed worker does not have this tool of agent worker any more", True),
        ("changed", "changed: the deployed tool takes other arguments than when this turn began; it was not called", True),
        ("kept", "new", False),
    ]
    assert [[item.name for item in request.tools] for request in model.model.requests] == [["gone", "changed", "kept"]] * 2 + [
        ["changed", "kept"]
    ] * 2
    assert [(result.content, result.is_error) for result in following.steps[0].results] == [
        ("There is no tool named 'gone'. The tools are: changed, kept.", True),
        ("new", False),
        ("new", False),
    ]
    assert called == ["new kept", "new changed", "new kept"]


@pytest.mark.accepts("T20")
async def test_tool_of_a_replaced_agent_may_change_its_kind(runtime: Runtime) -> None:
    """Sync when the worker started, async now, and the other way round: the deployed function runs and its result is recorded."""

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
    """Under the activity for tools that were not known at the start."""
    agent = Agent(name="worker", model="scripted:x")
    registry = Registry([agent])
    model = ScriptedModel(calls(call("add", a=2, b=3)), says("five"))

    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        registry.add(replace(agent, tools=[add]), replace=True)
        turn = await client.start(agent, "2 + 3?")
        report = await turn.result()
        types = await _activity_types(client, turn.id)

    assert report.steps[0].results[0].content == "5"
    assert types == ["perdure.resolve_agent", "perdure.call_model", "perdure.call_sync_tool", "perdure.call_model"]


@pytest.mark.accepts("T20")
async def test_worker_of_another_release_without_the_tool_answers_with_an_error_result(perdure_server: str) -> None:
    """The worker that began the turn is gone while its model thinks; the one that takes over never had the tool's activity."""
    client = await connect(perdure_server)
    settings = WorkerSettings(task_queue="test-two-releases", grace=timedelta(milliseconds=100))
    agent = Agent(name="worker", model="scripted:x", tools=[add])
    old = Paused(ScriptedModel(says("never")))
    new = ScriptedModel(calls(call("add", a=2, b=3)), says("done"))
    recording = RecordingClient(client, "test-two-releases")

    async with AgentWorker(agent, providers={"scripted": old}).running(client, settings=settings):
        turn = await recording.start(agent, "2 + 3?")
        await eventually(lambda: old.model.call_count == 1, "the model thinks")
    async with AgentWorker(replace(agent, tools=[]), providers={"scripted": new}).running(client, settings=settings):
        report = await turn.result()

    [result] = report.steps[0].results
    assert (result.content, result.is_error) == ("add: it could not be run: the deployed worker does not have this tool", True)
    assert report.output == "done"


# Factories.


@pytest.mark.accepts("D16")
async def test_factory_is_called_once_a_turn_and_the_tools_it_makes_run(runtime: Runtime) -> None:
    """With task and labels; sync and async tools that no worker knew before, over several steps and turns at once."""
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

    async with runtime(Registry([clerk]), model={"clerk": _ByTask({team: ScriptedModel(*script) for team in teams})}) as client:
        turns = [await client.start("clerk", team, id=f"factory-{team}", labels={"team": team}) for team in teams]
        reports = [await turn.result() for turn in turns]
        types = await _activity_types(client, "factory-law")

    assert sorted((info.turn_id, info.agent, info.task.text, info.labels["team"]) for info in made) == [
        (f"factory-{team}", "clerk", team, team) for team in sorted(teams)
    ]
    assert [[result.content for step in report.steps for result in step.results] for report in reports] == [
        [f"{team} looked", f"{team} asked", f"{team} looked"] for team in teams
    ]
    assert types[2:4] == ["perdure.call_sync_tool", "perdure.call_tool"]


@pytest.mark.accepts("D16")
async def test_factory_of_a_turn_that_another_process_began_is_called_there_too(perdure_server: str) -> None:
    """Task and labels come from the turn's own start, so the tools are the same."""
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

    async with AgentWorker([factory_of("first")], providers={"scripted": old}).running(client, settings=settings):
        turn = await recording.start("clerk", "go", labels={"team": "law"})
        await eventually(lambda: old.model.call_count == 1, "the model thinks")
    async with AgentWorker([factory_of("second")], providers={"scripted": new}).running(client, settings=settings):
        report = await turn.result()

    assert report.steps[0].results[0].content == "second looked for a, law: go"
    assert [process for process, _ in made] == ["first", "second"]
    assert made[0][1] == made[1][1]


@pytest.mark.accepts("D16")
async def test_agents_added_from_threads_while_turns_start_are_all_there(runtime: Runtime) -> None:
    """Each of them runs a turn as soon as it was added."""
    registry = Registry()
    names = [f"agent-{n}" for n in range(20)]
    model = ScriptedModel(*[says("here")] * len(names))

    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:

        async def add_and_run(name: str) -> str:
            await asyncio.to_thread(registry.add, Agent(name=name, model="scripted:x"))
            return (await client.run(name, "go")).output

        outputs = await asyncio.gather(*(add_and_run(name) for name in names))

    assert outputs == ["here"] * len(names)
    assert registry.list() == tuple(sorted(names))


class _ByTask:
    """Gives each turn's requests to the model for its task."""

    def __init__(self, models: dict[str, ScriptedModel]) -> None:
        self._models = models

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        [first, *_] = request.messages
        assert isinstance(first, UserMessage)
        return await self._models[first.text].complete(request)

    async def close(self) -> None: ...


def _named(name: str) -> AnyTool:
    def nothing() -> None: ...

    return tool(name=name)(nothing)


def _collect() -> None:
    """What a refused worker leaves behind, such as an open event loop, warns here and not in a later test."""
    gc.collect()


def _sleep_until_stopped(stopped: list[str]) -> None:
    try:
        for _ in range(1500):
            time.sleep(0.02)
    finally:
        stopped.append("sync")


async def _cancelled_once(client: RecordingClient, agents: list[Agent], ready: Callable[[], bool]) -> list[AgentReport]:
    """The reports of turns that are cancelled when `ready`."""
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


async def _heartbeat(client: RecordingClient, turn_id: str) -> list[Any]:
    description = await client.temporal.get_workflow_handle(turn_id).describe()
    details = [item.heartbeat_details.payloads for item in description.raw_description.pending_activities]
    return await client.temporal.data_converter.decode(details[0]) if details and details[0] else []


async def _until(read: Callable[[], Awaitable[object]], value: object, within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while (seen := await read()) != value:
        assert time.monotonic() < deadline, f"{seen!r} is not {value!r} within {within_s:g} s"
        await asyncio.sleep(0.05)


async def _activity_types(client: RecordingClient, turn_id: str) -> list[str]:
    history = await client.temporal.get_workflow_handle(turn_id).fetch_history()
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]


@pytest.mark.accepts("T11")
async def test_tool_that_does_not_stop_is_named_in_the_report(runtime: Runtime) -> None:
    """An async tool that swallows its cancel is still running when the turn ends, and the report says so."""
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


@pytest.mark.accepts("T11")
async def test_tool_that_was_cancelled_before_it_began_never_begins(runtime: Runtime) -> None:
    """Its loop is held up by another tool while the cancel arrives."""
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
            if event.fact == Scheduled(Key(1, 1)):
                break
        await second.cancel("too late")
        with pytest.raises(errors.TurnCancelledError):
            await second.result()
        free.set()
        report = await first.result()

    assert report.output == "done"
    assert ran == []
