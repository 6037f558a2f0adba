"""Workers that are killed with `kill -9`, at every relevant point of a turn."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from perdure import ToolOutcome
from perdure.clients.reading.recorded import state_of
from perdure.testing import skip_time
from perdure.turn import unsettled
from perdure.turn.facts import ToolReturned, WaitBegan, WaitEnded

from ..support.e2e.killing import SOON_S
from ..support.e2e.stories import (
    GONE_S,
    UNKNOWN,
    Tell,
    asks,
    kill,
    kill_all,
    recorded,
    results,
    says,
    use,
)
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor
from ..support.long_turns import events_of as all_of
from ..support.spending import until

DELAY = timedelta(seconds=12)
"""Longer than it takes to kill a worker and to start another one."""


__all__ = ["has_supervisor"]


@pytest.mark.accepts("Y1")
async def test_recorded_tool_and_model_call_are_not_repeated_after_a_kill(tell: Tell) -> None:
    """Killed in tool 2 of 2: tool 1 does not run again, the model is not called again, and the turn
    continues within seconds.
    """
    story = await tell(asks(use("charge", "one"), use("fetch", "two", first_s=60)), says("done"))
    worker = await story.worker()
    turn = await story.start()
    await story.begun("two")
    killed_at = time.time()
    await story.replace(worker)

    report = await story.report(turn)

    assert story.log()[-1].at - killed_at < SOON_S
    assert report.output == "done #2"
    assert results(report) == ["one by attempt 1", "two by attempt 2"]
    assert story.ran() == [("one", 1), ("two", 1), ("two", 2)]
    assert story.requests() == {1: 1, 2: 1}
    assert await story.attempts(turn) == {
        "step-1": 1,
        "step-1.call-1": 1,
        "step-1.call-2": 2,
        "step-2": 1,
    }


@pytest.mark.slow
@pytest.mark.accepts("W16", "W17")
async def test_wait_of_a_killed_worker_goes_on_in_another(tell: Tell) -> None:
    """Killed while one call waits and another runs: that one is made again during the wait, and the
    wait ends once, at its time.
    """
    waits: Any = {"name": "wait", "arguments": {"seconds": 3600, "note": "the build"}}
    story = await tell(asks(waits, use("fetch", "one", first_s=60)), says("done"))
    story.app = "tests.support.e2e.app:make_waiting"
    worker = await story.worker()
    turn = await story.start()
    began = await until(turn, WaitBegan)
    await story.begun("one")
    await story.replace(worker)
    await until(turn, ToolReturned)
    await skip_time(story.client, turn, timedelta(minutes=61))

    report = await story.report(turn)
    events = await all_of(turn)
    ends = [event for event in events if isinstance(event.fact, WaitEnded)]

    assert results(report)[0].startswith("Waited 1 h")
    assert results(report)[1] == "one by attempt 2"
    assert story.ran() == [("one", 1), ("one", 2)]
    assert story.requests() == {1: 1, 2: 1}
    [end] = ends
    assert timedelta(hours=1) <= end.at - began.at < timedelta(minutes=70)


@pytest.mark.accepts("T52")
async def test_call_of_a_killed_worker_is_looked_up_and_not_made_again(tell: Tell) -> None:
    """Killed after the service acted; the model's second call has the same effect."""
    bought = use("buy", "one", first_s=60)
    story = await tell(asks(bought), asks(use("buy", "one")), says("done"))
    worker = await story.worker()
    turn = await story.start()
    await story.begun("one")
    await story.replace(worker)

    report = await story.report(turn)

    first, second = report.steps[0].results[0], report.steps[1].results[0]
    assert first.outcome is ToolOutcome.VERIFIED
    assert first.content.startswith("bought one\n[The answer of this call was lost.")
    assert second.content.startswith("Done before, in step 1, and not again.")
    assert story.ran() == [("one", 1)]
    assert report.unsettled == ()


@pytest.mark.slow
@pytest.mark.accepts("T63")
async def test_effect_is_taken_back_once_although_the_worker_is_killed(tell: Tell) -> None:
    """Killed after the service has taken it back: that is looked up, and not done again."""
    story = await tell(asks(use("buy", "one")), says("done"))
    worker = await story.worker()
    turn = await story.start(labels={"takes_s": "60"})
    await story.report(turn)
    undo = await turn.undo("call_0_0", by="anna")
    await story.begun("back one")
    await story.replace(worker)

    report = await undo.result()
    again = await turn.undo("call_0_0")

    assert report.steps[0].results[0].outcome is ToolOutcome.VERIFIED
    assert [record.status for record in await turn.effects()] == ["undone"]
    assert again.id == undo.id
    assert story.ran() == [("one", 1), ("back one", 1)]
    assert sum(story.requests().values()) == 2


@pytest.mark.slow
@pytest.mark.accepts("T58")
async def test_person_settles_a_call_while_there_is_no_worker(tell: Tell) -> None:
    """Killed in the call, and again before the next one; the word is there when a worker is."""
    story = await tell(
        asks(use("post", "one", first_s=60)),
        asks(use("fetch", "two", first_s=60)),
        asks(use("post", "one")),
        says("done"),
    )
    worker = await story.worker()
    turn = await story.start()
    await story.begun("one")
    worker = await story.replace(worker)
    await story.begun("two")
    await kill_all(worker)
    [lost] = unsettled.made(await state_of(story.temporal, turn.id, await turn.first_run()))
    await turn.settle(lost, "done", "posted as 7", by="anna")
    await story.worker()

    report = await story.report(turn)

    first, second = report.steps[0].results[0], report.steps[2].results[0]
    assert first.outcome is ToolOutcome.UNKNOWN
    assert second.content.endswith("and not again. The result was: posted as 7")
    assert story.ran() == [("one", 1), ("two", 1), ("two", 2)]
    assert report.unsettled == ()


@pytest.mark.slow
@pytest.mark.accepts("Y2")
async def test_worker_killed_before_it_had_work_costs_nothing(tell: Tell) -> None:
    """Killed while idle: the next turn runs on another worker, and everything happens once."""
    story = await tell(asks(use("charge", "one")), says("done"))
    idle = await story.worker()
    await (await story.start("warm up")).result()
    await kill(idle)
    turn = await story.start()
    await story.following(idle)

    report = await story.report(turn)

    assert results(report) == ["one by attempt 1"]
    assert len(story.journal()) == 2
    assert story.requests() == {1: 2, 2: 2}
    assert await story.attempts(turn) == {"step-1": 1, "step-1.call-1": 1, "step-2": 1}


@pytest.mark.slow
@pytest.mark.accepts("E92")
async def test_delay_survives_the_kill_of_its_worker(tell: Tell) -> None:
    """The next worker lets the turn begin at the same moment, once."""
    story = await tell(asks(use("charge", "one")), says("done"))
    worker = await story.worker()
    turn = await story.start(delay=DELAY)
    began = await until(turn, WaitBegan)
    await story.replace(worker)

    report = await story.report(turn)
    ended = await until(turn, WaitEnded)

    assert isinstance(began.fact, WaitBegan)
    assert began.fact.until is not None
    assert timedelta() <= ended.at - began.fact.until < timedelta(seconds=SOON_S)
    assert (report.output, story.requests(), story.ran()) == ("done #2", {1: 1, 2: 1}, [("one", 1)])
    assert [event.fact for event in await all_of(turn) if isinstance(event.fact, WaitBegan)] == [
        began.fact
    ]


@pytest.mark.slow
@pytest.mark.accepts("Y2")
async def test_model_call_cut_off_by_a_kill_is_tried_again_and_both_attempts_are_seen(
    tell: Tell,
) -> None:
    """A kill during the call causes two requests and two attempts; only the second answer
    counts.
    """
    story = await tell(asks(use("charge", "one"), delay_s=1.5), says("done"))
    worker = await story.worker()
    turn = await story.start()
    await story.asked(1)
    await story.replace(worker)

    report = await story.report(turn)

    assert report.steps[0].message.text == "working #2"
    assert story.requests() == {1: 2, 2: 1}
    assert report.model_calls == 3
    assert story.ran() == [("one", 1)]
    assert await story.attempts(turn) == {"step-1": 2, "step-1.call-1": 1, "step-2": 1}


@pytest.mark.slow
@pytest.mark.accepts("Y2")
async def test_recorded_answer_is_not_paid_again_when_its_tool_had_not_begun(tell: Tell) -> None:
    """Killed between the answer and the tool, which waited for a blocking tool of another turn: one
    request, and the tool runs.
    """
    story = await tell(asks(use("fetch", "one")), says("done"))
    worker = await story.worker()
    other = await story.start("jam", labels={"jam": "yes"})
    await story.begun("one")
    turn = await story.start()
    await recorded(turn, "step-1")
    before = story.ran()
    await story.replace(worker)

    report, _ = await asyncio.gather(story.report(turn), other.result())

    assert before == [("one", 1)]
    assert len(story.keys("one")) == 2
    attempts = await story.attempts(turn)
    assert (attempts["step-1"], attempts["step-2"], story.requests()) == (1, 1, {1: 2, 2: 2})
    assert results(report) == [f"one by attempt {attempts['step-1.call-1']}"]


@pytest.mark.slow
@pytest.mark.accepts("T14")
async def test_idempotent_tool_runs_again_under_the_same_key_after_a_kill(tell: Tell) -> None:
    """Killed in the tool: attempt 2 has the key of attempt 1."""
    story = await tell(asks(use("fetch", "one", first_s=60)), says("done"))
    worker = await story.worker()
    turn = await story.start()
    await story.begun("one")
    await story.replace(worker)

    report = await story.report(turn)

    assert story.ran() == [("one", 1), ("one", 2)]
    assert len(story.keys("one")) == 1
    assert results(report) == ["one by attempt 2"]
    assert story.requests() == {1: 1, 2: 1}


@pytest.mark.slow
@pytest.mark.accepts("T14")
async def test_other_tool_is_not_run_again_after_a_kill_and_the_model_is_told(tell: Tell) -> None:
    """Killed in a tool that may not be repeated: it ran once, its result says that the outcome is
    unknown, and the model continues.
    """
    story = await tell(
        asks(use("charge", "one", takes_s=60), use("charge", "two")), says("I will look")
    )
    worker = await story.worker()
    turn = await story.start()
    await story.begun("one")
    await story.replace(worker)

    report = await story.report(turn)

    assert story.ran() == [("one", 1), ("two", 1)]
    assert results(report) == [f"charge: {UNKNOWN}", "two by attempt 1"]
    assert [result.is_error for result in report.steps[0].results] == [True, False]
    assert story.requests() == {1: 1, 2: 1}


@pytest.mark.slow
@pytest.mark.accepts("Y2", "T14")
async def test_tool_whose_result_is_recorded_does_not_run_again(tell: Tell) -> None:
    """Killed in the model call after it: the call is repeated with the same result."""
    story = await tell(asks(use("charge", "one")), says("done", delay_s=1.5))
    worker = await story.worker()
    turn = await story.start()
    await story.asked(2)
    await story.replace(worker)

    report = await story.report(turn)

    assert (report.output, story.ran()) == ("done #3", [("one", 1)])
    assert story.requests() == {1: 1, 2: 2}
    assert await story.attempts(turn) == {"step-1": 1, "step-1.call-1": 1, "step-2": 2}


@pytest.mark.slow
@pytest.mark.accepts("T2")
async def test_tool_that_kills_its_worker_every_time_is_given_up_after_five_attempts(
    tell: Tell,
) -> None:
    """The model gets an error result, and the turn completes on the sixth worker."""
    story = await tell(asks(use("die", "one")), says("it cannot be done"))
    turn = await story.start()
    async with story.kept_running(), asyncio.timeout(3 * GONE_S):
        await turn.result()
    report = await story.report(turn)

    assert story.ran() == [("one", attempt) for attempt in range(1, 6)]
    assert len(story.keys("one")) == 1
    assert results(report) == [f"die: {UNKNOWN}"]
    assert (report.output, story.requests()) == ("it cannot be done #2", {1: 1, 2: 1})


@pytest.mark.slow
@pytest.mark.accepts("T2", "T14")
async def test_tool_that_kills_its_worker_and_may_not_be_repeated_ran_once(tell: Tell) -> None:
    """One attempt, then the result says that the outcome is unknown."""
    story = await tell(asks(use("die_once", "one")), says("it cannot be done"))
    async with story.kept_running():
        report = await story.report(await story.start())

    assert story.ran() == [("one", 1)]
    assert results(report) == [f"die_once: {UNKNOWN}"]
    assert story.requests() == {1: 1, 2: 1}


@pytest.mark.slow
@pytest.mark.accepts("T2")
async def test_tool_that_calls_sys_exit_is_an_error_result_and_its_worker_goes_on(
    tell: Tell,
) -> None:
    """One process runs the whole turn."""
    story = await tell(asks(use("leave", "one")), asks(use("fetch", "two")), says("done"))
    await story.worker()

    report = await story.report(await story.start())

    assert results(report) == ["leave failed: SystemExit: 3", "two by attempt 1"]
    assert len({entry.pid for entry in story.journal()}) == 1
