"""The events of a turn: live, each once, from any cursor, for any number of watchers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from perdure import Agent, errors, tool
from perdure.clients import AgentClient, Event, Turn
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.facts import (
    AgentResolved,
    ModelAnswered,
    Scheduled,
    TaskBegan,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)

from ...conftest import RecordingClient, Runtime, eventually
from ...support.counting import FORWARD, CountingService, counting
from ...support.event_kinds import kind


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADDER = Agent(name="adder", model="scripted:adder", tools=[add])


def script() -> ScriptedModel:
    return ScriptedModel(
        calls(call("add", a=1, b=1), call("add", a=2, b=2)),
        calls(call("add", a=3, b=3)),
        says("done"),
    )


KINDS = [
    *["TurnStarted", "AgentResolved agent"],
    *[
        "Scheduled step-1",
        "ModelAnswered step-1",
        "Scheduled step-1.call-1",
        "ToolReturned step-1.call-1",
    ],
    *["Scheduled step-1.call-2", "ToolReturned step-1.call-2"],
    *[
        "Scheduled step-2",
        "ModelAnswered step-2",
        "Scheduled step-2.call-1",
        "ToolReturned step-2.call-1",
    ],
    *["Scheduled step-3", "ModelAnswered step-3", "TurnEnded"],
]


class Gates:
    """A tool that waits until the gate with its number opens."""

    def __init__(self) -> None:
        self.opened = [threading.Event() for _ in range(4)]

        @tool
        async def wait(number: int) -> str:
            await eventually(self.opened[number].is_set, "the gate opens")
            return f"through gate {number}"

        self.agent = replace(ADDER, tools=[wait])

    def open(self) -> None:
        for gate in self.opened:
            gate.set()


@pytest.fixture
def gates() -> Iterator[Gates]:
    """Gates that open at the end of the test in any case."""
    made = Gates()
    yield made
    made.open()


def through(*numbers: int) -> ScriptedModel:
    """A model that calls the tool with these gates, one per step, and then answers."""
    return ScriptedModel(*[calls(call("wait", number=number)) for number in numbers], says("done"))


async def everything(turn: Turn, after: str | None = None) -> list[Event]:
    return [event async for event in turn.events(after=after)]


async def until(events: AsyncIterator[Event], what: str) -> list[Event]:
    """Events up to the first one of this kind."""
    taken = []
    async for event in events:
        taken.append(event)
        if kind(event.fact) == what:
            return taken
    pytest.fail(f"the events ended without {what}")


@contextlib.asynccontextmanager
async def counted(client: RecordingClient) -> AsyncIterator[tuple[AgentClient, CountingService]]:
    """Another client for the same turns, and the count of its requests."""
    temporal, service = counting(client.temporal)
    yield AgentClient.from_temporal(temporal, task_queue=client.task_queue), service


@pytest.mark.accepts("E1")
async def test_events_are_the_facts_of_the_history_in_its_order(runtime: Runtime) -> None:
    """Each event once, with its recorded time and a unique cursor."""
    began = datetime.now(UTC)

    async with runtime(ADDER, model=script()) as client:
        turn = await client.start(ADDER, "go")
        events = await everything(turn)
        history = await client.history(turn)

    reader = HistoryReader(client.temporal.data_converter)
    facts = [fact for event in history.events for fact in await reader.facts(event)]
    assert [event.fact for event in events] == [
        fact for fact in facts if not isinstance(fact, TaskBegan)
    ]
    assert [kind(event.fact) for event in events] == KINDS
    assert len({event.cursor for event in events}) == len(events)
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert (events[0].at - began).total_seconds() > -5


@pytest.mark.slow
@pytest.mark.accepts("E1")
async def test_events_come_as_they_happen(runtime: Runtime, gates: Gates) -> None:
    """A step is seen before the next one starts: each gate opens only after the watcher saw the
    call that waits for it.
    """
    async with runtime(gates.agent, model=through(0, 1, 2)) as client:
        turn = await client.start(gates.agent, "go")
        events = turn.events()
        for number in range(3):
            seen = await until(events, f"Scheduled step-{number + 1}.call-1")
            assert kind(seen[-2].fact) == f"ModelAnswered step-{number + 1}"
            gates.opened[number].set()
        rest = [event async for event in events]

    assert kind(rest[-1].fact) == "TurnEnded"


@pytest.mark.slow
@pytest.mark.accepts("E1")
async def test_every_cursor_resumes_without_loss_or_repeat(
    runtime: Runtime, perdure_server: str
) -> None:
    """For each event of a turn, the events after its cursor are the rest, from this client and from
    one that has only the id.
    """
    async with runtime(ADDER, model=script()) as client:
        turn = await client.start(ADDER, "go")
        events = await everything(turn)
        fresh = await AgentClient.connect(perdure_server)
        for index, event in enumerate(events):
            assert await everything(turn, after=event.cursor) == events[index + 1 :]
            assert await everything(fresh.turn(turn.id), after=event.cursor) == events[index + 1 :]

    assert len(events) == len(KINDS)


@pytest.mark.slow
@pytest.mark.accepts("E1")
async def test_every_cursor_of_a_running_turn_resumes_without_loss_or_repeat(
    runtime: Runtime, gates: Gates, perdure_server: str
) -> None:
    """Watchers that join in the middle, each after another event, get the rest: the past at once
    and the future live.
    """
    async with runtime(gates.agent, model=through(0, 1)) as client:
        turn = await client.start(gates.agent, "go")
        gates.opened[0].set()
        first = turn.events()
        seen = await until(first, "Scheduled step-2.call-1")
        fresh = [(await AgentClient.connect(perdure_server)).turn(turn.id) for _ in range(2)]
        joined = [
            asyncio.create_task(everything(one, after=event.cursor))
            for event in seen
            for one in (turn, *fresh)
        ]
        await asyncio.sleep(0)
        gates.open()
        whole = seen + [event async for event in first]
        rests = await asyncio.gather(*joined)

    assert rests == [whole[index + 1 :] for index in range(len(seen)) for _ in range(3)]


@pytest.mark.slow
@pytest.mark.accepts("E1")
async def test_events_need_no_worker_once_the_turn_is_over(
    runtime: Runtime, perdure_server: str
) -> None:
    """A client that has only the id gets the same events after every worker has stopped."""
    async with runtime(ADDER, model=script()) as client:
        turn = await client.start(ADDER, "go")
        events = await everything(turn)

    later = await AgentClient.connect(perdure_server)

    assert await everything(later.turn(turn.id)) == events


@pytest.mark.slow
@pytest.mark.accepts("E1")
async def test_twenty_watchers_hold_one_long_poll(runtime: Runtime, gates: Gates) -> None:
    """Never two concurrent requests for history, no more of them than there are pages, and all
    watchers get the same.
    """
    async with (
        runtime(gates.agent, model=through(0, 1, 2)) as client,
        counted(client) as (watching, service),
    ):
        turn = await watching.start(gates.agent, "go")
        handles = [watching.turn(turn.id) for _ in range(19)]
        tasks = [asyncio.create_task(everything(one)) for one in (turn, *handles)]
        for number in range(3):
            await until(turn.events(), f"Scheduled step-{number + 1}.call-1")
            gates.opened[number].set()
        events, *others = await asyncio.gather(*tasks)
        report = await turn.result()

    assert all(other == events for other in others)
    assert report.output == "done"
    assert service.most_in_flight[FORWARD] == 1
    assert service.calls[FORWARD] <= len(events) + 5
    assert service.in_flight[FORWARD] == 0


@pytest.mark.slow
@pytest.mark.accepts("E1")
async def test_watching_adds_nothing_to_the_history(runtime: Runtime) -> None:
    """A watched turn has as many history events as an unwatched one."""
    lengths = []

    async with runtime(ADDER, model=ScriptedModel(says("done"), says("done"))) as client:
        for watchers in (1, 5):
            turn = await client.start(ADDER, "go")
            await asyncio.gather(*(everything(turn) for _ in range(watchers)))
            lengths.append(len((await client.history(turn)).events))

    assert lengths[0] == lengths[1]


@pytest.mark.slow
@pytest.mark.accepts("E1")
async def test_watcher_that_comes_after_another_one_left_loses_nothing(
    runtime: Runtime, gates: Gates
) -> None:
    """Watch until the tool runs, stop, and then wait for the result: the report is complete."""
    async with runtime(gates.agent, model=through(0)) as client:
        turn = await client.start(gates.agent, "go")
        events = turn.events()
        seen = await until(events, "Scheduled step-1.call-1")
        await events.aclose()
        gates.open()
        rest = await everything(turn, after=seen[-1].cursor)
        report = await turn.result()

    assert [kind(event.fact) for event in rest[:2]] == [
        "ToolReturned step-1.call-1",
        "Scheduled step-2",
    ]
    assert [kind(event.fact) for event in rest[2:]] == ["ModelAnswered step-2", "TurnEnded"]
    assert (len(report.steps), report.tool_calls, report.output) == (2, 1, "done")


@pytest.mark.slow
@pytest.mark.accepts("E1")
async def test_watcher_that_comes_while_the_last_one_leaves_is_served(
    runtime: Runtime, gates: Gates
) -> None:
    """One watcher stops while another one starts."""
    async with runtime(gates.agent, model=through(0)) as client:
        turn = await client.start(gates.agent, "go")
        leaving = turn.events()
        await until(leaving, "Scheduled step-1.call-1")
        closing = asyncio.create_task(leaving.aclose())
        joining = asyncio.create_task(everything(turn))
        await closing
        gates.open()
        events = await asyncio.wait_for(joining, 60)

    assert kind(events[-1].fact) == "TurnEnded"


@pytest.mark.slow
async def test_watcher_that_leaves_ends_its_poll(runtime: Runtime, gates: Gates) -> None:
    """Without watchers there are no requests."""
    async with (
        runtime(gates.agent, model=through(0)) as client,
        counted(client) as (watching, service),
    ):
        turn = await watching.start(gates.agent, "go")
        events = turn.events()
        await until(events, "Scheduled step-1.call-1")
        await events.aclose()

        assert service.in_flight[FORWARD] == 0


@pytest.mark.slow
async def test_one_watcher_leaving_does_not_disturb_another(runtime: Runtime, gates: Gates) -> None:
    """The remaining one gets every event."""
    async with runtime(gates.agent, model=through(0)) as client:
        turn = await client.start(gates.agent, "go")
        staying = asyncio.create_task(everything(turn))
        leaving = turn.events()
        await until(leaving, "Scheduled step-1.call-1")
        await leaving.aclose()
        gates.open()
        events = await staying

    assert [type(event.fact) for event in events] == [
        *[TurnStarted, AgentResolved],
        *[Scheduled, ModelAnswered, Scheduled, ToolReturned],
        *[Scheduled, ModelAnswered, TurnEnded],
    ]


@pytest.mark.table(1)
@pytest.mark.parametrize("cursor", ["no cursor", "ü", "YWJj", "!", "OjU="])
async def test_what_is_no_cursor_is_refused(runtime: Runtime, cursor: str) -> None:
    """With the invalid text."""
    async with runtime(ADDER, model=ScriptedModel(says("done"))) as client:
        turn = await client.start(ADDER, "go")
        await turn.result()

        with pytest.raises(errors.InvalidRequestError, match="cursor"):
            await everything(turn, after=cursor)


@pytest.mark.slow
async def test_cursor_of_another_turn_is_refused(runtime: Runtime) -> None:
    """Otherwise events would be skipped or repeated."""
    async with runtime(ADDER, model=ScriptedModel(says("one"), says("two"))) as client:
        turns = [await client.start(ADDER, "go") for _ in range(2)]
        first, _ = [await everything(turn) for turn in turns]

        with pytest.raises(errors.InvalidRequestError, match=turns[1].id):
            await everything(turns[1], after=first[0].cursor)


async def test_events_of_a_turn_that_is_gone_are_not_found(runtime: Runtime) -> None:
    """Deleted, or after its retention: every watcher gets an error instead of waiting."""
    async with runtime(ADDER, model=ScriptedModel(says("done"))) as client:
        turn = await client.start(ADDER, "go")
        await turn.result()
        gone = AgentClient.from_temporal(client.temporal)._turn(
            turn.id, ("5f1f1c0e-0000-4000-8000-000000000000",)
        )

        with pytest.raises(errors.TurnNotFoundError, match=turn.id):
            await everything(gone)
