"""Workers that are killed at random moments.

`PERDURE_CRASH_SEEDS` is the number of tests, `PERDURE_CRASH_FIRST_SEED` the first seed.
"""

import os
import random

import pytest

from perdure.turn.keys import ModelKey, ToolKey

from ..support.e2e.random_kills import CALLS, REPLIES, STEPS, kill_at_random
from ..support.e2e.stories import UNKNOWN, Story, Tell, results
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor

__all__ = ["has_supervisor"]

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("PERDURE_CRASH_SEEDS", "2"))
FIRST = int(os.environ.get("PERDURE_CRASH_FIRST_SEED", "0"))


@pytest.mark.accepts("Y2", "T14")
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
async def test_kills_at_random_moments_repeat_nothing_that_is_recorded(
    tell: Tell, seed: int
) -> None:
    """Six steps: the turn completes, every request is in history, tools run only as history says,
    and none that may not be repeated runs twice.
    """
    story = await tell(*REPLIES)
    turn = await story.start()
    await kill_at_random(story, random.Random(seed))

    report = await story.report(turn)

    assert len(report.steps) == STEPS
    attempts = await story.attempts(turn)
    assert_rules_kept(story, attempts)
    ran = {entry.what for entry in story.journal()}
    for step, content in enumerate(results(report), 1):
        call = CALLS[step - 1]
        assert content.startswith(
            (f"{call['arguments']['what']} by attempt", f"{call['name']}: {UNKNOWN}")
        )
        assert call["arguments"]["what"] in ran or content.endswith(UNKNOWN)


def assert_rules_kept(story: Story, attempts: dict[str, int]) -> None:
    """Compare the provider's requests and the journal with the attempts in history: never more than
    those.
    """
    for step, requests in story.requests().items():
        assert 1 <= requests <= attempts[str(ModelKey(step))]
    for step, call in enumerate(CALLS, 1):
        what = call["arguments"]["what"]
        ran = [attempt for done, attempt in story.ran() if done == what]
        assert ran == sorted(set(ran))
        assert all(attempt <= attempts[str(ToolKey(step, 1))] for attempt in ran)
        assert len(story.keys(what)) <= 1
        assert len(ran) <= 1 or call["name"] == "fetch"
