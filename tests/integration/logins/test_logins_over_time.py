"""Logins at MCP servers beyond one run of one turn: sessions, forks, later runs and schedules."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import errors
from perdure.clients.reading.recorded import runs_of
from perdure.temporal.encryption.data_subjects import starting
from perdure.worker.deploying.checking import failure_of

from ...support.data_subjects import home
from ...support.logins import DONE, LOG_IN, LUNCH, Office, login_of, office
from ...support.long_turns import begin, filling, reader
from ...support.resets import reset_to, task_ends
from ...support.scheduling import DAILY

__all__ = ["home", "office"]


@pytest.mark.accepts("G140")
async def test_next_message_of_a_session_has_the_tools_at_once(office: Office) -> None:
    """The login is asked for in the first message."""
    client = await office.client()
    async with office.worker(LOG_IN, LUNCH, DONE, LUNCH, DONE).running(client.temporal):
        session = client.session(f"talk-{office.home.id}", "secretary", subject=office.home.subject)
        first = await session.say("Note it.")
        await office.log_in(client, await first.turn())
        await first.result()
        await (await session.say("Note it again.")).result()

    assert office.calendar.events == {"anna": ["Lunch", "Lunch"]}


@pytest.mark.slow
@pytest.mark.accepts("G140")
async def test_fork_and_resumed_turn_are_of_the_same_person(office: Office) -> None:
    """A fork has the tools at once; a turn that was cancelled while it waited asks again."""
    client = await office.client()
    async with office.worker(LOG_IN, LOG_IN, LUNCH, DONE, LUNCH, DONE).running(client.temporal):
        turn = await office.start(client)
        await login_of(turn)
        await turn.cancel("later", by="anna")
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()
        resumed = await turn.resume(id=f"resumed-{office.home.id}")
        await office.log_in(client, resumed)
        await resumed.result()
        fork = await resumed.fork(0, id=f"fork-{office.home.id}")
        await fork.result()

    assert office.calendar.events == {"anna": ["Lunch", "Lunch"]}


@pytest.mark.slow
@pytest.mark.accepts("G140")
async def test_turn_that_is_reset_to_before_the_login_goes_on(office: Office) -> None:
    """Its call of the tool finds that the person is logged in."""
    client = await office.client()
    script = LOG_IN, LUNCH, DONE
    async with office.worker(*script, *script).running(client.temporal):
        turn = await office.start(client)
        await login_of(turn)
        ends = task_ends(await client.temporal.get_workflow_handle(turn.id).fetch_history())
        await office.log_in(client, turn)
        await turn.result()
        await reset_to(client.temporal, turn.id, await turn.first_run(), ends[1])
        report = await client.turn(turn.id).result()

    assert report.output == "noted"
    assert office.calendar.events == {"anna": ["Lunch", "Lunch"]}


@pytest.mark.slow
@pytest.mark.accepts("G140")
async def test_later_run_of_a_turn_has_the_tools(office: Office) -> None:
    """Each run replays: the one that waits, and those after it."""
    client = await office.client()
    agent = reader(parallel_tools=True, toolboxes=[office.server()])
    script = *filling(1), LOG_IN, *filling(4), LUNCH, DONE
    async with office.worker(*script, agents=[agent]).running(client.temporal):
        async with starting(client.temporal, office.home.subject):
            turn = await begin(client, turn_id=f"long-{office.home.id}")  # type: ignore[arg-type]
        await office.log_in(client, turn)
        report = await asyncio.wait_for(turn.result(), 120)
        runs = await runs_of(client.temporal, turn.id)
        failures = [await failure_of(client.temporal, turn.id, run) for run in runs]

    assert report.output == "noted"
    assert len(runs) > 1
    assert failures == [""] * len(runs)
    assert office.calendar.events == {"anna": ["Lunch"]}


@pytest.mark.slow
@pytest.mark.accepts("G140")
async def test_schedule_and_batch_work_for_their_subject(office: Office) -> None:
    """Who has logged in for a turn of the schedule has done it for the tasks of a batch as well."""
    client = await office.client()
    script = LOG_IN, LUNCH, DONE, LUNCH, DONE, LUNCH, DONE
    given: Any = {"subject": office.home.subject}
    async with office.worker(*script).running(client.temporal):
        daily = await client.create_schedule(
            f"daily-{office.home.id}", "secretary", "Note it.", **DAILY, **given
        )
        turn = client.turn(await daily.run_now())
        await office.log_in(client, turn)
        await turn.result()
        tasks = ["Again.", "And again."]
        batch = await client.start_batch(
            f"b-{office.home.id}", "secretary", tasks, at_once=1, **given
        )
        await batch.wait(60)
        await daily.delete()

    assert office.calendar.events == {"anna": ["Lunch"] * 3}
