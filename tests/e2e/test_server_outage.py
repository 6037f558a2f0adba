"""The Temporal server is killed and restarted on its database file.

`PERDURE_OUTAGE_S` is the number of seconds in between.
"""

import asyncio
import os
from datetime import UTC, datetime, timedelta

import pytest

from perdure import AgentReport
from perdure.clients import Turn
from perdure.clients.schedules.definition import turn_id_of
from perdure.errors import TurnNotFoundError

from ..support.e2e.app import AGENT
from ..support.e2e.outages import Outage
from ..support.e2e.restarted_server import server
from ..support.e2e.stories import UNKNOWN, Story, Tell, asks, results, says, use
from ..support.scheduling import existing, status_when

__all__ = ["server"]

pytestmark = pytest.mark.slow

OUTAGE_S = float(os.environ.get("PERDURE_OUTAGE_S", "30"))
PAUSE_S = 0.3


async def follow(turn: Turn) -> tuple[list[str], AgentReport]:
    """Every event of a turn with its cursor, and its report: two watchers, attached all the
    time.
    """

    async def cursors() -> list[str]:
        return [event.cursor async for event in turn.events()]

    return await asyncio.gather(cursors(), turn.result())


@pytest.mark.accepts("Y3")
async def test_turns_and_attached_clients_go_on_after_the_server_was_away(
    tell: Tell, server: Outage
) -> None:
    """One turn is in a model call, one in a tool that ends during the outage, one in a tool that
    outlasts it. No event is lost or repeated.
    """
    story = await tell(
        asks(use("charge", "one")),
        *(asks(use("fetch", f"fetch {n}"), delay_s=PAUSE_S) for n in range(2, 6)),
        says("done"),
        address=server.address,
    )
    await story.worker()
    turns = [
        await story.start(task, labels={"takes_s": str(seconds)})
        for task, seconds in (("a", 0), ("b", OUTAGE_S / 2), ("c", OUTAGE_S + 2))
    ]
    async with asyncio.TaskGroup() as following:
        followers = [following.create_task(follow(turn)) for turn in turns]
        await story.asked(5)
        await server.happen(OUTAGE_S)
        reports = [await story.report(turn) for turn in turns]
    another = await story.connect()

    for turn, report, follower in zip(turns, reports, followers, strict=True):
        cursors, result = follower.result()
        assert result == report
        assert cursors == [event.cursor async for event in another.turn(turn.id).events()]
        assert_told_what_happened(report)
    assert_nothing_unseen(story, [await story.attempts(turn) for turn in turns])


def assert_told_what_happened(report: AgentReport) -> None:
    """A result, or an unknown outcome: a result never says that a tool did not run although
    it did.
    """
    first, *others = results(report)
    assert first in ("one by attempt 1", f"charge: {UNKNOWN}")
    assert [content.partition(" by attempt")[0] for content in others] == [
        f"fetch {n}" for n in range(2, 6)
    ]


def assert_nothing_unseen(story: Story, attempts: list[dict[str, int]]) -> None:
    """The provider got no more requests than history has, and nothing ran twice that may not."""
    for step, requests in story.requests().items():
        assert len(attempts) <= requests <= sum(turn[f"step-{step}"] for turn in attempts)
    assert [attempt for what, attempt in story.ran() if what == "one"] == [1] * len(attempts)
    assert len(story.keys("one")) == len(attempts)


@pytest.mark.accepts("E73")
async def test_time_that_the_server_missed_is_made_up_for_unless_it_is_too_late(
    tell: Tell, server: Outage
) -> None:
    """One schedule catches up for an hour, the other for ten seconds."""
    story = await tell(says("done"), address=server.address)
    await story.worker()
    patient, strict = [
        await story.client.create_schedule(
            f"away-{minutes}", AGENT, "go", cron="* * * * *", timezone="UTC", catch_up=catch_up
        )
        for minutes, catch_up in ((60, timedelta(hours=1)), (0, timedelta(seconds=10)))
    ]
    due = (await patient.status()).next[0]
    # the outage begins just before this time
    await asyncio.sleep((due - datetime.now(UTC) - timedelta(seconds=2)).total_seconds())
    await server.happen(OUTAGE_S)
    late = await existing(story.client, turn_id_of(patient.id, due))
    report = await late.result()
    status = await status_when(strict, "missed", 1)
    [turn] = [one for one in (await patient.status()).last if one.id == late.id]
    with pytest.raises(TurnNotFoundError):
        await story.client.turn(turn_id_of(strict.id, due)).status()

    assert f"Scheduled for {due:%A}, {due:%Y-%m-%d %H:%M} UTC" in report.messages[0].text  # type: ignore[union-attr]
    assert turn.at == due
    assert turn.started_at - due > timedelta(seconds=10)
    assert status.next[0] > due
