"""Workers that are killed with `kill -9` while and after they run local tools."""

import asyncio
import random
import time

import pytest

from perdure.turn.keys import ModelKey

from ..conftest import eventually
from ..support.e2e.killing import SOON_S
from ..support.e2e.local_app import LOCATION
from ..support.e2e.random_kills import CALLS, REPLIES, STEPS, kill_at_random
from ..support.e2e.stories import GONE_S, LOST, Story, Tell, asks, results, says, use
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor

__all__ = ["has_supervisor"]

LATE_S = 40.0
"""From a kill in a local call to the next model call; measured are 22 s without a supervisor: the
workflow task's 20 s, and the start of a worker.
"""

pytestmark = pytest.mark.slow


async def runs(story: Story, what: str, times: int) -> None:
    """Wait until a call has begun so often."""
    await eventually(
        lambda: len([done for done, _ in story.ran() if done == what]) >= times,
        f"{what} begins {times} times",
        within_s=GONE_S,
    )


@pytest.mark.accepts("T42", "Y1")
async def test_call_of_a_worker_killed_in_it_is_made_as_an_activity(tell: Tell) -> None:
    """Tool 1 does not run again, the model is not called again, and the local call has the same
    key.
    """
    story = await tell(asks(use("charge", "one"), use("fetch", "two", first_s=60)), says("done"))
    story.app = LOCATION
    worker = await story.worker()
    turn = await story.start()
    await runs(story, "two", 1)
    killed_at = time.time()
    await story.replace(worker)

    report = await story.report(turn)

    assert story.log()[-1].at - killed_at < LATE_S
    assert results(report) == ["one by attempt 1", "two by attempt 1"]
    assert story.ran() == [("one", 1), ("two", 1), ("two", 1)]
    assert len(story.keys("two")) == 1
    assert story.requests() == {1: 1, 2: 1}
    assert await story.attempts(turn) == {
        "step-1": 1,
        "step-1.call-1": 1,
        "step-1.call-2": 1,
        "step-2": 1,
    }


@pytest.mark.accepts("T42", "T35")
async def test_activity_that_follows_a_local_call_is_repeated_like_any_other(tell: Tell) -> None:
    """Killed after the local run was given up: another worker goes on within seconds."""
    story = await tell(asks(use("fetch", "one", first_s=60, slow_runs=2)), says("done"))
    story.app = LOCATION
    worker = await story.worker()
    turn = await story.start()
    await runs(story, "one", 2)
    killed_at = time.time()
    await story.replace(worker)

    report = await story.report(turn)

    assert story.log()[-1].at - killed_at < SOON_S
    assert results(report) == ["one by attempt 2"]
    assert story.ran() == [("one", 1), ("one", 1), ("one", 2)]
    assert len(story.keys("one")) == 1
    assert story.requests() == {1: 1, 2: 1}


@pytest.mark.accepts("T41", "T42", "Y2")
async def test_local_result_that_is_recorded_is_not_made_again(tell: Tell) -> None:
    """Killed in the model call after it: the model is called again with the same result."""
    story = await tell(asks(use("fetch", "one")), says("done", delay_s=1.5))
    story.app = LOCATION
    worker = await story.worker()
    turn = await story.start()
    await story.asked(2)
    await story.replace(worker)

    report = await story.report(turn)

    assert (report.output, story.ran()) == ("done #3", [("one", 1)])
    assert story.requests() == {1: 1, 2: 2}


@pytest.mark.accepts("T2", "T42")
async def test_local_tool_that_kills_its_worker_every_time_is_given_up(tell: Tell) -> None:
    """It runs locally once, and then as an activity with five attempts, all lost."""
    story = await tell(asks(use("die", "one")), says("it cannot be done"))
    story.app = LOCATION
    turn = await story.start()
    async with story.kept_running(), asyncio.timeout(3 * GONE_S):
        await turn.result()

    report = await story.report(turn)

    assert story.ran() == [("one", 1), *(("one", attempt) for attempt in range(1, 6))]
    assert len(story.keys("one")) == 1
    assert results(report) == [f"die: {LOST}"]
    assert (report.output, story.requests()) == ("it cannot be done #2", {1: 1, 2: 1})


@pytest.mark.accepts("T42", "Y2")
@pytest.mark.parametrize("seed", range(2))
async def test_kills_at_random_moments_repeat_no_recorded_local_call(tell: Tell, seed: int) -> None:
    """Six steps with local and other calls: the turn completes, and every request is in history."""
    story = await tell(*REPLIES)
    story.app = LOCATION
    turn = await story.start()
    await kill_at_random(story, random.Random(seed))
    async with asyncio.timeout(3 * GONE_S):
        await turn.result()

    report = await story.report(turn)

    attempts = await story.attempts(turn)
    assert len(report.steps) == STEPS
    for step, requests in story.requests().items():
        assert 1 <= requests <= attempts[str(ModelKey(step))]
    for call, content in zip(CALLS, results(report), strict=True):
        what = call["arguments"]["what"]
        assert len(story.keys(what)) <= 1
        if call["name"] == "fetch":
            assert content.startswith(f"{what} by attempt")
        else:
            assert len([done for done, _ in story.ran() if done == what]) <= 1
