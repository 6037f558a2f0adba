"""Supervised workers that die while the Temporal server is away, or that never reach it."""

import asyncio
import os
import signal
import sys

import pytest

from ..conftest import eventually
from ..support.e2e.outages import Outage
from ..support.e2e.restarted_server import server
from ..support.e2e.stories import GONE_S, Story, Tell, kill, says, supervised
from ..support.e2e.supervised import TWO, drained, has_supervisor, ready

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the children are found in /proc")

__all__ = ["has_supervisor", "server"]

GAVE_UP = "exited with code 20; it is started again"


async def given_up(story: Story, times: int) -> None:
    """Wait until children have not found the server this many times."""
    await eventually(
        lambda: story.said().count(GAVE_UP) >= times, "children give up", within_s=GONE_S
    )


@pytest.mark.slow
@pytest.mark.accepts("Y86")
async def test_process_that_dies_while_the_server_is_away_serves_when_it_is_back(
    tell: Tell, server: Outage
) -> None:
    """The other process is not drained, and serves again too."""
    story = await tell(says("done"), address=server.address)
    worker = await story.worker(**TWO)
    await ready(story)
    first, second = supervised(worker.pid)
    await server.kill()
    os.kill(first, signal.SIGKILL)
    await given_up(story, 4)
    during = supervised(worker.pid)
    await server.restart()
    await ready(story, 3)

    report = await story.report(await story.start())

    assert report.output == "done #1"
    assert second in during
    assert len(supervised(worker.pid)) == 2
    assert second in supervised(worker.pid)
    assert "draining" not in story.said()
    await drained(worker)


@pytest.mark.slow
@pytest.mark.accepts("Y87")
async def test_supervisor_can_be_stopped_while_the_server_is_away(
    tell: Tell, server: Outage
) -> None:
    """Its only process has died and cannot come back."""
    story = await tell(says("never"), address=server.address)
    worker = await story.worker()
    await ready(story, 1)
    await server.kill()
    await kill(worker)
    await given_up(story, 2)

    await drained(worker)


@pytest.mark.accepts("Y88")
async def test_address_where_no_server_has_answered_yet_ends_the_supervisor(
    tell: Tell, server: Outage
) -> None:
    """It may be a mistake in the set-up, so it is told at once."""
    story = await tell(says("never"), address=server.address)
    await server.kill()

    worker = await story.worker(**TWO)

    assert await asyncio.wait_for(worker.wait(), 60) == 20
    assert f"no Temporal server answers at {server.address}" in story.said()
    assert "started again" not in story.said()
