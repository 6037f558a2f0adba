"""Workers that receive SIGTERM during work, when no other worker can take over."""

import asyncio
import signal
import time

import pytest

from perdure.testing.stub_provider import StubCall

from ..support.e2e.stories import UNKNOWN, Process, Tell, asks, results, says, use

ENDS_S = 45.0
"""How long a worker may take to end once its work is done or its grace is over."""


async def terminate(worker: Process) -> float:
    """Send SIGTERM, and return the seconds until the worker exited with code 0."""
    began = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(worker.wait(), ENDS_S) == 0
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.accepts("Y4")
async def test_model_call_in_flight_at_sigterm_is_finished_and_recorded(tell: Tell) -> None:
    """The only worker waits for the answer, then exits; the next worker completes the turn and
    repeats no call.
    """
    story = await tell(asks(use("charge", "one"), delay_s=3), says("done"))
    worker = await story.worker(PERDURE_GRACE_S="60")
    turn = await story.start()
    await story.asked(1)
    took_s = await terminate(worker)
    seen_at_the_end = (story.ran(), await story.attempts(turn))
    await story.worker()

    report = await story.report(turn)

    assert took_s > 1
    assert seen_at_the_end == ([], {"step-1": 1})
    assert (report.output, results(report)) == ("done #2", ["one by attempt 1"])
    assert story.requests() == {1: 1, 2: 1}
    assert await story.attempts(turn) == {"step-1": 1, "step-1.call-1": 1, "step-2": 1}


@pytest.mark.accepts("Y4", "T14")
async def test_tool_in_flight_at_sigterm_is_finished_and_recorded(tell: Tell) -> None:
    """Even one that may not be repeated: its result is recorded, and no message says that it is
    unknown.
    """
    story = await tell(asks(use("charge", "one", takes_s=3)), says("done"))
    worker = await story.worker(PERDURE_GRACE_S="60")
    turn = await story.start()
    await story.begun("one")
    took_s = await terminate(worker)
    await story.worker()

    report = await story.report(turn)

    assert took_s > 1
    assert results(report) == ["one by attempt 1"]
    assert (story.ran(), story.requests()) == ([("one", 1)], {1: 1, 2: 1})


@pytest.mark.slow
@pytest.mark.accepts("Y4")
async def test_model_call_longer_than_the_grace_is_lost_and_tried_again_by_the_next_worker(
    tell: Tell,
) -> None:
    """The worker gives the call up and reports that, so the retry does not wait for a heartbeat
    timeout.
    """
    story = await tell(asks(use("charge", "one"), delay_s=6), says("done"))
    worker = await story.worker(PERDURE_GRACE_S="1")
    turn = await story.start()
    await story.asked(1)
    await terminate(worker)
    await story.worker()

    report = await story.report(turn)

    assert report.steps[0].message.text == "working #2"
    assert (story.ran(), story.requests()) == ([("one", 1)], {1: 2, 2: 1})
    assert await story.attempts(turn) == {"step-1": 2, "step-1.call-1": 1, "step-2": 1}


@pytest.mark.slow
@pytest.mark.accepts("Y4", "T14")
async def test_tools_longer_than_the_grace_are_repeated_only_if_they_may_be(tell: Tell) -> None:
    """Two drained workers: the first one's tool runs again, the second one's does not, and its
    result says so.
    """
    story = await tell(
        asks(use("fetch", "one", first_s=60), use("charge", "two", takes_s=60)), says("done")
    )
    worker = await story.worker(PERDURE_GRACE_S="1")
    turn = await story.start()
    await story.begun("one")
    await terminate(worker)
    worker = await story.worker(PERDURE_GRACE_S="1")
    await story.begun("two")
    await terminate(worker)
    await story.worker()

    report = await story.report(turn)

    assert story.ran() == [("one", 1), ("one", 2), ("two", 1)]
    assert len(story.keys("one")) == 1
    assert results(report) == ["one by attempt 2", f"charge: {UNKNOWN}"]
    assert story.requests() == {1: 1, 2: 1}


@pytest.mark.slow
@pytest.mark.accepts("Y4", "T14")
@pytest.mark.parametrize(
    ("call", "told", "runs"),
    [
        pytest.param(
            use("fetch", "one", first_s=60), "one by attempt 2", [1, 2], id="may be repeated"
        ),
        pytest.param(
            use("charge", "one", takes_s=60), f"charge: {UNKNOWN}", [1], id="may not be repeated"
        ),
    ],
)
async def test_second_sigterm_ends_a_drain_at_once(
    tell: Tell, call: StubCall, told: str, runs: list[int]
) -> None:
    """A worker that would wait a minute for its tool exits within seconds; the tool runs again
    elsewhere, or its result says that the outcome is unknown.
    """
    story = await tell(asks(call), says("done"))
    worker = await story.worker(PERDURE_GRACE_S="60")
    turn = await story.start()
    await story.begun("one")
    worker.send_signal(signal.SIGTERM)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.wait(), 1)
    worker.send_signal(signal.SIGTERM)
    code = await asyncio.wait_for(worker.wait(), ENDS_S)
    await story.worker()

    report = await story.report(turn)

    assert code == 1
    assert results(report) == [told]
    assert (story.ran(), story.requests()) == ([("one", attempt) for attempt in runs], {1: 1, 2: 1})
