"""Schedules that send messages to a session: what it reads, and what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from temporalio.common import WorkflowIDReusePolicy
from temporalio.service import RPCError
from temporalio.worker import Replayer

from perdure import Agent, Budget, ModelRetryPolicy, Outcome, Task, errors
from perdure.clients import AgentClient, Schedule, ScheduledTurn, Session
from perdure.clients.schedules.definition import turn_id_of
from perdure.session.facts import MessageSent
from perdure.session.wire import SessionRequest
from perdure.temporal.data_converter import chosen
from perdure.temporal.names import SCHEDULED_MESSAGE, SESSION
from perdure.temporal.payloads import pack
from perdure.testing import FunctionModel, ModelRequest, Reply, ScriptedModel, fails, says
from perdure.testing import Runtime as PlainRuntime
from perdure.values.messages import Media, Text, UserMessage
from perdure.worker import AgentWorker
from perdure.workflows import WORKFLOWS

from ...conftest import Runtime
from ...support import encrypting
from ...support.conversing import texts
from ...support.scheduled_messages import turn_with
from ...support.scheduling import (
    DAILY,
    REPORTER,
    at,
    entry_when,
    every_second,
    existing,
    new_id,
    status_when,
)
from ...support.spending import SOON_S, Held, app, usage


def slot_text(day: str, task: str = "Look again.") -> str:
    """The message of a day in March."""
    return (
        f"<schedule>\nScheduled for {day} 07:00 Europe/Berlin (UTC+01:00).\n</schedule>\n\n{task}"
    )


async def last_when(
    schedule: Schedule, outcomes: list[Outcome | None]
) -> tuple[ScheduledTurn, ...]:
    """The last turns of a schedule, the newest first, once they have these outcomes."""
    async with asyncio.timeout(SOON_S):
        while True:
            last = (await schedule.status()).last
            if [one.outcome for one in last] == outcomes:
                return last
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.accepts("E105", "E106")
async def test_messages_of_a_schedule_continue_one_conversation(
    perdure_runtime: PlainRuntime, perdure_server: str
) -> None:
    """The first one begins the session; each has its slot, and is one message however often it is
    sent. All of it is encrypted.
    """
    model = ScriptedModel(*[says(f"answer {number}") for number in range(3)])
    async with perdure_runtime(
        REPORTER, model=model, data_converter=encrypting.converter
    ) as client:
        name = new_id("chat")
        wanted: dict[str, Any] = {
            **DAILY,
            "session": f"about-{name}",
            "budget": Budget(usd="5"),
            "labels": {"team": "x"},
            "allowed_tools": [],
        }
        daily = await client.create_schedule(name, REPORTER, "Look again.", **wanted)
        again = await client.create_schedule(name, "reporter", "Look again.", **wanted)
        with pytest.raises(errors.ScheduleConflictError) as other:
            await client.create_schedule(
                name, "reporter", "Look again.", **{**wanted, "session": None}
            )
        slots = await daily.backfill(at(2), at(4))
        ids = [turn_id_of(name, slot) for slot in slots]
        session = client.session(f"about-{name}")
        for message_id in ids:
            await (await turn_with(session, message_id)).result()
        await send_again(client, ids[0])
        report = await (await session.say("And now?", id="mine")).result()
        last = await last_when(daily, [Outcome.COMPLETED] * 2)
        status, entry = await daily.status(), await entry_when(client, name, paused=False)
        sent = await messages_until(session, "mine")
        session_status = await session.status()
        plain = await AgentClient.connect(perdure_server)
        with pytest.raises(errors.PayloadDecodeError):
            await plain.create_schedule(
                new_id("other"), "reporter", "Go.", **DAILY, session=f"about-{name}"
            )
        await daily.delete()

    assert (again.id, other.value.context["differs"]) == (name, ["session", "if_running"])
    first, second = texts(model.requests[2].messages)[0], texts(model.requests[2].messages)[2]
    assert [first, second] == [slot_text("Monday, 2026-03-02"), slot_text("Tuesday, 2026-03-03")]
    assert [(one.id, one.by) for one in sent] == [
        *((message_id, f"schedule {name}") for message_id in ids),
        ("mine", None),
    ]
    assert report.output == "answer 2"
    assert [(one.message, one.id, one.at) for one in reversed(last)] == [
        (message_id, f"{session.id}/{number}", slot)
        for number, (message_id, slot) in enumerate(zip(ids, slots, strict=True), 1)
    ]
    assert (status.session, entry.session, status.if_running) == (session.id, session.id, "queue")
    assert (session_status.budget, session_status.agent) == (Budget(usd="5"), "reporter")


async def send_again(client: AgentClient, message_id: str) -> None:
    """Run the workflow of a message once more, as if the server repeated its slot."""
    temporal = client.temporal
    handle = temporal.get_workflow_handle(message_id)
    [event, *_] = (await handle.fetch_history()).events
    begun = event.workflow_execution_started_event_attributes
    [raw] = await temporal.data_converter.decode(begun.input.payloads)
    await temporal.execute_workflow(
        SCHEDULED_MESSAGE,
        raw,
        id=message_id,
        task_queue=begun.task_queue.name,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
    )


async def messages_until(session: Session, message_id: str) -> list[MessageSent]:
    """The messages that were sent to a session up to one."""
    sent = []
    async for event in session.events():
        if isinstance(event.fact, MessageSent):
            sent.append(event.fact)
            if event.fact.id == message_id:
                break
    return sent


@pytest.mark.accepts("E106", "E107")
async def test_message_is_skipped_queued_or_interrupts(runtime: Runtime) -> None:
    """Any turn of the session counts. A message that would be skipped is refused by hand. The
    histories of what sends the messages replay.
    """
    model = Held(*[says(f"answer {number}") for number in range(4)])
    async with runtime(REPORTER, model=model) as client:
        session = client.session(new_id("busy"), "reporter")
        own = await (await session.say("Mine.")).turn()
        often = await client.create_schedule(
            new_id("overlap"), "reporter", "Go.", **DAILY, session=session.id, if_running="skip"
        )
        with pytest.raises(errors.ScheduleBusyError, match=own.id):
            await often.run_now()
        [skipped] = await often.backfill(at(2), at(3))
        status = await status_when(often, "running", ())
        while not status.last or not status.last[0].is_skipped:
            status = await often.status()
        await often.change(if_running="queue")
        queued = await often.run_now()
        await often.change(if_running="cancel")
        urgent = await often.run_now()
        with pytest.raises(errors.TurnCancelledError):
            await own.result()
        model.let_go.set()
        turn = await session.turn_of(urgent)
        await turn.result()
        read = (await session.turns())[-1].messages
        last = await last_when(often, [Outcome.COMPLETED, Outcome.COMPLETED, None])
        for message_id in (queued, urgent, turn_id_of(often.id, skipped)):
            handle = client.temporal.get_workflow_handle(message_id)
            replayed = await Replayer(data_converter=chosen(), workflows=WORKFLOWS).replay_workflow(
                await handle.fetch_history()
            )
            assert replayed.replay_failure is None
        await often.delete()

    assert read == (queued, urgent)
    assert [one.id for one in last] == [turn.id, turn.id, ""]
    assert (last[2].is_skipped, last[2].at, last[2].error) == (True, skipped, None)
    assert last[0].is_by_hand


@pytest.mark.slow
@pytest.mark.accepts("E107")
async def test_schedule_pauses_after_a_turn_of_its_session_that_failed(runtime: Runtime) -> None:
    """At the next time, which sends nothing. After a resume, it goes on."""
    broken = asyncio.Event()

    def answer(request: ModelRequest) -> Reply:
        return says("done") if broken.is_set() else fails(errors.LLMRefusedError("no"))

    worker = AgentWorker(REPORTER, model_retry=ModelRetryPolicy())
    async with runtime(worker, model=FunctionModel(answer)) as client:
        session, name = client.session(new_id("fails")), new_id("fails")
        often = await client.create_schedule(
            name,
            "reporter",
            "Go.",
            cron="* * * * *",
            timezone="UTC",
            session=session.id,
            on_failure="pause",
        )
        await every_second(client.temporal, name)
        entry = await entry_when(client, name, paused=True)
        turns = await session.turns()
        broken.set()
        await often.resume()
        following = await message_after(session, turns[-1].messages[-1])
        await (await session.turn_of(following)).result()
        resumed = await entry_when(client, name, paused=False)
        await often.delete()

    assert turns[0].outcome is Outcome.FAILED
    assert "has ended as failed" in entry.reason
    assert turns[0].turn_id.partition("/")[0] in entry.reason
    assert resumed.reason == ""


async def message_after(session: Session, message_id: str) -> str:
    """The id of the next message to a session, once it is sent; ids are in the order of slots."""
    async with asyncio.timeout(SOON_S):
        async for event in session.events():
            if isinstance(event.fact, MessageSent) and event.fact.id > message_id:
                return event.fact.id
    raise AssertionError("the session is closed")


@pytest.mark.accepts("E107")
@pytest.mark.slow
async def test_message_that_the_session_refuses_has_an_error(runtime: Runtime) -> None:
    """A session that is closed, has spent its budget, or belongs to another agent; each of them was
    fine at the beginning.
    """
    model = ScriptedModel(says("expensive", usage=usage(2_000)))
    async with runtime(app(REPORTER), model=model) as client:
        name = new_id("refused")
        daily = await client.create_schedule(
            name, "reporter", "Go.", **DAILY, session=name, budget=Budget(usd="2")
        )
        first = await daily.run_now()
        session = client.session(name)
        await (await turn_with(session, first)).result()
        await last_when(daily, [Outcome.COMPLETED])
        spent = await refused(daily, await daily.run_now())
        await session.close()
        closed = await refused(daily, await daily.run_now())
        found = await client.create_schedule(
            name, "reporter", "Go.", **DAILY, session=name, budget=Budget(usd="2")
        )
        await client.temporal.start_workflow(
            SESSION,
            pack(SessionRequest(agent="other")),
            id=f"{name}-2",
            task_queue=client.task_queue,
        )
        await daily.change(session=f"{name}-2", budget=None)
        theirs = await refused(daily, await daily.run_now())
        await client.session(f"{name}-2").close()
        await daily.delete()

    assert spent.error is not None
    assert (spent.error.code, spent.id) == ("TURN_BUDGET_EXCEEDED", "")
    assert closed.error is not None
    assert closed.error.code == "SESSION_CLOSED"
    assert found.id == name
    assert theirs.error is not None
    assert theirs.error.code == "TURN_CONFLICT"


async def refused(schedule: Schedule, message_id: str) -> ScheduledTurn:
    """A message of a schedule, once it was refused."""
    async with asyncio.timeout(SOON_S):
        while True:
            for one in (await schedule.status()).last:
                if one.message == message_id and one.error is not None:
                    return one
            await asyncio.sleep(0.05)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"if_running": "allow"}, "if_running='allow' cannot be combined with a session"),
    ({"remember_last": True}, "remember_last cannot be combined with a session"),
    ({"priority": 2}, "priority cannot be combined with a session"),
    ({"output": int}, "output or output_schema cannot be combined with a session"),
    ({"history": [UserMessage.of("Hi.")]}, "history cannot be combined with a session"),
    ({"task": Task(content="Go.", requires_human_approval=True)}, "requires_human_approval cannot"),
    ({"task": Task(content=(Text(text="Go."),), budget=Budget(time=at(2) - at(1)))}, "no time"),
    ({"session": ""}, "a session's id has 1 to"),
    ({"session": "x" * 91}, "a session's id has 1 to"),
    ({"session": "two\nlines"}, "printable"),
    ({"session": 7}, "session"),
]


@pytest.mark.accepts("E108")
async def test_schedule_that_cannot_send_messages_is_refused_at_once(runtime: Runtime) -> None:
    """Before anything exists, and a change as a whole."""
    async with runtime([REPORTER, OTHER], model=ScriptedModel(says("hello"))) as client:
        name = new_id("never")
        for given, said in REFUSED:
            wanted = {"id": name, "agent": "reporter", "task": "Go.", "session": name, **given}
            with pytest.raises(errors.InvalidRequestError) as raised:
                await client.create_schedule(**DAILY, **wanted)
            assert said in raised.value.message, (given, raised.value.message)
            assert raised.value.message.isprintable()
        session = client.session(new_id("theirs"), OTHER)
        turn = await (await session.say("Hello.")).turn()
        refused: list[tuple[dict[str, Any], type[errors.PerdureError]]] = [
            ({"task": "x" * 300_000}, errors.TooLargeError),
            ({"session": session.id}, errors.TurnConflictError),
            ({"session": turn.id}, errors.TurnConflictError),
        ]
        plain = await client.create_schedule(
            new_id("plain"), "reporter", "Go.", **DAILY, remember_last=True
        )
        for given, kind in refused:
            with pytest.raises(kind):
                await client.create_schedule(
                    **{"id": name, "agent": "reporter", "task": "Go.", "session": name, **given},
                    **DAILY,
                )
        with pytest.raises(errors.InvalidRequestError, match="remember_last"):
            await plain.change(session=session.id)
        with pytest.raises(errors.TurnConflictError):
            await plain.change(session=session.id, remember_last=False)
        await session.close()
        await client.temporal.get_workflow_handle(session.id).result()
        with pytest.raises(errors.SessionClosedError):
            await plain.change(session=session.id, remember_last=False, agent="other")
        with pytest.raises(errors.ScheduleNotFoundError):
            await client.schedule(name).status()
        with pytest.raises(errors.SessionNotFoundError):
            await client.session(name).status()
        status = await plain.status()
        await plain.delete()

    assert (status.session, status.agent, status.remember_last) == (None, "reporter", True)


@pytest.mark.accepts("E105", "E180")
async def test_message_of_a_schedule_has_the_images_of_its_task(runtime: Runtime) -> None:
    """After the slot and the text."""
    model = ScriptedModel(says("seen"))
    content = (Text(text="Look."), Media(media_type="image/png", data="YWJj"))
    async with runtime(REPORTER, model=model) as client:
        name = new_id("seen")
        daily = await client.create_schedule(
            name, "reporter", Task(content=content), session=f"about-{name}", **DAILY
        )
        sent = await daily.run_now()
        await (await turn_with(client.session(f"about-{name}"), sent)).result()
        await daily.delete()

    [message] = model.requests[0].messages
    assert isinstance(message, UserMessage)
    assert message.parts[-2:] == content


@pytest.mark.slow
@pytest.mark.accepts("E105")
async def test_schedule_of_turns_becomes_one_of_messages_and_back(runtime: Runtime) -> None:
    """A change takes effect with the next start; results of the other kind are ignored."""
    model = ScriptedModel(*[says(f"answer {number}") for number in range(3)])
    async with runtime(REPORTER, model=model) as client:
        daily = await client.create_schedule(new_id("both"), "reporter", "Go.", **DAILY)
        await client.turn(await daily.run_now()).result()
        await daily.change(session=daily.id, on_failure="pause", if_running="queue")
        message = await daily.run_now()
        await (await turn_with(client.session(daily.id), message)).result()
        await daily.change(session=None, remember_last=True)
        report = await (await existing(client, await daily.run_now())).result()
        status = await daily.status()
        with contextlib.suppress(RPCError):
            await client.temporal.get_workflow_handle(daily.id).terminate()
        await daily.delete()

    assert (report.output, status.session) == ("answer 2", None)
    assert "last_output" not in report.messages[0].model_dump_json()


OTHER = Agent(name="other", model="scripted:other")
