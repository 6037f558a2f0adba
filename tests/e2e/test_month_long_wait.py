"""A turn that waits for a month, while its agent is deployed again."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import Any

import pytest

from perdure.events import WaitBegan, WaitEnded
from perdure.testing import skip_time

from ..support.e2e.releases import hands
from ..support.e2e.stories import Tell, asks, results, says
from ..support.spending import until, until_idle

MONTH = timedelta(days=30)


def waits(note: str) -> Any:
    """A call that waits for a month."""
    return {"name": "wait", "arguments": {"seconds": MONTH.total_seconds(), "note": note}}


@pytest.mark.slow
@pytest.mark.accepts("W63")
async def test_turn_waits_for_a_month_over_a_deploy(tell: Tell) -> None:
    """The worker stops, and one whose agent may wait for an hour takes over: the wait ends once, at
    its time, and the turn waits for another month, as its own definition says.
    """
    story = await tell(asks(waits("the first")), asks(waits("the second")), says("done"))
    story.app = "tests.support.storms.waiting_app:make_release"
    first = await story.worker(E2E_RELEASE="first")
    turn = await story.start()
    began = await until(turn, WaitBegan)
    await until_idle(story.temporal.get_workflow_handle(turn.id))
    first.send_signal(signal.SIGTERM)
    await first.wait()
    await story.worker(E2E_RELEASE="second")
    await skip_time(story.client, turn, MONTH + timedelta(minutes=1))
    await story.asked(2)
    later = await story.start("another")
    refused = await story.report(later)
    await until(turn, WaitBegan, 2)
    await skip_time(story.client, turn, MONTH + timedelta(minutes=1))
    report = await story.report(turn)
    ends = [event async for event in turn.events() if isinstance(event.fact, WaitEnded)]
    processes = await hands(story, turn)

    assert [result[:13] for result in results(report)] == ["Waited 30 d, "] * 2
    assert len(ends) == 2
    assert MONTH <= ends[0].at - began.at < MONTH + timedelta(hours=1)
    assert len(processes.decided) == 2
    assert story.requests() == {1: 2, 2: 2, 3: 2}
    offered = [request["tools"] for request in story.stub.requests]
    assert "The longest wait is 40 d" in str(offered[0])
    assert "The longest wait is 1 h" in str(offered[2])
    assert all("the longest wait is 1 h" in result for result in results(refused))
