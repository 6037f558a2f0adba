"""Messages to a running turn: when the model reads them, and what happens to those that it does
not read.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from temporalio.client import WithStartWorkflowOperation, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy

from perdure import Agent, AgentReport, Budget, InputGuardrail, Outcome, Task, errors, limits, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import Turn
from perdure.events import Said, WaitBegan
from perdure.temporal.names import STEER, TURN
from perdure.testing import FunctionModel, ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.values.answers import ModelAnswer
from perdure.values.messages import Message, ToolMessage, UserMessage

from ...conftest import RecordingClient, Runtime
from ...support.resets import reset, task_ends
from ...support.spending import SOON_S, app, ended, queue, spender, until

NEWS = "Use the new price list."


class Talked(ScriptedModel):
    """A model during whose calls something happens; `during` has it by the number of the call."""

    def __init__(self, *replies: Reply | str) -> None:
        super().__init__(*replies)
        self.during: dict[int, Callable[[], Awaitable[object]]] = {}

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        answer = await super().complete(request)
        if self.call_count in self.during:
            await self.during[self.call_count]()
        return answer


def texts(messages: Sequence[Message]) -> list[str]:
    """The texts of the user's messages."""
    return [message.text for message in messages if isinstance(message, UserMessage)]


async def begin(client: RecordingClient, model: Talked, **given: Any) -> Turn:
    """Start a turn that is there before its model answers."""
    begun = asyncio.Event()
    first = model.during.pop(1, None)

    async def hold() -> None:
        await begun.wait()
        if first is not None:
            await first()

    model.during[1] = hold
    turn = await client.start("spender", "Price it.", id=f"steer-{secrets.token_hex(4)}", **given)
    model.turn = turn  # type: ignore[attr-defined]
    begun.set()
    return turn


def says_to(model: Talked, text: str = NEWS, **given: Any) -> Callable[[], Awaitable[object]]:
    """Send a message to the turn of a model."""

    async def say() -> None:
        await model.turn.steer(text, **given)  # type: ignore[attr-defined]

    return say


@pytest.mark.accepts("E5", "E45")
async def test_turn_goes_on_after_its_answer_if_a_message_came_meanwhile(runtime: Runtime) -> None:
    model = Talked(says("by the old list"), says("by the new list"))
    model.during[1] = says_to(model, id="news", by="ann@example.com")
    async with runtime(app(), model=model) as client:
        turn = await begin(client, model)
        report = await turn.result()
        events = [event async for event in turn.events()]

    assert report.output == "by the new list"
    assert report.unread == ()
    assert texts(model.requests[1].messages) == ["Price it.", NEWS]
    said = next(event.fact for event in events if isinstance(event.fact, Said))
    assert (said.id, said.text, said.by) == ("news", NEWS, "ann@example.com")
    [read] = [event for event in events if event.read]
    assert (read.read, read.step, read.kind) == (("news",), 2, "scheduled")


@pytest.mark.accepts("E45")
async def test_message_is_read_after_the_results_of_the_tools(runtime: Runtime) -> None:
    """Two messages are read in the order in which they were sent, and one id is one message."""
    talking = asyncio.Event()
    told = asyncio.Event()

    @tool
    async def ask() -> str:
        """Take a while."""
        talking.set()
        await told.wait()
        return "asked"

    model = Talked(calls(call("ask")), says("done"))
    async with runtime(app(tools=[ask]), model=model) as client:
        turn = await begin(client, model)
        await talking.wait()
        assert await turn.steer("first", id="1") == "1"
        await turn.steer("second")
        await turn.steer("first", id="1")
        told.set()
        report = await turn.result()

    request = model.requests[1].messages
    assert isinstance(request[-3], ToolMessage)
    assert texts(request[-2:]) == ["first", "second"]
    assert len(report.steps) == 2


@pytest.mark.slow
@pytest.mark.accepts("Y124")
async def test_message_that_a_reset_delivers_again_is_read_once(runtime: Runtime) -> None:
    """Whether the turn is reset to before the message or after it, and in the order of before."""
    talking, told = asyncio.Event(), asyncio.Event()

    @tool(idempotent=True)
    async def ask() -> str:
        """Take a while."""
        talking.set()
        await told.wait()
        return "asked"

    def answer(request: ModelRequest) -> Reply:
        return says("done") if len(request.messages) > 1 else calls(call("ask"))

    async with runtime(app(tools=[ask]), model=FunctionModel(answer)) as client:
        turn = await client.start("spender", "Price it.")
        await talking.wait()
        for number in ("1", "2"):
            await turn.steer(f"message {number}", id=number)
        told.set()
        reports = [await turn.result()]
        for event_id in task_ends(await client.history(turn))[1:]:
            again = await reset(client, turn, event_id)
            reports.append(await again.result())

    assert len(reports) > 2
    assert [texts(report.messages) for report in reports] == [
        ["Price it.", "message 1", "message 2"]
    ] * len(reports)
    assert [report.unread for report in reports] == [()] * len(reports)


@pytest.mark.slow
@pytest.mark.accepts("E46")
async def test_limit_of_iterations_grants_one_step_to_read_a_message(runtime: Runtime) -> None:
    """One in a turn: what comes after it is in the report."""
    model = Talked(calls(call("look")), calls(call("look", number=2)), says("never"))
    model.during[1] = says_to(model, "first")
    model.during[2] = says_to(model, "second")
    async with runtime(app(max_iterations=1), model=model) as client:
        turn = await begin(client, model)
        error = await ended(turn)

    assert isinstance(error, errors.MaxIterationsError)
    assert error.report is not None
    assert texts(error.report.unread) == ["second"]
    assert len(error.report.steps) == 2


@pytest.mark.slow
@pytest.mark.accepts("E46")
async def test_turn_that_waits_for_iterations_reads_a_message(runtime: Runtime) -> None:
    model = Talked(calls(call("look")), says("done"))
    worker = app(max_iterations=1, on_exhausted="pause")
    async with runtime(worker, model=model) as client:
        turn = await begin(client, model)
        await until(turn, WaitBegan)
        await turn.steer(NEWS)
        report = await turn.result()

    assert report.output == "done"
    assert texts(model.requests[1].messages)[-1] == NEWS


@pytest.mark.table(1)
@pytest.mark.accepts("E46", "E47")
@pytest.mark.parametrize(("exhausted", "most"), [("fail", 1), ("pause", 1), ("finish", 2)])
async def test_spent_budget_ends_a_turn_with_its_answer_and_names_what_is_unread(
    runtime: Runtime, exhausted: Any, most: int
) -> None:
    """With `finish`, one call is kept for an agent that has no answer; this one has."""
    model = Talked(says("by the old list"))
    model.during[1] = says_to(model)
    worker = app(budget=Budget(model_calls=most), on_exhausted=exhausted)
    async with runtime(worker, model=model) as client:
        turn = await begin(client, model)
        report = await turn.result()

    assert (report.outcome, report.output) == (Outcome.COMPLETED, "by the old list")
    assert texts(report.unread) == [NEWS]


@pytest.mark.slow
@pytest.mark.accepts("E47")
async def test_turn_that_is_cancelled_names_what_is_unread_and_its_resumption_reads_it(
    runtime: Runtime,
) -> None:
    """A fork does not: it is another conversation."""
    model = Talked(calls(call("look")), says("resumed"), says("forked"))
    held = asyncio.Event()

    async def cancel() -> None:
        await says_to(model, id="news")()
        await model.turn.cancel("enough")  # type: ignore[attr-defined]
        await held.wait()

    model.during[1] = cancel
    async with runtime(app(), model=model) as client:
        turn = await begin(client, model)
        error = await ended(turn)
        assert isinstance(error, errors.TurnCancelledError)
        assert error.report is not None
        resumed = await turn.resume()
        report = await resumed.result()
        forked = await turn.fork(0)
        await forked.result()

    assert [message.id for message in error.report.unread] == ["news"]
    assert texts(model.requests[1].messages) == ["Price it.", NEWS]
    assert (report.output, report.unread) == ("resumed", ())
    assert texts(model.requests[2].messages) == ["Price it."]


@pytest.mark.accepts("E48")
async def test_model_call_is_stopped_for_a_message_that_is_to_be_read_now(runtime: Runtime) -> None:
    """It is charged at the most it may have cost, and does not count as a failure of the model."""
    model = Talked(says("never"), says("by the new list"))

    async def stop() -> None:
        await says_to(model, now=True)()
        await asyncio.sleep(SOON_S)

    model.during[1] = stop
    async with runtime(app(budget=Budget(usd="50")), model=model) as client:
        turn = await begin(client, model)
        report = await turn.result()

    assert report.output == "by the new list"
    assert (report.model_calls, len(report.steps)) == (2, 1)
    assert report.steps[0].tried == ()
    assert report.cost is not None
    assert report.cost > 1
    assert texts(model.requests[1].messages)[-1] == NEWS


@pytest.mark.table(1)
@pytest.mark.accepts("E49")
@pytest.mark.parametrize("denies", [True, False])
async def test_calls_that_wait_for_a_person_are_denied_only_if_asked(
    runtime: Runtime, denies: bool
) -> None:
    """The model then gets the text as the reason, and as a message."""
    sent: list[str] = []

    @tool(requires_approval=True)
    def send(to: str) -> str:
        """Send a letter."""
        sent.append(to)
        return f"sent to {to}"

    model = Talked(calls(call("send", to="Ann"), call("send", to="Bob")), says("done"))
    async with runtime(app(tools=[send]), model=model) as client:
        turn = await begin(client, model)
        await until(turn, WaitBegan)
        await turn.steer(NEWS, deny_pending=denies, by="eve")
        pending = await turn.pending_approvals()
        assert len(pending) == (0 if denies else 2)
        for one in pending:
            await turn.approve(one)
        report = await turn.result()

    [results, news] = model.requests[1].messages[-2:]
    assert isinstance(results, ToolMessage)
    assert texts([news]) == [NEWS]
    assert len(results.results) == 2
    assert [NEWS in result.content for result in results.results] == [denies, denies]
    assert [decision.by for decision in report.steps[0].decisions] == (
        ["eve", "eve"] if denies else [None, None]
    )
    assert len(sent) == (0 if denies else 2)


@pytest.mark.accepts("E45", "E47")
async def test_message_survives_its_worker(perdure_server: str) -> None:
    """Another worker, which knows nothing of it, reads it from history."""

    @tool(requires_approval=True)
    def send() -> str:
        """Send a letter."""
        return "sent"

    model = Talked(calls(call("send")), says("done"))
    worker = app(spender(tools=[send]))
    async with queue(perdure_server) as work:
        async with work.worker(worker, model):
            turn = await begin(work.client, model)
            await until(turn, WaitBegan)
            await turn.steer(NEWS, id="news")
        async with work.worker(worker, model):
            [pending] = await turn.pending_approvals()
            await turn.approve(pending)
            await turn.steer(NEWS, id="news")
            await turn.result()

    assert texts(model.requests[1].messages) == ["Price it.", NEWS]


@pytest.mark.accepts("E50")
async def test_bad_messages_are_refused_and_change_nothing(runtime: Runtime) -> None:
    @tool(requires_approval=True)
    def send() -> str:
        """Send a letter."""
        return "sent"

    model = Talked(calls(call("send")), says("done"))
    async with runtime(app(tools=[send]), model=model) as client:
        turn = await begin(client, model)
        await until(turn, WaitBegan)
        for bad in (
            {"content": " "},
            {"content": "\ud800"},
            {"content": 3},
            {"id": "a\nb"},
            {"id": "x" * 101},
            {"by": ""},
            {"now": 1},
        ):
            with pytest.raises(errors.InvalidRequestError):
                await turn.steer(**{"content": NEWS, **bad})  # type: ignore[arg-type]
        raw = client.temporal.get_workflow_handle(turn.id)
        for invalid in ({"text": ""}, {"words": "x"}, "x", {"text": 1}):
            with pytest.raises(WorkflowUpdateFailedError):
                await raw.execute_update("steer", invalid)
        with pytest.raises(errors.TooLargeError):
            await turn.steer("x" * (limits.UNREAD_BYTES + 1))
        for number in range(limits.UNREAD_MESSAGES):
            await turn.steer(f"message {number}")
        with pytest.raises(errors.TooLargeError) as full:
            await turn.steer("one more", id="late")
        [pending] = await turn.pending_approvals()
        await turn.approve(pending)
        report = await turn.result()
        with pytest.raises(errors.TurnOverError) as over:
            await turn.steer("too late")

    assert full.value.context == {"messages": 20, "limit": 20}
    assert len(texts(model.requests[1].messages)) == 1 + limits.UNREAD_MESSAGES
    assert over.value.report == report


@pytest.mark.slow
@pytest.mark.accepts("E45")
async def test_plain_json_and_delegates_are_steered_too(runtime: Runtime) -> None:
    """A delegate's turn has an id, and Temporal's own client may send the message."""
    writer = Agent(name="writer", model="scripted:writer")
    editor = spender(delegates=["writer"])
    below = Talked(says("draft"), says("better draft"))
    model = Talked(
        calls(call("delegate_to_agent", agent="writer", task="Write.")), says("published")
    )
    async with runtime(app(editor, writer), model={"spender": model, "writer": below}) as client:

        async def tell() -> None:
            handle = client.temporal.get_workflow_handle(f"{turn.id}/writer-1")
            await handle.execute_update("steer", {"text": NEWS})

        below.during[1] = tell
        turn = await begin(client, model)
        report = await turn.result()

    assert report.output == "published"
    results = model.requests[1].messages[-1]
    assert isinstance(results, ToolMessage)
    assert "better draft" in results.results[0].content


@pytest.mark.accepts("E45")
async def test_message_in_the_first_task_of_a_turn_is_read(runtime: Runtime) -> None:
    """The SDK runs the handler before the turn has its input; history has the input first."""
    model = ScriptedModel(says("done"))
    async with runtime(app(), model=model) as client:
        turn_id = f"steer-{secrets.token_hex(4)}"
        await client.temporal.execute_update_with_start_workflow(
            STEER,
            {"text": NEWS},
            id="early",
            start_workflow_operation=WithStartWorkflowOperation(
                TURN,
                {"agent": "spender", "task": "Price it."},
                id=turn_id,
                task_queue=client.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            ),
        )
        await client.turn(turn_id).result()

    assert texts(model.requests[0].messages) == ["Price it.", NEWS]


def guarded(seen: list[str]) -> Agent:
    """An agent that refuses what is bad; `seen` has what its guardrail was asked about."""

    def is_good(task: Task) -> bool | str:
        seen.append(task.content if isinstance(task.content, str) else "")
        return "bad" not in seen[-1] or "it is bad"

    return spender(middleware=[InputGuardrail(is_good)])


@pytest.mark.slow
@pytest.mark.accepts("U21")
async def test_input_guardrail_sees_messages_to_the_running_turn(runtime: Runtime) -> None:
    """Each once; the model is not asked about a refused one, which ends the turn, and a turn that
    is resumed with it too. What is said to a fork is checked as well.
    """
    model = Talked(calls(call("look")), calls(call("look")), says("fine"))
    seen: list[str] = []
    async with runtime(app(guarded(seen)), model=model) as client:
        model.during = {1: says_to(model, "good", id="m-1"), 2: says_to(model, "a bad one")}
        turn = await begin(client, model)
        error = await ended(turn)
        resumed = await ended(await turn.resume())
        forked = await ended(await turn.fork(1, say="also bad"))
        said = await ended(await turn.fork(1, say="all good"))

    assert isinstance(error, errors.GuardrailError)
    assert error.message == "a guardrail refused a message: it is bad"
    assert error.report is not None
    assert [message.text for message in error.report.unread] == ["a bad one"]
    assert isinstance(resumed, errors.GuardrailError)
    assert isinstance(forked, errors.GuardrailError)
    assert isinstance(said, AgentReport)
    assert said.output == "fine"
    assert seen[:4] == ["Price it.", "good", "a bad one", "Price it."]
    assert model.call_count == 3


@pytest.mark.slow
@pytest.mark.accepts("U21")
async def test_input_guardrail_sees_each_message_that_waited_in_a_session(runtime: Runtime) -> None:
    """Those that a turn begins with, and one that is steered."""
    model = Talked(says("one"), says("two"))
    seen: list[str] = []
    async with runtime(app(guarded(seen)), model=model) as client:
        session = client.session(f"chat-{secrets.token_hex(4)}", "spender")

        async def say_more() -> None:
            await session.say("second", id="m-2")
            await session.say("a bad third", id="m-3")

        model.during = {1: say_more}
        first = await session.say("first")
        assert (await first.result()).output == "one"
        with pytest.raises(errors.GuardrailError):
            await (await session.turn_of("m-2")).result()
        with pytest.raises(errors.GuardrailError):
            await (await session.turn_of("m-3")).result()

    assert seen[:3] == ["first", "second", "a bad third"]
    assert model.call_count == 1
