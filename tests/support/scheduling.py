"""Schedules whose times come soon, and what they have started."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from temporalio.client import Client, ScheduleRange, ScheduleUpdate, ScheduleUpdateInput
from temporalio.client import Schedule as TemporalSchedule

from perdure import Agent, errors
from perdure.clients import AgentClient, Schedule, ScheduleEntry, Turn
from perdure.clients.schedules.definition import turn_id_of

BERLIN = ZoneInfo("Europe/Berlin")
DAILY: dict[str, Any] = {"cron": "0 7 * * *", "timezone": "Europe/Berlin"}


REPORTER = Agent(name="reporter", model="scripted:reporter")
SOON_S = 60.0


def new_id(name: str) -> str:
    """An id of a schedule."""
    return f"{name}-{secrets.token_hex(4)}"


def at(day: int, *, month: int = 3, hour: int = 0) -> datetime:
    """A local time in 2026."""
    return datetime(2026, month, day, hour, tzinfo=BERLIN)


async def turns_of(
    client: AgentClient, schedule: Schedule, slots: Sequence[datetime]
) -> list[Turn[Any]]:
    """The turns of these slots, once they exist."""
    return [await existing(client, turn_id_of(schedule.id, slot)) for slot in slots]


async def existing(client: AgentClient, turn_id: str) -> Turn[Any]:
    """A turn, once the server has started it."""
    async with asyncio.timeout(SOON_S):
        while True:
            with contextlib.suppress(errors.TurnNotFoundError):
                await client.turn(turn_id).first_run()
                return client.turn(turn_id)
            await asyncio.sleep(0.05)


async def entry_when(client: AgentClient, schedule_id: str, *, paused: bool) -> ScheduleEntry:
    """The entry of a schedule in the list, once it is paused or is not."""
    async with asyncio.timeout(SOON_S):
        while True:
            async for entry in client.schedules():
                if entry.id == schedule_id and entry.is_paused == paused:
                    return entry
            await asyncio.sleep(0.05)


async def status_when(schedule: Schedule, field: str, value: object) -> Any:
    """The status of a schedule, once a field has this value."""
    async with asyncio.timeout(SOON_S):
        while True:
            status = await schedule.status()
            if getattr(status, field) == value:
                return status
            await asyncio.sleep(0.05)


async def every_second(client: Client, schedule_id: str) -> None:
    """Let the times of a schedule come every second, as only another program can."""

    def changed(given: ScheduleUpdateInput) -> ScheduleUpdate:
        schedule: TemporalSchedule = given.description.schedule
        [calendar] = schedule.spec.calendars
        schedule.spec.calendars = [replace(calendar, second=[ScheduleRange(0, 59)])]
        return ScheduleUpdate(schedule)

    await client.get_schedule_handle(schedule_id).update(changed)
