"""Events by key and what else becomes of turns: new runs, resets, forks, delegates, sessions."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from perdure import Agent, Delegate, errors
from perdure.clients import Turn
from perdure.events import Emitted, WaitBegan
from perdure.keyed_events.wire import KeyedEvents
from perdure.temporal.names import AWAIT_EVENT, EMIT, KEYED_EVENTS
from perdure.temporal.payloads import pack
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, says
from perdure.turn.event_keys import workflow_id
from perdure.turn.wait_values import EmitByKey
from perdure.values.messages import ToolMessage, UserMessage

from ...conftest import RecordingClient, Runtime
from ...support.keyed_events import (
    MODEL,
    keeper,
    key_of_test,
    task,
    waiter,
    waiting_turn,
    waits_as_told,
)
from ...support.long_turns import SHORT_TASK, begin, runs_of
from ...support.replaying import replayed
from ...support.resets import reset, task_ends
from ...support.scheduling import new_id
from ...support.spending import SOON_S, ended, until


async def begun(turn: Turn[Any], waits: int) -> None:
    """Wait until so many waits of a turn have begun."""
    count = 0
    async for event in turn.events():
        count += isinstance(event.fact, WaitBegan)
        if count == waits:
            return


async def until_waiting(turn: Turn[Any]) -> None:
    """Wait until a turn, or a turn below it, waits."""
    async with asyncio.timeout(SOON_S):
        while True:
            with contextlib.suppress(errors.TurnNotFoundError):
                if (await turn.status()).waits:
                    return
            await asyncio.sleep(0.1)


async def begin_keeper(client: RecordingClient, key: str) -> None:
    """Start a keeper with runs of some 300 events, as the first event would."""
    await client.temporal.start_workflow(
        KEYED_EVENTS,
        pack(KeyedEvents(name="built", key=key)),
        id=workflow_id("built", key),
        task_queue=client.task_queue,
        task_timeout=SHORT_TASK,
        start_signal=AWAIT_EVENT,
        start_signal_args=[{"turn_id": "none", "until": "2100-01-01T00:00:00Z"}],
    )


@pytest.mark.accepts("W45")
async def test_event_by_key_finds_the_turn_in_a_new_run(runtime: Runtime) -> None:
    """It is registered once, in the run before; what it has got is known in the new run."""
    key = key_of_test()
    told = task([{"key": key}], [{"key": key}], [{"key": key, "timeout": 0.2}])
    async with runtime(waiter(), model=MODEL) as client:
        turn = await begin(client, "waiter", told)
        await until(turn, WaitBegan)
        await client.emit("built", key=key, body=1)
        await begun(turn, 2)
        for number in range(100):
            await turn.emit("step", number)
            if len(await runs_of(client, turn)) > 1:
                break
        await client.emit("built", key=key, body=2)
        report = await turn.result()
        runs = await runs_of(client, turn)

    assert len(runs) > 1
    first, second, third = [step.results[0].content for step in report.steps[:3]]
    assert [first[-1], second[-1]] == ["1", "2"]
    assert "did not come" in third


@pytest.mark.accepts("W45")
async def test_keeper_goes_on_in_a_new_run(runtime: Runtime) -> None:
    """With the turns that wait, the events that are kept, and the ids that it knows."""
    key = key_of_test()
    async with runtime(waiter(), model=MODEL) as client:
        await begin_keeper(client, key)
        first = (await keeper(client, key).describe()).run_id
        turn = await client.start("waiter", task([{"key": key, "event": "other"}], [{"key": key}]))
        await until(turn, WaitBegan)
        await client.emit("built", key=key, body="kept", id="e-0")
        for number in range(1, 70):
            await client.emit("built", key=key, body=number, id=f"e-{number}")
        second = (await keeper(client, key).describe()).run_id
        handle = client.temporal.get_workflow_handle(keeper(client, key).id, run_id=first)
        await replayed((await handle.fetch_history()).to_json_dict())
        await client.emit("built", key=key, body="again", id="e-0")
        await client.emit("other", key=key)
        report = await turn.result()
        await replayed((await keeper(client, key).fetch_history()).to_json_dict())

    assert first != second
    assert report.steps[1].results[0].content.endswith('It holds:\n"kept"')


@pytest.mark.slow
@pytest.mark.accepts("W45")
async def test_waiting_turn_is_told_by_a_keeper_in_a_new_run(runtime: Runtime) -> None:
    """A turn that waits for what comes a hundred events later is not forgotten."""
    key = key_of_test()
    async with runtime(waiter(), model=MODEL) as client:
        await begin_keeper(client, key)
        first = (await keeper(client, key).describe()).run_id
        others = [await waiting_turn(client, key) for _ in range(2)]
        await client.emit("built", key=key, body=0)
        for turn in others:
            await turn.result()
        answers = task(*([{"key": key}] for _ in range(90)))
        turn = await client.start("waiter", answers)
        for number in range(1, 90):
            await client.emit("built", key=key, body=number)
        report = await turn.result()
        second = (await keeper(client, key).describe()).run_id

    assert first != second
    bodies = [json.loads(line) for line in report.output.splitlines()[1::2]]
    assert bodies == list(range(90))


@pytest.mark.accepts("W46")
async def test_turn_that_is_reset_into_its_wait_gets_the_event_again(runtime: Runtime) -> None:
    """Temporal applies it again after a reset; after one to a point before the wait, the keeper
    gives it.
    """
    key = key_of_test()
    async with runtime(waiter(), model=MODEL) as client:
        turn = await waiting_turn(client, key)
        await client.emit("built", key=key, body=1)
        await turn.result()
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
        timer = next(
            event.event_id
            for event in history.events
            if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED
        )
        ends = [end for end in task_ends(history) if end < timer]
        outputs = []
        for at in (max(ends), min(ends)):
            again = await reset(client, turn, at)
            outputs.append((await again.result()).output)

    assert [output[-1] for output in outputs] == ["1", "1"]


@pytest.mark.accepts("W46")
async def test_forks_and_resumed_turns_wait_for_themselves(runtime: Runtime) -> None:
    """A fork and a resumed turn begin with what the first turn had got, and are given it anew."""
    key = key_of_test()
    async with runtime(waiter(), model=MODEL) as client:
        turn = await waiting_turn(client, key, key)
        await client.emit("built", key=key, body=1)
        await begun(turn, 2)
        fork = await turn.fork(0)
        await until(fork, WaitBegan)
        await turn.cancel()
        await ended(turn)
        resumed = await turn.resume()
        await client.emit("built", key=key, body=2)
        reports = [await each.result() for each in (fork, resumed)]

    forked, went_on = [
        [result.content[-1] for step in report.steps for result in step.results]
        for report in reports
    ]
    assert forked == ["1", "2"]
    assert went_on[-1] == "1"


def _delegates(request: ModelRequest) -> Reply:
    """Delegate the task, and answer with what comes back; the delegate waits."""
    last = request.messages[-1]
    if all(each.name != "delegate_to_agent" for each in request.tools):
        return waits_as_told(request)
    if isinstance(last, ToolMessage):
        return says(last.results[0].content)
    assert isinstance(last, UserMessage)
    told = last.text.partition("\n")[0]
    return calls(call("delegate_to_agent", agent="waiter", task=told))


@pytest.mark.accepts("W47")
async def test_delegates_sessions_and_batches_wait_for_events_by_key(runtime: Runtime) -> None:
    """One event wakes them all: a delegate, a turn of a session and a turn of a batch."""
    key = key_of_test()
    told = task([{"key": key}])
    boss = Agent(name="boss", model="scripted:boss", delegates=[Delegate("waiter")])
    async with runtime([boss, waiter()], model=FunctionModel(_delegates)) as client:
        turn = await client.start("boss", told)
        session = client.session(new_id("waits"), "waiter")
        sent = await session.say(told)
        batch = await client.start_batch(new_id("waits"), "waiter", [told])
        await until(await sent.turn(), WaitBegan)
        await until_waiting(turn)
        await until_waiting(client.turn(f"{batch.id}/1"))
        await client.emit("built", key=key, body=7)
        delegated = await turn.result()
        answered = await sent.result()
        status = await batch.wait()

    assert delegated.output.endswith("It holds:\n7")
    assert answered.output.endswith("It holds:\n7")
    assert status.done == 1


@pytest.mark.accepts("W44")
async def test_turn_without_a_place_is_told_at_once(runtime: Runtime) -> None:
    """Its call is an error result; what is no event by key is ignored."""
    key = key_of_test()
    now = datetime.now(UTC) + timedelta(minutes=1)
    refusal = EmitByKey(id="refused", name="built", key=key, at=now, refusal="2000 turns wait")
    async with runtime(waiter(), model=MODEL) as client:
        turn = await waiting_turn(client, key)
        handle = client.temporal.get_workflow_handle(turn.id)
        for wrong in ([], [1], [{"name": "built"}], [refusal.model_dump(mode="json")] * 2):
            await handle.signal(EMIT, args=wrong)
        huge = refusal.model_copy(update={"refusal": "", "body": "x" * 100_000})
        await handle.signal(EMIT, pack(huge))
        await handle.signal(EMIT, pack(refusal))
        report = await turn.result()
        facts = [event.fact async for event in turn.events()]

    assert report.output == "wait_for: nothing was waited for: 2000 turns wait."
    assert len([fact for fact in facts if isinstance(fact, Emitted)]) == 1


@pytest.mark.accepts("W40")
async def test_wait_by_key_that_ends_by_its_time_leaves_its_place(runtime: Runtime) -> None:
    """The keeper forgets the turn at that time, and ends, as nothing else is left."""
    key = key_of_test()
    async with runtime(waiter(), model=MODEL) as client:
        report = await client.run("waiter", task([{"key": key, "timeout": 0.3}]))
        await asyncio.wait_for(keeper(client, key).result(), SOON_S)

    assert report.output == f"The event 'built' of '{key}' did not come within 0 s."
