"""What meets a turn while it waits for a login."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from perdure import Agent, errors
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.values.approvals import PendingApproval

from ...support.approving import send
from ...support.data_subjects import home
from ...support.logins import BACK, DONE, LOG_IN, LUNCH, SEND, Office, login_of, office, until
from ...support.mcp.guarded_calendar import logged_in

__all__ = ["home", "office"]

TWICE = calls(call("calendar__log_in"), call("calendar__log_in"))


def lunches(number: int) -> Reply:
    """An answer with so many calls."""
    return calls(*(call("calendar__add_event", title=f"Lunch {one}") for one in range(number)))


def parallel(office: Office) -> Agent:
    """A secretary whose calls run at once."""
    return Agent(
        name="secretary",
        model="scripted:secretary",
        toolboxes=[office.server()],
        tools=[send],
        parallel_tools=True,
    )


async def until_pending(client: AgentClient, turn_id: str, number: int) -> list[PendingApproval]:
    """The calls that wait, once there are so many."""
    found: list[PendingApproval] = []

    async def waits() -> bool:
        found[:] = await client.turn(turn_id).pending_approvals()
        return len(found) == number

    await until(waits)
    return found


@pytest.mark.accepts("G141")
async def test_one_login_answers_all_calls_of_a_turn_that_wait(office: Office) -> None:
    """Two of an answer that ask for it; and the tools come once."""
    client = await office.client()
    async with office.worker(TWICE, LUNCH, DONE, agents=[parallel(office)]).running(
        client.temporal
    ):
        turn = await office.start(client)

        await until_pending(client, turn.id, 2)
        await office.log_in(client, turn)
        report = await turn.result()

    assert office.calendar.events == {"anna": ["Lunch"]}
    assert [len(step.results) for step in report.steps] == [2, 1, 0]


@pytest.mark.slow
@pytest.mark.accepts("G141")
async def test_parallel_calls_that_are_all_refused_are_made_once_each(office: Office) -> None:
    client = await office.client()
    script = LOG_IN, SEND, lunches(4), DONE
    async with office.worker(*script, agents=[parallel(office)]).running(client.temporal):
        turn = await office.start(client)
        await office.log_in(client, turn)
        [waiting] = await until_pending(client, turn.id, 1)
        office.issuer.revoke("anna")
        await turn.approve(waiting)
        await until_pending(client, turn.id, 4)
        before = dict(office.calendar.events)
        await office.log_in(client, turn)
        await turn.result()

    assert before == {}
    assert sorted(office.calendar.events["anna"]) == [f"Lunch {one}" for one in range(4)]


@pytest.mark.slow
@pytest.mark.accepts("G141")
async def test_cancel_ends_a_turn_that_waits_and_a_late_login_is_kept(office: Office) -> None:
    """The next turn of the subject has the tools."""
    client = await office.client()
    async with office.worker(LOG_IN, LUNCH, DONE).running(client.temporal):
        turn = await office.start(client)
        waiting, _ = await login_of(turn)
        link = await client.login_link(turn.id, waiting.call_id)
        address = await client.begin_login(link, BACK)
        await turn.cancel("enough", by="anna")
        with pytest.raises(errors.TurnCancelledError, match="enough"):
            await turn.result()
        await client.complete_login(await logged_in(address))
        await (await office.start(client)).result()
        with pytest.raises(errors.PerdureError):
            await client.login_link(turn.id, waiting.call_id)

    assert office.calendar.events == {"anna": ["Lunch"]}


@pytest.mark.slow
@pytest.mark.accepts("G141")
async def test_deadline_ends_a_turn_that_waits(office: Office) -> None:
    client = await office.client()
    async with office.worker(LOG_IN).running(client.temporal):
        turn = await office.start(client, deadline=datetime.now(UTC) + timedelta(seconds=6))
        await login_of(turn)
        with pytest.raises(errors.PerdureError) as raised:
            await asyncio.wait_for(turn.result(), 60)

    assert "deadline" in raised.value.message


@pytest.mark.slow
@pytest.mark.accepts("G141")
async def test_message_while_it_waits_is_read_after_the_login(office: Office) -> None:
    client = await office.client()
    model = ScriptedModel(LOG_IN, LUNCH, DONE)
    async with office.worker(model=model).running(client.temporal):
        turn = await office.start(client)
        await login_of(turn)
        await turn.steer("At noon.")
        await office.log_in(client, turn)
        await turn.result()

    assert office.calendar.events == {"anna": ["Lunch"]}
    last = model.requests[-1].messages
    assert "At noon." in [getattr(message, "text", "") for message in last]


@pytest.mark.slow
@pytest.mark.accepts("G141")
async def test_worker_without_the_server_says_so_to_the_model(office: Office) -> None:
    """A later release, whose agent has no calendar, while the turn waits."""
    client = await office.client()
    async with office.worker(LOG_IN).running(client.temporal):
        turn = await office.start(client)
        waiting, _ = await login_of(turn)
        link = await client.login_link(turn.id, waiting.call_id)
        address = await client.begin_login(link, BACK)
    later = Agent(name="secretary", model="scripted:secretary", tools=[send])
    async with office.worker(says("then not"), agents=[later]).running(client.temporal):
        await client.complete_login(await logged_in(address))
        report = await turn.result()

    [result] = report.steps[0].results
    assert result.is_error
    assert "the deployed worker does not have this tool" in result.content


@pytest.mark.accepts("G143")
async def test_login_that_ends_after_an_erasure_is_not_kept(office: Office) -> None:
    """Although the subject may return: a later one of this name has not asked for it."""
    client = await office.client()
    async with office.worker(LOG_IN).running(client.temporal):
        turn = await office.start(client)
        waiting, _ = await login_of(turn)
        link = await client.login_link(turn.id, waiting.call_id)
        address = await client.begin_login(link, BACK)
        await client.erase(office.home.subject, by="officer")
        with pytest.raises(errors.ErasedError, match="was erased after this login was begun"):
            await client.complete_login(await logged_in(address))
    name = f"tokens {office.calendar.url}"

    assert office.home.store.secret(office.home.subject, name) is None
    assert [key.state.value for key in office.home.store.of_subject(office.home.subject)] == [
        "erased"
    ]
