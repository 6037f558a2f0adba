"""The checks of the simulator: what is no broken promise, although it looks like one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.batch.wire import PartNews
from perdure.temporal.names import BATCH_NEWS, TURN
from perdure.temporal.payloads import pack
from perdure.testing.simulation.features.notice_promises import told_waits
from perdure.testing.simulation.server.batch_reading import BatchRead
from perdure.testing.simulation.server.history import event_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.sdk import BegunRun
from perdure.turn.facts import TaskBegan, WaitBegan, WaitEnded
from perdure.turn.waiting import PROVIDER
from perdure.workflows.moving import ONE_TASK

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIRST, SECOND = "00000001", "00000002"
"""The ids of two runs of a part."""


def told_of(*facts: Any) -> list[int]:
    """The attempts before which the turn of these facts tells of a wait."""
    run = SimulatedRun(BegunRun("turn", "run", "run", TURN, 0), facts=list(facts))
    return [wait.attempt for wait, _ in told_waits({run: len(facts)}, run)]


def busy(attempt: int, *, limit: bool = False) -> WaitBegan:
    """A wait for a provider."""
    return WaitBegan(PROVIDER, "busy", since=NOON, attempt=attempt, limit=limit)


@pytest.mark.accepts("S50")
def test_provider_that_is_busy_again_is_the_same_wait() -> None:
    """Until it has answered; a limit of the provider is another wait."""
    task = TaskBegan()

    assert told_of(busy(2), task, busy(3), task, busy(4), WaitEnded(), busy(2)) == [2, 2]
    assert told_of(busy(2), task, busy(3, limit=True), WaitEnded(), busy(2)) == [2, 3, 2]


def reads(read: BatchRead, name: str, **fields: Any) -> BatchRead:
    """The same, after an event."""
    read.apply(event_of(1, name, fields))
    return read


def hears(read: BatchRead, news: PartNews) -> None:
    """Take in news of a part."""
    content = {"payloads": [pack(news).payload]}
    reads(read, "WORKFLOW_EXECUTION_SIGNALED", signal_name=BATCH_NEWS, input=content)


@pytest.mark.accepts("S50")
def test_batch_that_lets_a_task_pass_is_known() -> None:
    """It is not compared with its history then; other timers do not count."""
    read = BatchRead()
    started, fired = "TIMER_STARTED", "TIMER_FIRED"

    passing = [
        reads(read, started, timer_id="1", start_to_fire_timeout=timedelta(minutes=10)).passing,
        reads(read, started, timer_id="2", start_to_fire_timeout=ONE_TASK).passing,
        reads(read, fired, timer_id="1").passing,
        reads(read, fired, timer_id="2").passing,
    ]

    assert passing == ["", "2", "2", ""]


@pytest.mark.accepts("S50")
def test_part_that_only_asks_for_its_batch_tells_nothing() -> None:
    """Unless it was reset, which its batch learns of by them."""
    read = BatchRead()

    hears(read, PartNews(part=1, run=FIRST))
    assert read.news == {}
    hears(read, PartNews(part=1, run=FIRST, number=1, running=2))
    assert read.news[1].running == 2
    hears(read, PartNews(part=1, run=FIRST))
    assert read.news[1].running == 2
    hears(read, PartNews(part=1, run=SECOND))
    assert read.news[1].run == SECOND
