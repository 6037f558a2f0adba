"""Heartbeats cost an action each, reveal a lost machine, and deliver cancels."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.client import Client

from perdure import Agent, errors, tool
from perdure.errors import ConfigurationError
from perdure.temporal.connect import connect
from perdure.temporal.liveness import INTERVAL, TOLERANCE, interval_for, timeout_for
from perdure.testing import ScriptedModel, call, calls
from perdure.turn.facts import Scheduled
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

from ...support.spending import Queue, ended, queue, until

SOON_S = 2.5
"""Less than the interval of heartbeats, with room for a busy machine."""


began = asyncio.Event()


@tool
async def linger() -> str:
    """Takes long."""
    began.set()
    await asyncio.sleep(60)
    return "late"


AGENT = Agent(name="waiter", model="scripted:x", tools=[linger])


@contextlib.asynccontextmanager
async def working(work: Queue, client: Client, **settings: timedelta) -> AsyncIterator[None]:
    """A worker with these settings whose model calls the tool."""
    providers = {"scripted": ScriptedModel(calls(call("linger")))}
    app = AgentWorker(AGENT, task_queue=work.client.task_queue, providers=providers)
    given = WorkerSettings(grace=timedelta(seconds=0.1), **settings)  # type: ignore[arg-type]
    async with app.running(client, settings=given):
        yield


@pytest.mark.slow
@pytest.mark.accepts("O26")
async def test_cancel_reaches_an_activity_in_the_process_of_its_turn_before_its_next_heartbeat(
    perdure_server: str,
) -> None:
    """Its heartbeats are far apart; the one that brings the cancel is sent for it."""
    async with (
        queue(perdure_server) as work,
        working(work, work.client.temporal, heartbeat=timedelta(seconds=40)),
    ):
        began.clear()
        turn = await work.client.start("waiter", "go")
        await began.wait()
        described = await work.client.temporal.get_workflow_handle(turn.id).describe()
        await turn.cancel("enough")
        end = await ended(turn)

    [pending] = described.raw_description.pending_activities
    far = timeout_for(timedelta(seconds=40))
    assert isinstance(end, errors.TurnCancelledError)
    assert end.report is not None
    assert end.report.unstopped == ()  # it ended within the grace, which is shorter than 40 s
    assert pending.activity_options.heartbeat_timeout.ToTimedelta() == far


@pytest.mark.slow
@pytest.mark.accepts("O26", "Y85")
async def test_heartbeats_are_as_far_apart_as_the_timeout_of_the_activity_says(
    perdure_server: str,
) -> None:
    """The worker of the turn sets it: its interval, and how late a heartbeat may be."""
    async with queue(perdure_server) as work:
        client = await connect(perdure_server)
        second, four = timedelta(seconds=1), timedelta(seconds=4)
        async with working(work, client, heartbeat=second, heartbeat_tolerance=four):
            turn = await work.client.start("waiter", "go")
            await until(turn, Scheduled, times=2)
            async with asyncio.timeout(60):
                while True:
                    described = await client.get_workflow_handle(turn.id).describe()
                    [pending] = described.raw_description.pending_activities
                    if pending.HasField("last_heartbeat_time"):
                        break
                    await asyncio.sleep(0.05)
            await turn.cancel()
            await ended(turn)

    took = pending.last_heartbeat_time.ToDatetime() - pending.last_started_time.ToDatetime()
    assert timedelta(seconds=0.9) < took < timedelta(seconds=SOON_S)
    assert pending.activity_options.heartbeat_timeout.ToTimedelta() == timedelta(seconds=5)


@pytest.mark.accepts("O26", "Y85")
def test_setting_and_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a second to ten minutes; a worker of an earlier release sets a timeout of 5.5 s."""
    monkeypatch.setenv("PERDURE_HEARTBEAT_S", "10")
    monkeypatch.setenv("PERDURE_HEARTBEAT_TOLERANCE_S", "20")
    settings = WorkerSettings.from_environment()
    ten, tolerance = settings.heartbeat, settings.heartbeat_tolerance
    refused = []
    for text in ("0.5", "601", "0", "often"):
        monkeypatch.setenv("PERDURE_HEARTBEAT_S", text)
        with pytest.raises(ConfigurationError, match="PERDURE_HEARTBEAT_S") as caught:
            WorkerSettings.from_environment()
        refused.append(caught.value.message)

    assert WorkerSettings().heartbeat == INTERVAL == timedelta(seconds=3)
    assert WorkerSettings().heartbeat_tolerance == TOLERANCE == timedelta(seconds=12)
    assert (ten, timeout_for(ten)) == (timedelta(seconds=10), timedelta(seconds=10) + TOLERANCE)
    assert [interval_for(timeout_for(one)) for one in (INTERVAL, ten)] == [INTERVAL, ten]
    assert interval_for(timedelta(seconds=5.5)) == timedelta(seconds=1)
    assert interval_for(timedelta(seconds=5.5), tolerance=timedelta(seconds=2.5)) == INTERVAL
    assert interval_for(None) == INTERVAL
    assert timeout_for(timedelta(seconds=10), tolerance) == timedelta(seconds=30)
    minute = timedelta(minutes=1)
    assert interval_for(minute, limit=minute) == timedelta(seconds=36)
    assert all("number" in message for message in refused)
