"""Turns of sessions, which read the messages before them in the history of the session."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from perdure import Agent, AgentReport, Middleware, ModelProfile, Price, errors
from perdure.activities.provider import ModelRequest
from perdure.clients import Session, Turn
from perdure.session.facts import TurnRecorded
from perdure.temporal.names import CARRY
from perdure.testing import ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.values.messages import Message, Thinking
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime
from ...support.long_turns import bulky, delete, looks, runs_of
from ...support.spending import SOON_S, look, queue, until_idle
from ...support.windows import fetch

WINDOW = 5_600
FIRST = [*[calls(call("fetch", number=number)) for number in range(8)], says("all fetched")]
"""The first turn of a session, after which the window of a model is half full."""


def reader(**fields: Any) -> Agent:
    given = {"name": "reader", "model": "scripted:m", "tools": [look, fetch]}
    return Agent(**{**given, "max_iterations": "unlimited", **fields})


def app(*agents: Agent, window: int | None = None) -> AgentWorker:
    """A worker; `window` is that of the model, in tokens."""
    return AgentWorker(
        agents or (reader(),),
        prices={"scripted:*": Price.free()},
        profiles={"scripted:m": ModelProfile(window=window)},
    )


def thoughtful(text: str) -> Reply:
    """An answer after a thought, which an agent that takes over is not sent."""
    reply = says(text)
    assert reply.answer is not None
    message = reply.answer.message
    parts = (Thinking(text="I think.", by="scripted:m"), *message.parts)
    answer = reply.answer.model_copy(
        update={"message": message.model_copy(update={"parts": parts})}
    )
    return Reply(answer=answer)


def over() -> Reply:
    return calls(call("hand_over", agent="other", message="yours"))


async def carries(client: RecordingClient, turn: Turn) -> int:
    """The number of activities of a turn that carried messages over."""
    return sum(
        event.activity_task_scheduled_event_attributes.activity_type.name == CARRY
        for event in (await client.history(turn)).events
    )


async def say(session: Session, text: str) -> tuple[Turn, AgentReport]:
    """Say something, and wait for the answer, and until the session has recorded it."""
    sent = await session.say(text)
    report = await sent.result()
    turn = await sent.turn()
    async with asyncio.timeout(SOON_S):
        async for event in session.events():
            match event.fact:
                case TurnRecorded(number, part) if turn.id == f"{session.id}/{number}":
                    if part is None or part.end is not None:
                        break
    return turn, report


def session_of(client: RecordingClient) -> Session:
    return client.session(f"talk-{secrets.token_hex(4)}", "reader")


def told(report: AgentReport, requests: Sequence[ModelRequest]) -> list[Any]:
    """What a turn has asked its models, and what it reports."""
    sent = [(request.model, request.messages, request.options) for request in requests]
    steps = [step.model_copy(update={"duration_ms": None}) for step in report.steps]
    return [sent, report.messages, report.output, steps, report.usage, report.spent.model_calls]


SHAPES = {
    "plain": (app, [calls(call("fetch", number=1)), says("done")], 0),
    "too long for the model": (
        lambda: app(window=WINDOW),
        [*[calls(call("fetch", number=number)) for number in range(12)], says("done")],
        1,
    ),
    "handed over": (
        lambda: app(reader(handoffs=["other"]), reader(name="other")),
        [*looks(1), over(), says("done")],
        1,
    ),
}


@pytest.mark.accepts("E125")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.slow
async def test_turn_of_a_session_decides_as_one_that_has_all_messages(
    runtime: Runtime, shape: str
) -> None:
    """It asks the same of its models and reports the same. Only a decision that needs the messages
    carries them over.
    """
    given, second, carried = SHAPES[shape]
    await compared(runtime, given, second, carried)


@pytest.mark.slow
@pytest.mark.accepts("E125")
async def test_later_run_of_a_turn_of_a_session_has_all_messages(runtime: Runtime) -> None:
    """The first run carries them over, because it is the last that can refer to the session."""
    turn, client = await compared(runtime, app, [*bulky(7), *looks(1), says("done")], 1)
    assert len(await runs_of(client, turn)) > 1


async def compared(
    runtime: Runtime, given: Callable[[], AgentWorker], second: list[Reply], carried: int
) -> tuple[Turn, RecordingClient]:
    """Compare the second turn of a session with a turn that is given the messages before it."""
    model = ScriptedModel(*FIRST[:-1], thoughtful("all fetched"), *second, *second)
    async with runtime(replace(given(), providers={"scripted": model})) as client:
        session = session_of(client)
        await say(session, "Fetch.")
        before = await session.messages()
        place = len(model.requests)
        turn, report = await say(session, "Go on.")
        asked = model.requests[place : place + len(second)]
        alone = await client.run("reader", "Go on.", history=before)
        counted = await carries(client, turn)

    assert told(report, asked) == told(alone, model.requests[place + len(second) :])
    assert counted == carried
    return turn, client


class Reading(Middleware):
    """Keeps the messages of the reports that it sees."""

    def __init__(self) -> None:
        self.seen: list[tuple[Message, ...]] = []

    async def after(self, report: AgentReport[Any]) -> None:
        self.seen.append(report.messages)


@pytest.mark.accepts("E126")
async def test_another_worker_reads_the_messages_of_the_session(perdure_server: str) -> None:
    """The history of the turn holds none of them, whoever asks for them has all: models,
    middleware, reports, forks, and the next turn.
    """
    model = ScriptedModel(
        says("one"), calls(call("look")), says("two"), says("three"), says("four")
    )
    reading = Reading()
    worker = app(reader(middleware=[reading]))
    async with queue(perdure_server) as work:
        session = session_of(work.client)
        async with work.worker(worker, model):
            await say(session, "A certain first message.")
            await until_idle(work.client.temporal.get_workflow_handle(session.id))
        async with work.worker(worker, model):
            turn, report = await say(session, "And then?")
            forked = await turn.fork(at_step=1, say="Instead?")
            await forked.result()
            await say(session, "Bye.")
        history = await work.client.history(turn)

    requests = [request.messages for request in model.requests]
    assert [message.text for message in requests[1] if message.role == "user"] == [
        "A certain first message.",
        "And then?",
    ]
    assert report.messages == (*requests[2], report.messages[-1]) == reading.seen[1]
    assert requests[3] == (*requests[2], requests[3][-1])
    assert requests[4] == (*report.messages, requests[4][-1])
    assert b"A certain first message." not in b"".join(
        event.SerializeToString() for event in history.events
    )


@pytest.mark.slow
@pytest.mark.accepts("E127")
async def test_report_of_a_turn_whose_session_is_gone_has_its_own_messages(
    runtime: Runtime,
) -> None:
    """A fork of it is refused, because it would begin without the messages before."""
    model = ScriptedModel(says("one"), says("two"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        await say(session, "First.")
        turn, whole = await say(session, "Second.")
        await session.close()
        described = await client.temporal.get_workflow_handle(session.id).describe()
        await delete(client, session.id, described.run_id)
        report = await client.turn(turn.id).result()
        with pytest.raises(errors.TurnNotFoundError, match="history"):
            await turn.fork(say="Instead?")

    assert report.messages == whole.messages[2:]
    assert report.output == "two"
