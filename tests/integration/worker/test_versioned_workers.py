"""Versioned workers: what waits moves on to another build, and nothing of it is lost or twice."""

import asyncio
import contextlib
import secrets
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta

import pytest
from temporalio.client import Client

from perdure import Agent, Budget, Delegate, Outcome, errors
from perdure.activities.provider import ModelRequest
from perdure.clients import Turn
from perdure.testing import FunctionModel, Reply, ScriptedModel, call, calls, says
from perdure.values.answers import ModelAnswer
from perdure.values.messages import ToolMessage, UserMessage
from perdure.worker.deploying import routing
from perdure.worker.deploying.checking import failure_of

from ...conftest import check_history, eventually
from ...support.approving import agent, pending, sent
from ...support.delegating import delegate
from ...support.keyed_events import MODEL as WAITS_AS_TOLD
from ...support.keyed_events import keeper, key_of_test, waiter, waiting_turn
from ...support.resets import reset_to, task_ends
from ...support.versioned import Versions, builds_of, ignore, move_on, until_begun


@pytest.fixture
async def versions(perdure_server: str) -> Versions:
    """A deployment of its own."""
    return Versions(await Client.connect(perdure_server))


@pytest.mark.accepts("V1", "V2")
async def test_turn_that_waits_for_approval_moves_on_and_its_call_runs_once(
    versions: Versions,
) -> None:
    """The approval is the same, the build is another, and the budget goes on."""
    sent.clear()
    temporal = versions.client.temporal
    asks = ScriptedModel(calls(call("send", to="ann")))
    ends = ScriptedModel(says("done"))
    async with versions.worker("v1", agent(), providers={"scripted": asks}):
        await versions.promote("v1")
        turn = await versions.client.start("clerk", "write", budget=Budget(model_calls=2))
        (asked,) = await pending(turn)
        async with versions.worker("v2", agent(), providers={"scripted": ends}):
            before = await versions.promote("v2")
            await move_on(temporal, turn.id)
            await versions.runs_on(turn.id, "v2")
            (on_new,) = await pending(turn)
            await turn.approve(on_new.call_id, by="eve")
            report = await asyncio.wait_for(turn.result(), 60)

    assert before == "v1"
    assert asked == on_new
    assert (report.outcome, report.output) == (Outcome.COMPLETED, "done")
    assert sent == ["ann"]
    assert report.model_calls == 2
    assert await builds_of(temporal, turn.id) == ["v1", "v2"]


async def ended(turn: Turn) -> Outcome:
    """How a turn ends."""
    with contextlib.suppress(errors.TurnCancelledError):
        return (await turn.result()).outcome
    return Outcome.CANCELLED


class Gates:
    """A model that answers a task once its gate is open, and knows what it was asked.

    Attributes:
        asked: How often each task was asked for, with all gates.
    """

    def __init__(self, open_from: Sequence[str] = ()) -> None:
        self.asked = Counter[str]()
        self._gates = defaultdict[str, asyncio.Event](asyncio.Event)
        for task in open_from:
            self._gates[task].set()

    def open(self, *tasks: str) -> None:
        """Let these be answered."""
        for task in tasks:
            self._gates[task].set()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer once the gate is open."""
        task = [each.text for each in request.messages if isinstance(each, UserMessage)][-1]
        self.asked[task] += 1
        await self._gates[task].wait()
        return await ScriptedModel(says(f"did {task}")).complete(request)

    async def close(self) -> None: ...


async def timers_of(client: Client, workflow_id: str) -> list[timedelta]:
    """The timers that the last run of a workflow has begun."""
    return [
        event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
        async for event in client.get_workflow_handle(workflow_id).fetch_history_events()
        if event.HasField("timer_started_event_attributes")
    ]


@pytest.mark.slow
@pytest.mark.accepts("V3")
async def test_session_moves_on_while_it_is_idle_and_before_a_message(versions: Versions) -> None:
    """Its messages are answered in order, each once, and the time that it was idle goes on."""
    temporal, day = versions.client.temporal, timedelta(days=1)
    talker = Agent(name="talker", model="scripted:talker")
    old, new = ScriptedModel(says("one"), says("one")), ScriptedModel(says("two"), says("three"))
    async with versions.worker("v1", talker, providers={"scripted": old}):
        await versions.promote("v1")
        names = [f"chat-{secrets.token_hex(4)}" for _ in range(2)]
        idle, asked = (versions.client.session(name, "talker", idle=day) for name in names)
        for session in (idle, asked):
            await (await session.say("first")).result()
        async with versions.worker("v2", talker, providers={"scripted": new}):
            await versions.promote("v2")
            second, third = await asked.say("second"), await asked.say("third")
            answers = [(await each.result()).output for each in (second, third)]
            drained = await versions.drain("v1")
    read = [each.text for each in new.requests[-1].messages if isinstance(each, UserMessage)]
    (left,) = await timers_of(temporal, idle.id)

    assert answers == ["two", "three"]
    assert read == ["first", "second", "third"]
    assert drained.drained
    assert await builds_of(temporal, asked.id) == ["v1", "v2"]
    assert await builds_of(temporal, idle.id) == ["v1", "v2"]
    assert day - timedelta(minutes=2) < left < day


@pytest.mark.slow
@pytest.mark.accepts("V4")
async def test_batch_in_the_middle_moves_on_and_each_task_runs_once(versions: Versions) -> None:
    """Calls in flight end on the old build; what had not begun is run by the new one."""
    temporal = versions.client.temporal
    worker = Agent(name="worker", model="scripted:worker")
    tasks = [f"task {number}" for number in range(8)]
    old, new = Gates(open_from=tasks[:2]), Gates(open_from=tasks)
    async with versions.worker("v1", worker, providers={"scripted": old}):
        await versions.promote("v1")
        batch = await versions.client.start_batch(
            f"batch-{secrets.token_hex(4)}",
            "worker",
            tasks,
            at_once=2,
            budget=Budget(model_calls=9),
        )
        await eventually(lambda: sum(old.asked.values()) == 4, "two tasks are done, two run")
        async with versions.worker("v2", worker, providers={"scripted": new}):
            await versions.promote("v2")
            await move_on(temporal, batch.id)
            await versions.runs_on(batch.id, "v2")
            old.open(*tasks)
            results = [result async for result in batch.results()]
            drained = await versions.drain("v1")
    status = await batch.status()

    assert sorted(str(result.output) for result in results) == [f"did {task}" for task in tasks]
    assert old.asked + new.asked == Counter(tasks)
    assert sum(new.asked.values()) == 4
    assert (status.done, status.failed) == (8, 0)
    assert drained.drained
    assert await builds_of(temporal, batch.id) == ["v1", "v2"]


@pytest.mark.slow
@pytest.mark.accepts("V5", "V6")
async def test_delegate_moves_on_alone_and_its_parent_after_it(versions: Versions) -> None:
    """The drain says what holds the parent, and an override moves it in the middle of its run."""
    sent.clear()
    temporal = versions.client.temporal
    helper = agent(name="helper", model="scripted:helper", description="Sends.")
    lead = Agent(name="lead", model="scripted:lead", delegates=[Delegate("helper")])

    def replies(request: ModelRequest) -> Reply:
        done = any(isinstance(message, ToolMessage) for message in request.messages)
        if request.model.endswith("lead"):
            return says("all done") if done else delegate("helper", "send")
        return says("sent it") if done else calls(call("send", to="bob"))

    async def replays(workflow_id: str, run_id: str) -> str:
        return await failure_of(temporal, workflow_id, run_id)

    model = {"scripted": FunctionModel(replies)}
    async with versions.worker("v1", [lead, helper], providers=model):
        await versions.promote("v1")
        first, second = [await versions.client.start("lead", "go") for _ in range(2)]
        below = [versions.client.turn(f"{turn.id}/helper-1") for turn in (first, second)]
        for turn in below:
            await until_begun(turn)
            await pending(turn)
        async with versions.worker("v2", [lead, helper], providers=model):
            await versions.promote("v2")
            with pytest.raises(TimeoutError):
                await versions.drain("v1", within_s=10.0)
            stays = versions.last
            await below[0].approve((await pending(below[0]))[0].call_id)
            outputs = [(await asyncio.wait_for(first.result(), 60)).output]
            overridden = await versions.drain("v1", replays=replays)
            await below[1].approve((await pending(below[1]))[0].call_id)
            outputs += [(await asyncio.wait_for(second.result(), 60)).output]

    assert {(each.id, each.reason) for each in stays.held} == {
        (turn.id, f"waits for its child {turn.id}/helper-1") for turn in (first, second)
    }
    assert (overridden.drained, overridden.overridden) == (True, 1)
    assert outputs == ["all done", "all done"]
    assert sent == ["bob", "bob"]
    assert await builds_of(temporal, first.id) == ["v1", "v2"]
    assert await builds_of(temporal, second.id) == ["v1+v2"]
    assert await builds_of(temporal, below[1].id) == ["v1", "v2"]
    await check_history(temporal, second.id, None)


@pytest.mark.slow
@pytest.mark.accepts("V7")
async def test_events_by_key_reach_a_turn_that_has_moved_on(versions: Versions) -> None:
    """The keeper of the events moves on, too."""
    temporal, key = versions.client.temporal, key_of_test()
    model = {"scripted": WAITS_AS_TOLD}
    async with versions.worker("v1", waiter(), providers=model):
        await versions.promote("v1")
        turn = await waiting_turn(versions.client, key)
        async with versions.worker("v2", waiter(), providers=model):
            await versions.promote("v2")
            drained = await versions.drain("v1")
            await versions.client.emit("built", key=key, body="green")
            report = await asyncio.wait_for(turn.result(), 60)
    assert drained.drained
    assert "green" in report.output
    assert (await builds_of(temporal, turn.id)) == ["v1", "v2"]
    assert (await builds_of(temporal, keeper(versions.client, key).id))[:2] == ["v1", "v2"]


@pytest.mark.slow
@pytest.mark.accepts("V8")
async def test_rollback_to_workers_without_a_version(versions: Versions) -> None:
    """They get new work, and what waits moves to them, with its approval."""
    sent.clear()
    temporal = versions.client.temporal
    asks = {"scripted": ScriptedModel(calls(call("send", to="ann")))}
    ends = {"scripted": ScriptedModel(says("done"), says("new"))}
    async with versions.worker("v1", agent(), providers=asks):
        await versions.promote("v1")
        turn = await versions.client.start("clerk", "write")
        await pending(turn)
        async with versions.worker(None, agent(), providers=ends):
            rolled = await routing.roll_back(versions.deployment, "", ignore)
            drained = await versions.drain("v1")
            (asked,) = await pending(turn)
            await turn.approve(asked.call_id)
            report = await asyncio.wait_for(turn.result(), 60)
    async with versions.worker(None, agent(), providers=ends):
        other = await versions.client.run("clerk", "write")

    assert rolled == ("", "v1")
    assert drained.drained
    assert (report.output, other.output, sent) == ("done", "new", ["ann"])
    assert await builds_of(temporal, turn.id) == ["v1", ""]


@pytest.mark.slow
@pytest.mark.accepts("V9")
async def test_nothing_that_is_sent_while_turns_move_on_is_lost(versions: Versions) -> None:
    """Decisions, messages and cancels at the moment of the move take effect, and once."""
    sent.clear()
    temporal = versions.client.temporal
    names = [f"to-{number}" for number in range(12)]

    def replies(request: ModelRequest) -> Reply:
        if any(isinstance(message, ToolMessage) for message in request.messages):
            texts = [each.text for each in request.messages if isinstance(each, UserMessage)]
            return says(" ".join(texts))
        (task,) = (each.text for each in request.messages[-1:] if isinstance(each, UserMessage))
        return calls(call("send", to=task))

    model = {"scripted": FunctionModel(replies)}
    async with versions.worker("v1", agent(), providers=model):
        await versions.promote("v1")
        turns = [await versions.client.start("clerk", name) for name in names]
        asked = {turn.id: (await pending(turn))[0] for turn in turns}
        async with versions.worker("v2", agent(), providers=model):
            await versions.promote("v2")
            work = list[asyncio.Future[object]]()
            for number, turn in enumerate(turns):
                work.append(asyncio.ensure_future(move_on(temporal, turn.id)))
                if number % 3 == 0:
                    work.append(asyncio.ensure_future(turn.steer("more", id="m")))
                    work.append(asyncio.ensure_future(turn.approve(asked[turn.id].call_id)))
                if number % 3 == 1:
                    work.append(asyncio.ensure_future(turn.cancel("enough")))
            await asyncio.gather(*work)
            for number, turn in enumerate(turns):
                if number % 3 == 2:
                    await versions.runs_on(turn.id, "v2")
                    await turn.approve((await pending(turn))[0].call_id)
            outcomes = [await asyncio.wait_for(ended(turn), 60) for turn in turns]
            outputs = [(await turn.result()).output for turn in turns[::3]]

    assert Counter(outcomes) == {Outcome.COMPLETED: 8, Outcome.CANCELLED: 4}
    assert sorted(sent) == sorted(name for at, name in enumerate(names) if at % 3 != 1)
    assert outputs == [f"{name} more" for name in names[::3]]
    for turn in turns:
        await check_history(temporal, turn.id, None)


@pytest.mark.slow
@pytest.mark.accepts("V10")
async def test_reset_and_fork_of_a_turn_that_has_moved_on(versions: Versions) -> None:
    """Both go on with the current build; what the turn had done is done, also in the run before."""
    sent.clear()
    temporal = versions.client.temporal
    asks = {"scripted": ScriptedModel(calls(call("send", to="ann")))}
    ends = {"scripted": ScriptedModel(says("done"), says("done again"), says("forked"))}
    async with versions.worker("v1", agent(), providers=asks):
        await versions.promote("v1")
        turn = await versions.client.start("clerk", "write")
        await pending(turn)
        async with versions.worker("v2", agent(), providers=ends):
            await versions.promote("v2")
            await versions.drain("v1")
            await turn.approve((await pending(turn))[0].call_id)
            await asyncio.wait_for(turn.result(), 60)
            run = temporal.get_workflow_handle(turn.id)
            on_new = (await run.describe()).run_id or ""
            asking_again = task_ends(await run.fetch_history())[-2]
            await reset_to(temporal, turn.id, on_new, asking_again)
            again = versions.client.turn(turn.id)
            report = await asyncio.wait_for(again.result(), 60)
            fork = await again.fork(say="again")
            forked = await asyncio.wait_for(fork.result(), 60)
    assert (report.output, forked.output, sent) == ("done again", "forked", ["ann"])
    assert await versions.build_of(turn.id) == await versions.build_of(fork.id) == "v2"


@pytest.mark.slow
@pytest.mark.accepts("V29", "V30")
async def test_turns_without_a_build_or_with_a_lost_one_go_on_with_the_current_one(
    versions: Versions,
) -> None:
    """The first release with builds takes over what began without; an override saves what is pinned
    to a build whose workers are gone, and an approval that was sent meanwhile counts.
    """
    sent.clear()
    temporal = versions.client.temporal

    async def replays(workflow_id: str, run_id: str) -> str:
        return await failure_of(temporal, workflow_id, run_id)

    def replies(request: ModelRequest) -> Reply:
        done = any(isinstance(message, ToolMessage) for message in request.messages)
        return says("done") if done else calls(call("send", to="ann"))

    model = {"scripted": FunctionModel(replies)}
    async with versions.worker(None, agent(), providers=model):
        before = await versions.client.start("clerk", "write")
        await pending(before)
    async with versions.worker("v1", agent(), providers=model):
        await versions.promote("v1")
        await before.approve((await pending(before))[0].call_id)
        reports = [await asyncio.wait_for(before.result(), 60)]
        lost = await versions.client.start("clerk", "write")
        (asked,) = await pending(lost)
    async with versions.worker("v2", agent(), providers=model):
        await versions.promote("v2")
        approving = asyncio.create_task(lost.approve(asked.call_id))
        with pytest.raises(TimeoutError):
            await versions.drain("v1", within_s=8.0)
        stays = versions.last
        await versions.drain("v1", replays=replays)
        await approving
        reports.append(await asyncio.wait_for(lost.result(), 60))

    assert [report.output for report in reports] == ["done", "done"]
    assert sent == ["ann", "ann"]
    assert [(each.id, each.reason) for each in stays.held] == [
        (lost.id, "waits for a worker of v1")
    ]
    assert await builds_of(temporal, before.id) == ["+v1"]
    assert (await builds_of(temporal, lost.id))[0] == "v1+v2"
