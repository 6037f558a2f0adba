"""Turns of a schedule whose workers are killed, between its times and within them."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from perdure import Budget
from perdure.clients.schedules.definition import turn_id_of
from perdure.session.facts import MessageSent

from ..support.e2e.app import AGENT
from ..support.e2e.stories import Tell, asks, kill_all, says, use
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor
from ..support.scheduled_messages import turn_with
from ..support.scheduling import existing

__all__ = ["has_supervisor"]

FIRST = datetime(2026, 10, 24, 7, tzinfo=ZoneInfo("Europe/Berlin"))


@pytest.mark.slow
@pytest.mark.accepts("E73", "E112")
async def test_each_time_has_one_turn_although_workers_are_killed(tell: Tell) -> None:
    """The first worker is killed after the first turn, the second one within the second turn; the
    server starts turns meanwhile, which wait for a worker.
    """
    story = await tell(asks(use("charge", "one")), says("done", delay_s=1.5))
    daily = await story.client.create_schedule(
        f"kills-{secrets.token_hex(4)}",
        AGENT,
        "go",
        cron="0 7 * * *",
        timezone="Europe/Berlin",
        remember_last=True,
        if_running="queue",
        total=Budget(model_calls=100),
    )
    slots = [FIRST + timedelta(days=day) for day in range(3)]
    worker = await story.worker()
    await daily.backfill(slots[0], slots[0])
    first = await existing(story.client, turn_id_of(daily.id, slots[0]))
    await first.result()
    await kill_all(worker)
    backfilled = await daily.backfill(slots[0], slots[2])
    second = await existing(story.client, turn_id_of(daily.id, slots[1]))
    worker = await story.worker()
    await story.asked(4)
    await story.replace(worker)
    await second.result()
    third = await existing(story.client, turn_id_of(daily.id, slots[2]))
    reports = [await story.report(turn) for turn in (first, second, third)]
    status = await daily.status()
    await daily.delete()

    assert status.spent.model_calls == sum(report.model_calls for report in reports)
    assert backfilled == (slots[1], slots[2])
    assert [report.output for report in reports] == ["done #2", "done #5", "done #7"]
    assert len(story.journal()) == 3
    assert story.requests() == {1: 3, 2: 4}
    assert [turn.at for turn in reversed(status.last)] == slots
    texts = [report.messages[0].text for report in reports]  # type: ignore[union-attr]
    assert [text.partition(".\n")[0].partition(" for ")[2] for text in texts] == [
        "Saturday, 2026-10-24 07:00 Europe/Berlin (UTC+02:00)",
        "Sunday, 2026-10-25 07:00 Europe/Berlin (UTC+01:00)",
        "Monday, 2026-10-26 07:00 Europe/Berlin (UTC+01:00)",
    ]
    assert ["done #2" in texts[1], "done #5" in texts[2]] == [True, True]


@pytest.mark.slow
@pytest.mark.accepts("E105")
async def test_message_of_a_schedule_is_said_once_although_workers_are_killed(tell: Tell) -> None:
    """Its time comes while there is no worker; the first one is killed within the turn."""
    story = await tell(says("done", delay_s=1.5), says("again"))
    name = f"says-{secrets.token_hex(4)}"
    session = story.client.session(name)
    daily = await story.client.create_schedule(
        name, AGENT, "go", cron="0 7 * * *", timezone="Europe/Berlin", session=name
    )
    slots = await daily.backfill(FIRST, FIRST + timedelta(days=1))
    waiting = await daily.status()
    worker = await story.worker()
    await story.asked(1)
    await story.replace(worker)
    ids = [turn_id_of(name, slot) for slot in slots]
    for message_id in ids:
        turn = await turn_with(session, message_id)
        await turn.result()
    sent = []
    async for event in session.events():
        if isinstance(event.fact, MessageSent):
            sent.append(event.fact.id)
            if sent[-1] == ids[-1]:
                break
    read = [message for one in await session.turns() for message in one.messages]
    status = await daily.status()
    await daily.delete()

    assert [one.message for one in waiting.last] in ([], ids[:1])
    assert (sent, read) == (ids, ids)
    assert {one.id for one in status.last} <= {f"{name}/1", f"{name}/2"}
