"""Events that are sent to a turn: the result of a call that waits for them, now or later."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from perdure import Agent, Handoff, errors, limits
from perdure.clients import Turn
from perdure.events import Emitted, WaitBegan, WaitEnded
from perdure.testing import ScriptedModel, call, calls, says, skip_time
from perdure.toolboxes import waiting

from ...conftest import Runtime
from ...support.spending import ended, look, until


def waiter(**fields: Any) -> Agent:
    """An agent that waits for events."""
    given = {"name": "waiter", "model": "scripted:waiter", "tools": [look]}
    return Agent(**{**given, "toolboxes": [waiting()], "max_iterations": "unlimited", **fields})


def wait_for(event: str = "built", note: str = "the build", **more: Any) -> Any:
    """A call that waits for an event."""
    return call("wait_for", event=event, note=note, **more)


async def contents(turn: Turn[Any]) -> list[str]:
    """The results of all calls of a turn, with 0 s for the time that each event took."""
    report = await turn.result()
    results = [result.content for step in report.steps for result in step.results]
    return [re.sub(r" came after \d+ s", " came after 0 s", content) for content in results]


@pytest.mark.accepts("W20")
async def test_event_is_the_result_of_the_call_that_waits_for_it(runtime: Runtime) -> None:
    """With what it holds, and the time that it took; the author is recorded."""
    model = ScriptedModel(calls(wait_for()), says("done"))
    async with runtime(waiter(), model=model) as client:
        turn = await client.start("waiter", "go")
        began = (await until(turn, WaitBegan)).fact
        await turn.emit("tested", 1)
        event_id = await turn.emit("built", {"ok": True, "log": ["a", "b"]}, by="ci@example.com")
        found = await contents(turn)
        events = [event async for event in turn.events()]
    emitted = [event.fact for event in events if isinstance(event.fact, Emitted)]
    [end] = [event for event in events if isinstance(event.fact, WaitEnded)]

    assert isinstance(began, WaitBegan)
    assert (began.kind, began.reason) == ("event", "built: the build")
    assert found == ['The event \'built\' came after 0 s. It holds:\n{"ok":true,"log":["a","b"]}']
    assert [(fact.event.name, fact.by) for fact in emitted] == [
        ("tested", None),
        ("built", "ci@example.com"),
    ]
    shown: Any = end.public()
    assert shown["woken"][0]["event_id"] == event_id
    assert shown["call_id"] == end.calls[0].id


@pytest.mark.accepts("W22")
async def test_kept_event_is_given_to_one_of_two_calls(runtime: Runtime) -> None:
    """Of one answer, at the same time: the other one waits for another event."""
    slow = calls(call("wait", seconds=1, note="the build"))
    model = ScriptedModel(slow, calls(wait_for(), wait_for(timeout=1)), says("done"))
    async with runtime(waiter(parallel_tools=True), model=model) as client:
        turn = await client.start("waiter", "go")
        await until(turn, WaitBegan)
        await turn.emit("built", 1)
        _, first, second = await contents(turn)

    assert first == "The event 'built' was there already. It holds:\n1"
    assert second == "The event 'built' did not come within 1 s."


@pytest.mark.accepts("W21")
async def test_event_that_nobody_waits_for_is_kept_for_the_first_that_does(
    runtime: Runtime,
) -> None:
    """Each event is given once, in the order in which they came; one id is one event."""
    model = ScriptedModel(
        calls(wait_for("start")),
        calls(wait_for("built")),
        calls(wait_for("built")),
        calls(wait_for("built", timeout=0.1)),
        says("done"),
    )
    async with runtime(waiter(), model=model) as client:
        turn = await client.start("waiter", "go")
        await until(turn, WaitBegan)
        await turn.emit("built", "first", id="e-1")
        await turn.emit("built", "first", id="e-1")
        await turn.emit("built", id="e-2")
        await turn.emit("start", id="e-3")
        found = await contents(turn)

    assert found == [
        "The event 'start' came after 0 s. It holds nothing.",
        "The event 'built' was there already. It holds:\n\"first\"",
        "The event 'built' was there already. It holds nothing.",
        "The event 'built' did not come within 0 s.",
    ]


@pytest.mark.accepts("W22")
async def test_two_calls_for_the_same_event_take_one_each(runtime: Runtime) -> None:
    """Of an answer whose calls run at the same time: the first call gets the first event."""
    model = ScriptedModel(calls(wait_for(), wait_for(), call("look")), says("done"))
    async with runtime(waiter(parallel_tools=True), model=model) as client:
        turn = await client.start("waiter", "go")
        await until(turn, WaitBegan)
        await asyncio.gather(turn.emit("built", 1), turn.emit("built", 2))
        found = await contents(turn)

    assert sorted(text.partition("holds:\n")[2] for text in found) == ["", "1", "2"]


@pytest.mark.accepts("W23")
async def test_event_that_does_not_come_in_time(runtime: Runtime) -> None:
    """Is no error: the model reads that it did not come."""
    model = ScriptedModel(calls(wait_for(timeout=7200)), says("done"))
    async with runtime(waiter(), model=model) as client:
        turn = await client.start("waiter", "go")
        await until(turn, WaitBegan)
        await skip_time(client, turn, timedelta(hours=3))
        report = await turn.result()

    [result] = report.steps[0].results
    assert result.content == "The event 'built' did not come within 2 h."
    assert not result.is_error


@pytest.mark.accepts("W24")
async def test_event_that_is_not_valid_or_does_not_fit_is_refused(runtime: Runtime) -> None:
    """Before it is recorded: nothing of it is in history, and the turn waits on."""
    model = ScriptedModel(calls(wait_for()), says("done"), says("done"))
    plain = Agent(name="plain", model="scripted:plain", tools=[look])
    async with runtime([waiter(), plain], model=model) as client:
        turn = await client.start("waiter", "go")
        await until(turn, WaitBegan)
        for name in ("", " ", "a\nb", "x" * 201):
            with pytest.raises(errors.InvalidRequestError, match="name"):
                await turn.emit(name)
        with pytest.raises(errors.TooLargeError, match="49152"):
            await turn.emit("other", "x" * limits.EVENT_BYTES)
        with pytest.raises(errors.InvalidRequestError, match="no JSON value"):
            await turn.emit("other", object())  # type: ignore[arg-type]  # not JSON
        for number in range(5):
            await turn.emit("other", "x" * 47_000, id=f"e-{number}")
        with pytest.raises(errors.TooLargeError, match="more than 262144"):
            await turn.emit("other", "x" * 47_000)
        await asyncio.gather(*(turn.emit("small") for _ in range(limits.KEPT_EVENTS - 5)))
        with pytest.raises(errors.TooLargeError, match="100 events to the turn wait"):
            await turn.emit("small")
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
        await turn.cancel()
        await ended(turn)
        with pytest.raises(errors.TurnOverError):
            await turn.emit("built")
        other = await client.run("plain", "go")
        with pytest.raises(errors.TurnOverError):
            await client.turn(other.turn_id).emit("built")
    accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED

    assert sum(event.event_type == accepted for event in history.events) == limits.KEPT_EVENTS


@pytest.mark.accepts("W25")
async def test_agent_that_cannot_wait_refuses_events(runtime: Runtime) -> None:
    """The sender learns what is missing, instead of an event that nobody ever reads."""
    model = ScriptedModel(calls(call("wait", seconds=3600, note="x")), says("done"))
    only_time = waiting().filtered(["wait"])
    async with runtime(waiter(toolboxes=[only_time]), model=model) as client:
        turn = await client.start("waiter", "go")
        await until(turn, WaitBegan)
        with pytest.raises(errors.InvalidRequestError, match="no tool that waits for an event"):
            await turn.emit("built")
        await turn.cancel()
        await ended(turn)


@pytest.mark.accepts("W26")
async def test_events_are_kept_over_a_handoff(runtime: Runtime) -> None:
    """The agent that the turn is handed over to may wait for what came before."""
    first = waiter(handoffs=[Handoff("second")])
    second = waiter(name="second", model="scripted:second")
    model = ScriptedModel(
        calls(wait_for("start")),
        calls(call("hand_over", agent="second", message="go on")),
        calls(wait_for("built")),
        says("done"),
    )
    async with runtime([first, second], model=model) as client:
        turn = await client.start("waiter", "go")
        await until(turn, WaitBegan)
        await turn.emit("built", 7)
        await turn.emit("start")
        found = await contents(turn)

    assert found[-1] == "The event 'built' was there already. It holds:\n7"
