"""Local tools: calls that run within a workflow task, and become activities when they take long."""

import asyncio
import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter, ExternalStorage
from temporalio.worker import Replayer

from perdure import Agent, Budget, Media, Outcome, Tool, ToolContext, errors, limits, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import Turn
from perdure.clients.reading.events import Event
from perdure.temporal.histories.turn_history import key_of
from perdure.testing import FunctionModel, ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.turn.facts import (
    ApprovalNeeded,
    Decided,
    Fact,
    Scheduled,
    ToolReturned,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.keys import ModelKey, ToolKey
from perdure.values.answers import ModelAnswer
from perdure.values.messages import UserMessage
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn
from perdure.workflows.single_input import OneInput

from ...conftest import RecordingClient, Runtime, check_history, eventually
from ...support import encrypting
from ...support.spending import Queue, queue, until
from ...support.storage import Folder

MARKER = EventType.EVENT_TYPE_MARKER_RECORDED
ACTIVITY = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
TASK = EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED


@tool(read_only=True, local=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def markers(history: WorkflowHistory) -> list[HistoryEvent]:
    """The markers of local calls."""
    return [
        event
        for event in history.events
        if event.event_type == MARKER and isinstance(key_of(event), ToolKey)
    ]


def kinds(history: WorkflowHistory) -> Counter[int]:
    """The events by their type. Of the markers, those of local calls count."""
    counted = Counter[int](event.event_type for event in history.events)
    counted[MARKER] = len(markers(history))
    return counted


async def events_of(turn: Turn, after: str | None = None) -> list[Event]:
    """All events of a turn that is over."""
    return [event async for event in turn.events(after=after)]


def facts_of(events: Sequence[Event]) -> list[Fact]:
    """The facts about tool calls."""
    return [event.fact for event in events if isinstance(getattr(event.fact, "key", None), ToolKey)]


class HeldSecond(ScriptedModel):
    """A model whose second answer waits until it is released."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies)
        self.let_go = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        answer = await super().complete(request)
        if self.call_count == 2:
            await self.let_go.wait()
        return answer


class Slow:
    """A tool whose first run takes too long; it notes its runs, and the end of each."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.contexts: list[ToolContext[Any]] = []
        self.ended: list[str] = []

    def _begin(self, ctx: ToolContext[Any]) -> bool:
        self.contexts.append(ctx)
        return len(self.contexts) == 1

    def look(self, ctx: ToolContext[Any]) -> str:
        """Look."""
        try:
            is_first = self._begin(ctx)
            while is_first or not self.let_go.is_set():
                time.sleep(0.01)
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        return "seen"

    async def find(self, ctx: ToolContext[Any]) -> str:
        """Find."""
        try:
            await asyncio.sleep(60 if self._begin(ctx) else 0)
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        return "found"


@pytest.mark.slow
@pytest.mark.accepts("T34")
async def test_local_call_is_one_event_and_needs_no_workflow_task(runtime: Runtime) -> None:
    """A step has 7 events and one workflow task instead of 12 and two; context, key, report and
    events are those of any call, and a watcher can go on between a call and its result.
    """
    seen: list[ToolContext[str]] = []

    @tool(name="add", read_only=True)
    def ordinary(ctx: ToolContext[str], a: int, b: int) -> int:
        ctx.heartbeat("adding")
        seen.append(ctx)
        return a + b

    async def quick(ctx: ToolContext[str], a: int, b: int) -> int:
        return ordinary(ctx, a, b)

    found: list[tuple[list[Event], Counter[int], Any]] = []
    for added in (
        ordinary,
        tool(name="add", read_only=True, local=True)(ordinary.function),
        tool(name="add", read_only=True, local=True)(quick),
    ):
        agent = Agent(name="adder", model="scripted:x", tools=[added])
        model = ScriptedModel(
            calls(call("add", a=1, b=2)), calls(call("add", a=3, b="x")), says("done")
        )
        async with runtime(agent, model=model, deps="shelf") as client:
            turn = await client.start(agent, "go", labels={"team": "maths"})
            report = await turn.result()
            events = await events_of(turn)
            found.append((events, kinds(await client.history(turn)), report))
            between = next(event for event in events if isinstance(event.fact, ToolReturned))
            before = events[events.index(between) - 1]
            assert before.fact == Scheduled(ToolKey(1, 1))
            assert (await events_of(turn, before.cursor))[0].cursor == between.cursor
            assert (await events_of(turn, between.cursor))[0].fact == Scheduled(ModelKey(2))

    [(events, usual, report), *locals_] = found
    for own_events, own, own_report in locals_:
        assert [event.kind for event in own_events] == [event.kind for event in events]
        assert [event.call for event in own_events] == [event.call for event in events]
        assert own_report.steps == report.steps
        assert (own_report.tool_calls, own_report.spent) == (2, report.spent)
        assert (own[MARKER], own[ACTIVITY], own[TASK]) == (2, usual[ACTIVITY] - 2, usual[TASK] - 2)
        assert own.total() == usual.total() - 2 * (12 - 7)
    assert {(ctx.call_id, ctx.attempt, ctx.deps, *ctx.labels.values()) for ctx in seen} == {
        ("call_1_1", 1, "shelf", "maths")
    }
    assert len(seen) == len({ctx.idempotency_key for ctx in seen}) == 3


@pytest.mark.accepts("T35")
async def test_call_that_takes_longer_than_a_second_goes_on_as_an_activity(
    runtime: Runtime,
) -> None:
    """Sync and async: the local run is stopped, and the call runs once more under the same key and
    has its own time; it has one beginning and one end.
    """
    slow, quick = Slow(), Slow()
    tools: list[Any] = [
        tool(read_only=True, local=True, name="look")(slow.look),
        tool(read_only=True, local=True, name="find")(quick.find),
    ]
    agent = Agent(name="seer", model="scripted:x", tools=tools, parallel_tools=True)
    model = ScriptedModel(calls(call("look"), call("find")), says("done"))

    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "go")
        await eventually(lambda: len(slow.contexts) == 2, "the call is made as an activity")
        slow.let_go.set()
        report = await turn.result()
        facts = facts_of(await events_of(turn))
        counted = kinds(await client.history(turn))

    assert [result.content for result in report.steps[0].results] == ["seen", "found"]
    await eventually(lambda: bool(slow.ended and quick.ended), "both local runs are stopped")
    assert (slow.ended, quick.ended) == (["CancelledError"], ["CancelledError"])
    begun = [str(fact.key) for fact in facts if isinstance(fact, Scheduled)]
    assert sorted(begun) == ["step-1.call-1", "step-1.call-2"]
    assert sum(isinstance(fact, ToolReturned) for fact in facts) == 2
    assert (counted[MARKER], counted[ACTIVITY]) == (2, 2 + 2)
    for one in (slow, quick):
        assert len({ctx.idempotency_key for ctx in one.contexts}) == 1
        assert len(one.contexts) == 2
    assert report.tool_calls == 2


@pytest.mark.slow
@pytest.mark.accepts("T36")
async def test_local_calls_beside_others_or_too_many_of_them_are_activities(
    runtime: Runtime,
) -> None:
    """Parallel calls are local if all of them are; one workflow task has at most 16, and the
    next one is an activity, after which calls are local again.
    """

    @tool(read_only=True)
    def other() -> str:
        """Do something else."""
        return "other"

    many = [call("add", a=n, b=0) for n in range(limits.LOCAL_CALLS_COUNT + 2)]
    parallel = Agent(name="many", model="scripted:x", tools=[add, other], parallel_tools=True)
    in_order = Agent(name="row", model="scripted:x", tools=[add, other])
    steps = (
        calls(*many[:3]),
        calls(many[0], call("other")),
        calls(*many),
        says("done"),
    )
    agents = [parallel, in_order]

    async with runtime(agents, model=ScriptedModel(*steps, *steps)) as client:
        histories = []
        for agent in agents:
            turn = await client.start(agent, "go")
            report = await turn.result()
            histories.append(await client.history(turn))
            assert [result.content for result in report.steps[2].results] == [
                str(n) for n in range(len(many))
            ]

    own = 4  # model calls
    at_once, in_turn = map(kinds, histories)
    tasks = Counter(
        event.marker_recorded_event_attributes.workflow_task_completed_event_id
        for event in markers(histories[1])
    )
    assert at_once[MARKER] == 3
    assert at_once[ACTIVITY] >= own + 2 + len(many)
    assert in_turn[ACTIVITY] >= own + 1 + 1
    assert 1 < max(tasks.values()) <= limits.LOCAL_CALLS_COUNT


@pytest.mark.accepts("T36")
async def test_local_calls_of_a_workflow_task_have_a_second_together(runtime: Runtime) -> None:
    """The second call has what the first one leaves; after the activity there is a new second."""
    stopped_after: list[float] = []

    @tool(read_only=True, local=True)
    async def nap() -> str:
        """Take half of the second."""
        await asyncio.sleep(0.5)
        return "slept"

    @tool(read_only=True, local=True)
    async def find() -> str:
        """Find."""
        began = time.monotonic()
        if stopped_after:
            return "found"
        try:
            await asyncio.sleep(60)
        finally:
            stopped_after.append(time.monotonic() - began)
        return "never"

    agent = Agent(name="seer", model="scripted:x", tools=[nap, find])
    model = ScriptedModel(calls(call("nap"), call("find"), call("nap")), says("done"))

    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "go")
        report = await turn.result()
        counted = kinds(await client.history(turn))

    assert [result.content for result in report.steps[0].results] == ["slept", "found", "slept"]
    assert (counted[MARKER], counted[ACTIVITY]) == (3, 2 + 1)
    assert len(stopped_after) == 1
    assert stopped_after[0] < limits.LOCAL_CALLS.total_seconds() - 0.1


@pytest.mark.accepts("T37")
async def test_result_that_cannot_be_local_comes_from_an_activity(runtime: Runtime) -> None:
    """Images and files; an exception is a result as always."""
    runs: list[str] = []

    @tool(read_only=True, local=True)
    def picture(ctx: ToolContext[None]) -> Media:
        """Take a picture."""
        runs.append(ctx.idempotency_key)
        return Media(media_type="image/png", data="aGk=")

    @tool(read_only=True, local=True)
    def broken() -> str:
        """Fail."""
        raise ValueError("no such thing")

    agent = Agent(name="painter", model="scripted:x", tools=[picture, broken])
    model = ScriptedModel(calls(call("picture"), call("broken")), says("done"))

    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "go")
        report = await turn.result()
        counted = kinds(await client.history(turn))

    shown, failed = report.steps[0].results
    assert shown.media[0].data == "aGk="
    assert (failed.is_error, "no such thing" in failed.content) == (True, True)
    assert (len(runs), len(set(runs))) == (2, 1)
    assert (counted[MARKER], counted[ACTIVITY]) == (2, 2 + 1)


@pytest.mark.accepts("T38")
async def test_local_call_waits_for_approval_like_any_other(runtime: Runtime) -> None:
    """It runs after the decision, within a workflow task; the budget of tool calls counts it."""
    needs = tool(read_only=True, local=True, requires_approval=True, name="ask")(add.function)
    agent = Agent(
        name="careful", model="scripted:x", tools=[needs, add], budget=Budget(tool_calls=1)
    )
    model = ScriptedModel(calls(call("ask", a=1, b=2)), calls(call("add", a=1, b=2)))

    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "go")
        waits = (await until(turn, WaitBegan)).fact
        assert isinstance(waits, WaitBegan)
        await turn.approve(waits.pending[0])
        with pytest.raises(errors.TurnBudgetExceededError) as stopped:
            await turn.result()
        events = await events_of(turn)
        counted = kinds(await client.history(turn))

    order = [
        type(event.fact)
        for event in events
        if isinstance(event.fact, WaitBegan | Decided | WaitEnded | ToolReturned)
        or event.fact == Scheduled(ToolKey(1, 1))
    ]
    assert order[:5] == [WaitBegan, Decided, WaitEnded, Scheduled, ToolReturned]
    assert stopped.value.report is not None
    assert (stopped.value.report.spent.tool_calls, counted[MARKER]) == (1, 1)


@pytest.mark.table(1)
@pytest.mark.accepts("T39")
@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_turn_is_stopped_at_most_a_second_late(runtime: Runtime, how: str) -> None:
    """A cancel or deadline during a local call takes effect when the call ends, or when its second
    is over.
    """
    began, slow = threading.Event(), Slow()

    def look(ctx: ToolContext[None]) -> str:
        """Look."""
        began.set()
        return slow.look(ctx)

    agent = Agent(name="seer", model="scripted:x", tools=[tool(read_only=True, local=True)(look)])
    deadline = timedelta(seconds=3) if how == "deadline" else None

    async with runtime(agent, model=ScriptedModel(calls(call("look")), says("done"))) as client:
        turn = await client.start(agent, "go", deadline=deadline)
        await eventually(began.is_set, "the call begins")
        began_at = time.monotonic()
        if how == "cancel":
            await turn.cancel("enough")
        with pytest.raises((errors.TurnCancelledError, errors.TurnTimeoutError)) as stopped:
            await turn.result()
        took = time.monotonic() - began_at

    assert stopped.value.report is not None
    assert stopped.value.report.outcome is (
        Outcome.CANCELLED if how == "cancel" else Outcome.TIMED_OUT
    )
    assert took < 10  # a second, and what a busy machine needs; a cancelled activity has ten


@pytest.mark.accepts("Y124")
async def test_message_during_a_local_call_is_read_once(runtime: Runtime) -> None:
    """The workflow task that makes the call hears of it afterwards."""
    began, let_go = threading.Event(), threading.Event()

    @tool(read_only=True, local=True)
    def look() -> str:
        """Look, for less than a second."""
        began.set()
        let_go.wait(0.9)
        return "seen"

    def answer(request: ModelRequest) -> Reply:
        return says("done") if len(request.messages) > 1 else calls(call("look"))

    agent = Agent(name="seer", model="scripted:x", tools=[look])
    async with runtime(agent, model=FunctionModel(answer)) as client:
        turn = await client.start(agent, "go")
        await eventually(began.is_set, "the call begins")
        said = asyncio.create_task(turn.steer("the other way", id="m-1"))
        await asyncio.sleep(0.2)
        let_go.set()
        await said
        report = await turn.result()

    texts = [message.text for message in report.messages if isinstance(message, UserMessage)]
    assert texts == ["go", "the other way"]
    assert report.unread == ()


async def deployed(work: Queue, before: Tool, after: Tool) -> Turn:
    """A turn that is over. While its second model call was made, another worker took over."""
    second = calls(call("note", n=2))
    model = HeldSecond(calls(call("note", n=1)), second, second, says("done"))
    name = work.client.task_queue
    old, new = (
        AgentWorker(Agent(name=name, model="scripted:x", tools=[one])) for one in (before, after)
    )
    async with work.worker(old, model):
        turn = await work.client.start(name, "go")
        await eventually(lambda: model.call_count == 2, "the model is asked again")
    async with work.worker(new, model):
        await turn.result()
    return turn


@pytest.mark.table(2)
@pytest.mark.accepts("T40")
@pytest.mark.parametrize("change", ["not local", "local", "not read-only", "gone"])
async def test_definition_decides_whether_a_call_is_local(perdure_server: str, change: str) -> None:
    """A turn goes on as it began after a deploy that changes the option, and replays without the
    tool. A tool that is not read-only any more runs once, as an activity.
    """
    runs: list[str] = []

    def note(n: int) -> str:
        """Note."""
        runs.append(f"{change} {n}")
        return f"noted {n}"

    quick = tool(read_only=True, local=True)(note)
    usual, writing = tool(read_only=True)(note), tool(note)
    deploys: dict[str, tuple[Tool, Tool]] = {
        "not local": (quick, usual),
        "local": (usual, quick),
        "not read-only": (quick, writing),
        "gone": (quick, add),
    }
    async with queue(perdure_server) as work:
        turn = await deployed(work, *deploys[change])
        report = await turn.result()
        counted = kinds(await work.client.history(turn))

    results = [result.content for step in report.steps for result in step.results]
    if change == "gone":
        assert "does not have this tool" in results[1]
        assert (len(runs), counted[MARKER]) == (1, 2)
        return
    assert results == ["noted 1", "noted 2"]
    assert runs == [f"{change} 1", f"{change} 2"]
    local, activities = {"not local": (2, 0), "local": (0, 2), "not read-only": (2, 1)}[change]
    own = 3 + 1  # the second model call of the first worker is lost
    assert (counted[MARKER], counted[ACTIVITY]) == (local, own + activities)
    assert not any(isinstance(fact, ApprovalNeeded) for fact in facts_of(await events_of(turn)))


@pytest.mark.accepts("T41")
async def test_result_is_recorded_before_the_model_is_asked_again(runtime: Runtime) -> None:
    """When the second model call arrives, history has the result of the local call."""
    model = HeldSecond(calls(call("add", a=1, b=2)), says("done"))
    agent = Agent(name="adder", model="scripted:x", tools=[add])

    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "go")
        await eventually(lambda: model.call_count == 2, "the model is asked again")
        status = await turn.status()
        counted = kinds(await client.history(turn))
        model.let_go.set()
        report = await turn.result()

    assert (counted[MARKER], status.step) == (1, 2)
    assert report.steps[0].results[0].content == "3"


@pytest.mark.slow
@pytest.mark.accepts("T34", "P15")
@pytest.mark.parametrize("how", ["encrypted", "stored"])
async def test_local_call_with_a_codec_or_external_storage(
    perdure_server: str, tmp_path: Path, how: str
) -> None:
    """History has no argument and no result, except by its digest; report, events and replay do."""
    secret = "canary-4711"
    storage = ExternalStorage(drivers=[Folder(tmp_path)], payload_size_threshold=100)
    converter = (
        encrypting.converter
        if how == "encrypted"
        else replace(DataConverter.default, external_storage=storage)
    )

    @tool(read_only=True, local=True)
    def look(where: str) -> str:
        """Look somewhere."""
        return f"seen {where}" * 20

    temporal = await Client.connect(perdure_server, data_converter=converter)
    app = AgentWorker(
        Agent(name="seer", model="scripted:m", tools=[look]),
        task_queue=f"test-{secrets.token_hex(6)}",
        providers={"scripted": ScriptedModel(calls(call("look", where=secret)), says("done"))},
    )
    client = RecordingClient(temporal, app.task_queue)
    async with app.running(temporal):
        turn = await client.start("seer", "go")
        report = await turn.result()
        facts = facts_of(await events_of(turn))
    await check_history(temporal, turn.id, await turn.first_run())
    kept = await Client.connect(perdure_server)
    history = await kept.get_workflow_handle(turn.id).fetch_history()
    await Replayer(
        workflows=[AgentTurn], interceptors=[OneInput()], data_converter=converter
    ).replay_workflow(WorkflowHistory(turn.id, history.events))

    [marker] = markers(WorkflowHistory(turn.id, history.events))
    held = marker.SerializeToString()
    assert report.steps[0].results[0].content == f"seen {secret}" * 20
    assert [type(fact) for fact in facts] == [Scheduled, ToolReturned]
    assert b"seen" not in held
    assert (secret.encode() in held) == (how == "stored")  # in the summary of the row


@pytest.mark.accepts("T34", "O10")
async def test_local_call_is_a_row_with_a_summary_and_a_record(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """The marker has the words of any tool's row, and the log the same line."""
    caplog.set_level(logging.INFO, "perdure")
    usual = tool(name="add", read_only=True)(add.function)
    summaries = []

    for agent in (
        Agent(name="row", model="scripted:x", tools=[usual]),
        Agent(name="row", model="scripted:x", tools=[add]),
    ):
        model = ScriptedModel(calls(call("add", a=1, b=2)), says("done"))
        async with runtime(agent, model=model) as client:
            turn = await client.start(agent, "go")
            await turn.result()
            history = await client.history(turn)
            [row] = [
                event
                for event in history.events
                if event in markers(history)
                or event.activity_task_scheduled_event_attributes.activity_id == "step-1.call-1"
            ]
            summaries += await client.temporal.data_converter.decode([row.user_metadata.summary])

    told = [
        {name: said[name] for name in ("event", "agent", "tool", "outcome")}
        for said in (vars(record).get("perdure", {}) for record in caplog.records)
        if said.get("event") == "tool_call"
    ]
    assert summaries == ['step 1: {"a": 1, "b": 2}', 'step 1: add {"a": 1, "b": 2}']
    assert told == [{"event": "tool_call", "agent": "row", "tool": "add", "outcome": "ok"}] * 2


@pytest.mark.accepts("T42")
async def test_worker_that_is_stopped_in_a_local_call_leaves_it_to_another(
    perdure_server: str,
) -> None:
    """The next worker makes the call as an activity, at once, and the model is asked no more."""
    slow = Slow()
    look = tool(read_only=True, local=True)(slow.look)
    model = ScriptedModel(calls(call("look")), says("done"))
    async with queue(perdure_server) as work:
        app = AgentWorker(Agent(name="seer", model="scripted:x", tools=[look]))
        async with work.worker(app, model):
            turn = await work.client.start("seer", "go")
            await eventually(lambda: len(slow.contexts) == 1, "the call begins")
        slow.let_go.set()
        began = time.monotonic()
        async with work.worker(app, model):
            report = await turn.result()
        took = time.monotonic() - began

    assert [result.content for result in report.steps[0].results] == ["seen"]
    assert (model.call_count, len(slow.contexts) in (2, 3)) == (2, True)
    assert len({ctx.idempotency_key for ctx in slow.contexts}) == 1
    assert took < 15
