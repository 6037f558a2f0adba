"""Reminders: messages that a session sends to itself later, for a turn that has ended."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import Agent, ToolMessage, limits
from perdure.clients import Session, Turn
from perdure.session.facts import ReminderDue, ReminderForgotten, ReminderSet, TurnBegan
from perdure.session.state import fold
from perdure.session.wire import Reminder, SessionRequest, SessionSnapshot
from perdure.temporal.names import SESSION
from perdure.temporal.payloads import pack
from perdure.testing import FunctionModel, ModelRequest, Reply, ScriptedModel, call, calls, says
from perdure.toolboxes import waiting
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime
from ...support.carrying import continued
from ...support.conversing import session_of
from ...support.gateway.served import served
from ...support.skipping import skip_time_in
from ...support.spending import look, queue


def waiter(**fields: Any) -> Agent:
    """An agent that can be reminded."""
    given = {"name": "spender", "model": "scripted:spender", "tools": [look]}
    return Agent(**{**given, "toolboxes": [waiting()], "max_iterations": 40, **fields})


def remind(at: str = "P2D", text: str = "Look at the build.") -> Any:
    """A call that sets a reminder."""
    return call("remind", at=at, text=text)


def results(model: ScriptedModel) -> list[str]:
    """The results in the last request."""
    found = [message for message in model.requests[-1].messages if isinstance(message, ToolMessage)]
    return [result.content for message in found for result in message.results]


async def until_turn(session: Session[Any], number: int) -> Turn[Any]:
    """A turn of a session, once it has begun."""
    async for event in session.events():
        if isinstance(event.fact, TurnBegan) and event.fact.number == number:
            turn = await session.begun(event.fact.turn_id)
            assert turn is not None
            return turn
    raise AssertionError(f"turn {number} did not begin")


async def skip(client: RecordingClient, session: Session[Any], by: timedelta) -> None:
    """Skip time in a session without a turn."""
    await session.wait()
    await skip_time_in(client, session.id, by)


@pytest.mark.accepts("W30")
async def test_session_sends_itself_a_message_when_a_reminder_is_due(runtime: Runtime) -> None:
    """The turn that has set it is over; another one reads the message, days later."""
    model = ScriptedModel(calls(remind()), says("I will look again."), says("It is built."))
    async with runtime(waiter(), model=model) as client:
        session = session_of(client)
        sent = await session.say("Is it built?")
        await sent.result()
        before = await session.status()
        await skip(client, session, timedelta(days=2, minutes=1))
        report = await (await until_turn(session, 2)).result()
        after = await session.wait()
        await session.close()
        facts = [event.fact async for event in session.events()]

    [reminder] = before.reminders
    assert reminder.text == "Look at the build."
    assert (before.state, after.reminders) == ("idle", ())
    asked = model.requests[-1].messages[-1].text  # type: ignore[union-attr]
    assert asked.startswith("[A reminder, which was set for 20")
    assert asked.endswith("]\nLook at the build.")
    assert report.output == "It is built."
    assert [type(fact) for fact in facts if isinstance(fact, ReminderSet | ReminderDue)] == [
        ReminderSet,
        ReminderDue,
    ]
    assert fold(facts).turns[-1].messages == (f"reminder-{reminder.id}",)


@pytest.mark.slow
@pytest.mark.accepts("W31")
async def test_reminders_are_listed_and_given_up_by_people(runtime: Runtime) -> None:
    """By their ids, in the order in which they were set; what is not valid is an error result."""
    now = datetime.now(UTC)
    invalid = {
        "tomorrow": "neither a date with a time zone",
        "2030-12-01T18:00:00": "neither a date with a time zone",
        (now - timedelta(hours=1)).isoformat(): "a reminder comes later",
        (now + timedelta(days=4000)).isoformat(): "a reminder comes later",
        "P4000D": "neither a date with a time zone",
    }
    model = ScriptedModel(
        calls(*(remind(at) for at in invalid), remind(text=" "), remind(text="x" * 5000)),
        calls(*(remind(text=f"number {number}") for number in range(11))),
        calls(call("reminders")),
        says("done"),
    )
    async with runtime(waiter(), model=model) as client:
        session = session_of(client)
        await (await session.say("go")).result()
        status = await session.status()
        first = status.reminders[0].id
        gone = await session.forget_reminder(first, by="anna@example.com")
        again = await session.forget_reminder(first)
        left = (await session.status()).reminders
        await session.close()
        facts = [event.fact async for event in session.events()]

    found = results(model)
    for content, message in zip(found, invalid.values(), strict=False):
        assert message in content
    assert "empty" in found[5] or "text" in found[5]
    assert "more than 4096" in found[6]
    assert "10 reminders are open, which is the most" in found[17]
    listed = json.loads(found[18])
    assert [entry["text"] for entry in listed] == [f"number {number}" for number in range(10)]
    assert [entry["id"] for entry in listed] == [reminder.id for reminder in status.reminders]
    assert (gone, again, len(left)) == (True, False, limits.REMINDERS - 1)
    assert ReminderForgotten(first, "anna@example.com") in facts


@pytest.mark.accepts("W31")
async def test_model_gives_a_reminder_up(runtime: Runtime) -> None:
    """By the id that setting it returned; one that is not there is said."""
    seen: list[str] = []

    def answer(request: ModelRequest) -> Reply:
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            seen.extend(result.content for result in last.results)
        if len(seen) == 0:
            return calls(remind())
        forget = [call("forget_reminder", id=id) for id in (seen[0].split()[2], "other")]
        return calls(*forget) if len(seen) == 1 else says("done")

    async with runtime(waiter(), model=FunctionModel(answer)) as client:
        session = session_of(client)
        await (await session.say("go")).result()
        status = await session.status()

    reminder_id = seen[0].split()[2]
    assert seen[1:] == [
        f"The reminder {reminder_id} is given up.",
        "There is no reminder other.",
    ]
    assert status.reminders == ()


@pytest.mark.accepts("W32")
async def test_reminder_does_not_let_its_session_be_closed_for_idleness(runtime: Runtime) -> None:
    """And it is a message of its own where it comes while a turn was cancelled before."""
    model = ScriptedModel(calls(remind("PT3H")), says("one"), says("two"))
    async with runtime(waiter(), model=model) as client:
        session = session_of(client, idle=timedelta(hours=1))
        await (await session.say("go")).result()
        await skip(client, session, timedelta(hours=3, minutes=1))
        report = await (await until_turn(session, 2)).result()

    assert report.output == "two"


@pytest.mark.accepts("W33")
async def test_close_ends_reminders_and_names_them(runtime: Runtime) -> None:
    """So does a cancel; no turn begins with them."""
    model = ScriptedModel(*[calls(remind()), says("one")] * 2)
    async with runtime(waiter(), model=model) as client:
        closed, cancelled = session_of(client), session_of(client)
        for session in (closed, cancelled):
            await (await session.say("go")).result()
        await closed.close()
        await cancelled.cancel()
        states = [await session.wait() for session in (closed, cancelled)]

    assert [status.state for status in states] == ["closed", "closed"]
    assert [[reminder.text for reminder in status.reminders] for status in states] == [
        ["Look at the build."],
        ["Look at the build."],
    ]


@pytest.mark.accepts("W34")
async def test_turn_without_a_session_has_no_reminders(runtime: Runtime) -> None:
    """Their tools are not offered, so a call of one is a call of a tool that is not there."""
    model = ScriptedModel(calls(remind()), says("done"))
    async with runtime(waiter(), model=model) as client:
        report = await client.run("spender", "go")

    [result] = report.steps[0].results
    assert result.content == (
        "There is no tool named 'remind'. The tools are: look, wait, wait_for."
    )


@pytest.mark.accepts("W35")
async def test_reminder_is_given_up_over_http(runtime: Runtime) -> None:
    """The status of the session has it, and its events."""
    model = ScriptedModel(calls(remind()), says("one"))
    async with runtime(waiter(), model=model) as client, served(client) as http:
        session = session_of(client)
        plain = session.id
        own = client.session(f"@acme/{plain}", "spender")
        await (await own.say("go")).result()
        [reminder] = (await http.get(f"/v1/sessions/{plain}")).json()["reminders"]
        path = f"/v1/sessions/{plain}/forget-reminder"
        gone = [(await http.post(path, json={"id": reminder["id"]})).json() for _ in range(2)]
        wrong = await http.post(path, json={})
        await own.close()

    assert reminder["text"] == "Look at the build."
    assert gone == [{"changed": True}, {"changed": False}]
    assert wrong.status_code == 422


@pytest.mark.accepts("W36")
async def test_reminder_goes_on_in_a_new_run_and_in_another_worker(perdure_server: str) -> None:
    """It is due while no worker runs the session, and comes once there is one."""
    reminder = Reminder(id="r", at=datetime.now(UTC) + timedelta(seconds=1), text="Look.")
    snapshot = SessionSnapshot(
        session=SessionRequest(agent="spender"), count=0, reminders=(reminder,)
    )
    model = ScriptedModel(says("one"))
    async with queue(perdure_server) as work:
        session = session_of(work.client)
        await continued(work.client, session.id, pack(snapshot), kind=SESSION)
        async with work.worker(AgentWorker(waiter()), ScriptedModel()):
            before = await session.status()
        async with work.worker(AgentWorker(waiter()), model):
            report = await (await until_turn(session, 1)).result()
            after = await session.wait()

    assert before.reminders == (reminder,)
    assert (report.output, after.reminders) == ("one", ())
