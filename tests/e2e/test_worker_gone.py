"""The only worker is killed and not replaced: completed work is read from history, and the turn can
be ended.
"""

import asyncio

import pytest

from perdure import Outcome, errors
from perdure.clients import Turn
from perdure.errors import PerdureError
from perdure.values.messages import ToolMessage

from ..conftest import check_history
from ..support.e2e.stories import GONE_S, UNKNOWN, Story, Tell, asks, kill, says, use


async def end_of(story: Story, turn: Turn) -> PerdureError:
    """The end of a turn, as a new client reads it."""
    later = (await story.connect()).turn(turn.id)
    with pytest.raises(PerdureError) as caught:
        async with asyncio.timeout(GONE_S):
            await later.result()
    return caught.value


def told(error: PerdureError) -> tuple[Outcome, int, list[str], tuple[str, ...]]:
    """Outcome, steps, the last tool results, and what was still running, according to the
    report.
    """
    assert error.report is not None
    last = error.report.messages[-1]
    assert isinstance(last, ToolMessage)
    return (
        error.report.outcome,
        len(error.report.steps),
        [result.content for result in last.results],
        error.report.unstopped,
    )


@pytest.mark.slow
@pytest.mark.accepts("L10", "U12")
async def test_turn_that_nobody_works_on_can_be_terminated_or_cancelled_and_keeps_what_it_did(
    tell: Tell,
) -> None:
    """After a kill in tool 2 of 2, a terminated turn ends at once and its report needs no worker; a
    cancel request stays until the next worker.
    """
    story = await tell(asks(use("charge", "one"), use("charge", "two", takes_s=60)), says("never"))
    worker = await story.worker()
    ending, stopping = [await story.start(task) for task in ("end", "stop")]
    await story.calls_begun(6)
    await kill(worker)
    await story.temporal.get_workflow_handle(ending.id).terminate(reason="out of patience")
    heard = await stopping.cancel("enough")
    terminated = await end_of(story, ending)
    await story.worker()
    cancelled = await end_of(story, stopping)

    assert (type(terminated), type(cancelled), heard) == (
        errors.TurnTerminatedError,
        errors.TurnCancelledError,
        True,
    )
    assert ("out of patience" in terminated.message, "enough" in cancelled.message) == (True, True)
    assert told(terminated) == (Outcome.TERMINATED, 0, ["one by attempt 1"], ("step-1.call-2",))
    assert told(cancelled) == (Outcome.CANCELLED, 1, ["one by attempt 1", f"charge: {UNKNOWN}"], ())
    assert (sorted(story.ran()), story.requests()) == (
        [("one", 1), ("one", 1), ("two", 1), ("two", 1)],
        {1: 2},
    )
    for turn in (ending, stopping):
        await check_history(story.temporal, turn.id, await turn.first_run())
