"""Events by key: for all turns that wait for their name and key, now or within the hour."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError

from perdure import errors, limits
from perdure.clients import AgentClient
from perdure.events import Emitted, WaitBegan, WaitEnded
from perdure.temporal.names import KEYED_EVENTS
from perdure.testing import skip_time

from ...conftest import Runtime
from ...support.gateway.served import served
from ...support.keyed_events import (
    MODEL,
    keeper,
    key_of_test,
    task,
    timed,
    waiter,
    waiting_turn,
)
from ...support.spending import SOON_S, ended, until

OWN_EVENTS = {
    EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED,
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_TIMER_FIRED,
    EventType.EVENT_TYPE_TIMER_CANCELED,
    EventType.EVENT_TYPE_MARKER_RECORDED,
}


async def until_told(client: AgentClient, key: str, turns: int) -> None:
    """Wait until so many turns were told of events of a key."""
    signaled = EventType.EVENT_TYPE_EXTERNAL_WORKFLOW_EXECUTION_SIGNALED
    async with asyncio.timeout(SOON_S):
        while True:
            history = await keeper(client, key).fetch_history()
            if sum(event.event_type == signaled for event in history.events) >= turns:
                return
            await asyncio.sleep(0.1)


@pytest.mark.accepts("W37")
async def test_event_by_key_wakes_all_turns_that_wait_for_it(runtime: Runtime) -> None:
    """Those that wait now, and one that begins to wait later; not for another key or name."""
    key = key_of_test()
    async with runtime(waiter(), model=MODEL) as client:
        turns = [await waiting_turn(client, key) for _ in range(3)]
        stranger = await waiting_turn(client, f"{key}-2")
        event_id = await client.emit("built", key=key, body={"ok": True}, by="ci@example.com")
        await client.emit("tested", key=f"{key}-2")
        reports = [await turn.result() for turn in turns]
        late = await client.run("waiter", task([{"key": key}]))
        [others] = (await stranger.status()).waits
        facts = [event async for event in turns[0].events()]
        await stranger.cancel()
        await ended(stranger)

    text = rf"The event 'built' of '{key}' came after \d+ s\. It holds:\n{{\"ok\":true}}"
    assert all(re.fullmatch(text, report.output) for report in reports)
    assert late.output.startswith(f"The event 'built' of '{key}' was there already, since 20")
    assert others.reason == f"built of {key}-2: the build"
    [emitted] = [event.fact for event in facts if isinstance(event.fact, Emitted)]
    assert (emitted.event.id, emitted.event.key, emitted.by) == (event_id, key, "ci@example.com")
    [end] = [event for event in facts if isinstance(event.fact, WaitEnded)]
    shown: Any = end.public()
    assert shown["woken"][0]["event_id"] == event_id


@pytest.mark.accepts("W39")
async def test_wait_for_an_event_by_key_has_seven_events(runtime: Runtime) -> None:
    """One more than other waits: the marker of the registration. The event is a signal."""
    key = key_of_test()
    async with runtime(waiter(), model=MODEL) as client:
        turn = await waiting_turn(client, key)
        await client.emit("built", key=key)
        await turn.result()
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
        kept = await keeper(client, key).fetch_history()
    kinds = [event.event_type for event in history.events]
    timer = kinds.index(EventType.EVENT_TYPE_TIMER_STARTED)
    begun = max(
        at for at in range(timer) if kinds[at] == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    )
    asked = kinds.index(EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED, timer)
    own = [kind for kind in kinds[begun:asked] if kind in OWN_EVENTS]
    signals = kinds[begun:asked].count(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)

    assert (len(own), signals) == (7, 1)
    assert Counter(own)[EventType.EVENT_TYPE_MARKER_RECORDED] == 1
    assert len(kept.events) < 25


@pytest.mark.accepts("W38")
async def test_turn_gets_each_event_once_in_the_order_in_which_they_came(runtime: Runtime) -> None:
    """One id is one event; a wait after the last event lasts until its time is over."""
    key = key_of_test()
    answers = task([{"key": key}], [{"key": key}], [{"key": key, "timeout": 0.3}])
    async with runtime(waiter(), model=MODEL) as client:
        for number in (1, 1, 2):
            await client.emit("built", key=key, body=number, id=f"e-{number}")
        reports = [await client.run("waiter", answers) for _ in range(2)]

    for report in reports:
        first, second, third = [step.results[0].content for step in report.steps[:3]]
        assert "was there already" in first
        assert [first[-1], second[-1]] == ["1", "2"]
        assert third == f"The event 'built' of '{key}' did not come within 0 s."


@pytest.mark.accepts("W38")
async def test_calls_of_one_answer_get_the_same_event(runtime: Runtime) -> None:
    """Those that wait for its key: it is for all. A call for another key waits on."""
    key = key_of_test()
    answer = [{"key": key}, {"key": key}, {"key": f"{key}-2"}]
    async with runtime(waiter(parallel_tools=True), model=MODEL) as client:
        turn = await client.start("waiter", task(answer))
        await until(turn, WaitBegan)
        await client.emit("built", key=key, body=1)
        await until(turn, WaitEnded)
        [shown] = (await turn.status()).waits
        await client.emit("built", key=f"{key}-2", body=2)
        report = await turn.result()

    assert [result.content[-1] for result in report.steps[0].results] == ["1", "1", "2"]
    assert shown.reason == f"built of {key}-2: the build"


@pytest.mark.accepts("W38")
async def test_events_that_race_with_the_beginning_of_waits_are_not_lost(runtime: Runtime) -> None:
    """Each turn gets the event, whichever came first; nobody polls for it."""
    keys = [key_of_test() for _ in range(12)]
    async with runtime(waiter(), model=MODEL) as client:

        async def emit(key: str, delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            await client.emit("built", key=key, body=key)

        turns = [await client.start("waiter", task([{"key": key}])) for key in keys]
        await asyncio.gather(*(emit(key, number / 50) for number, key in enumerate(keys)))
        reports = [await turn.result() for turn in turns]

    assert [json.loads(report.output.rpartition("\n")[2]) for report in reports] == keys


@pytest.mark.accepts("W40")
async def test_event_after_the_end_of_its_wait_does_no_harm(runtime: Runtime) -> None:
    """Of a wait that a message has ended: the next wait of the turn gets the event, and so does
    every other turn. A turn that is over, or was terminated, keeps nobody from it.
    """
    key = key_of_test()
    answers = task([{"key": key}], [{"event": "go", "key": key}], [{"key": key}])
    async with runtime(waiter(), model=MODEL) as client:
        turn = await client.start("waiter", answers)
        await until(turn, WaitBegan)
        over, terminated = [await waiting_turn(client, key) for _ in range(2)]
        await over.cancel()
        await ended(over)
        await client.temporal.get_workflow_handle(terminated.id).terminate()
        await turn.steer("Go on.")
        await client.emit("built", key=key, body=1)
        await until_told(client, key, 1)
        await client.emit("go", key=key)
        report = await turn.result()
        late = await client.run("waiter", task([{"key": key}]))

    first, _, third = [step.results[0].content for step in report.steps[:3]]
    assert "the user has sent a message" in first
    assert third.endswith("It holds:\n1")
    assert late.output.endswith("It holds:\n1")


@pytest.mark.accepts("W40")
async def test_keeper_ends_when_nothing_is_left(runtime: Runtime) -> None:
    """An hour after the last event; the next event begins another."""
    key = key_of_test()
    async with runtime(waiter(), model=MODEL) as client:
        await client.emit("built", key=key, body=1)
        await skip_time(client, timed(client, key), timedelta(minutes=61))
        await asyncio.wait_for(keeper(client, key).result(), SOON_S)
        turn = await waiting_turn(client, key)
        await client.emit("built", key=key, body=2)
        report = await turn.result()

    assert report.output.endswith("It holds:\n2")


@pytest.mark.accepts("W41")
async def test_tenants_have_events_of_their_own(runtime: Runtime) -> None:
    """The same name and key of two tenants, and of none, are three; no key names another tenant."""
    key, run = key_of_test(), secrets.token_hex(4)
    async with runtime(waiter(), model=MODEL) as client:
        told = task([{"key": key}])
        turns = [
            await client.start("waiter", told, id=f"{tenant}{run}")
            for tenant in ("@acme/", "@globex/", "")
        ]
        for turn in turns:
            await until(turn, WaitBegan)
        thief = await client.run("waiter", task([{"key": f"@acme/{key}"}]))
        async with served(client) as http:
            body = {"name": "built", "key": key, "body": "acme"}
            answer = await http.post("/v1/events", json=body, headers={"Idempotency-Key": "e-1"})
            foreign = {"name": "built", "key": f"@globex/{key}"}
            refused = await http.post("/v1/events", json=foreign)
        first = await turns[0].result()
        waiting = [(await turn.status()).state for turn in turns[1:]]
        await client.emit("built", key=f"@globex/{key}", body="globex")
        await client.emit("built", key=key, body="none")
        others = [await turn.result() for turn in turns[1:]]

    assert (answer.status_code, answer.json()) == (202, {"id": "e-1"})
    assert refused.status_code == 422
    assert [report.output.rpartition("\n")[2] for report in (first, *others)] == [
        '"acme"',
        '"globex"',
        '"none"',
    ]
    assert waiting == ["waiting", "waiting"]
    assert "nothing was waited for: key is no line" in thief.output


@pytest.mark.accepts("W42")
async def test_event_by_key_that_is_not_valid_is_refused(runtime: Runtime) -> None:
    """Before anything is recorded: no workflow begins."""
    key = key_of_test()
    async with runtime(waiter(), model=MODEL) as client:
        with pytest.raises(TypeError, match="key"):
            await client.emit("built")  # type: ignore[call-arg]  # an event needs a key
        for wrong in ("", " ", "a\nb", "x" * 201, "@acme/", "@acme", "@a/@b/c", 42, None):
            with pytest.raises(errors.InvalidRequestError, match="key must be one line"):
                await client.emit("built", key=wrong)  # type: ignore[arg-type]  # not all are texts
        for name in ("", "a\nb", "x" * 201):
            with pytest.raises(errors.InvalidRequestError, match="name"):
                await client.emit(name, key=key)
        with pytest.raises(errors.InvalidRequestError, match="id"):
            await client.emit("built", key=key, id="a\nb")
        with pytest.raises(errors.TooLargeError, match="more than 49152"):
            await client.emit("built", key=key, body="x" * 10_000_000)
        with pytest.raises(errors.InvalidRequestError, match="no JSON value"):
            await client.emit("built", key=key, body=object())  # type: ignore[arg-type]  # not JSON
        with pytest.raises(RPCError, match="not found"):
            await keeper(client, key).describe()


@pytest.mark.accepts("W43")
async def test_flood_of_events_that_nobody_waits_for_is_refused(runtime: Runtime) -> None:
    """A hundred are kept, the rest is refused typed, and nothing of it is in history."""
    key = key_of_test()
    async with runtime(waiter(), model=MODEL) as client:
        answers = await asyncio.gather(
            *(client.emit("built", key=key, body=number) for number in range(600)),
            return_exceptions=True,
        )
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        for _ in range(limits.KEPT_EVENTS - len(answers) + len(refused)):
            await client.emit("built", key=key)
        with pytest.raises(errors.TooManyRequestsError, match="100 events 'built'"):
            await client.emit("built", key=key)
        history = await keeper(client, key).fetch_history()
        report = await client.run("waiter", task([{"key": key}]))
    accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED

    assert {type(answer) for answer in refused} == {errors.TooManyRequestsError}
    assert sum(event.event_type == accepted for event in history.events) == limits.KEPT_EVENTS
    assert "was there already" in report.output


@pytest.mark.accepts("W42")
async def test_keeper_with_another_input_ends_typed(runtime: Runtime) -> None:
    """It ends with an error, and not with a workflow task that fails for ever."""
    inputs: tuple[list[Any], ...] = ([], [1], [{"name": "built", "key": "x"}], [1, 2])
    async with runtime(waiter(), model=MODEL) as client:
        for number, given in enumerate(inputs):
            handle = await client.temporal.start_workflow(
                KEYED_EVENTS,
                args=given,
                id=f"{key_of_test()}-{number}",
                task_queue=client.task_queue,
            )
            with pytest.raises(Exception, match="Workflow execution failed"):
                await asyncio.wait_for(handle.result(), SOON_S)
