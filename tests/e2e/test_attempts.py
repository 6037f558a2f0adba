"""Two attempts of one step in one process, a reset, and an id that is used again: no request ever
contains a transcript that differs from history.
"""

import asyncio
import os
import secrets
import signal
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.worker import Replayer

from perdure import errors
from perdure.clients import Turn
from perdure.turn.facts import CallFailed, ToolLost
from perdure.workflows import AgentTurn

from ..support.e2e.stories import (
    GONE_S,
    UNKNOWN,
    WITH_AND_WITHOUT,
    Improviser,
    Story,
    Tell,
    asks,
    recorded,
    results,
    says,
    supervised,
    use,
)

pytestmark = pytest.mark.slow

LATE_S = 2.0
"""How long a call takes that is still in flight when its worker freezes; it is over when the worker
goes on.
"""


@pytest.mark.accepts("Y13")
async def test_late_answer_of_a_lost_attempt_reaches_no_request(tell: Tell) -> None:
    """The worker froze in a model call and continues after Temporal has given the call up: of two
    attempts with two answers, only the recorded one counts.
    """
    story = await tell(
        asks(use("fetch", "one")),
        asks(use("fetch", "two"), delay_s=LATE_S),
        asks(use("fetch", "three")),
        says("done"),
    )
    worker = await story.worker()
    turn = await story.start()
    await story.asked(2)
    worker.send_signal(signal.SIGSTOP)
    lost = await recorded(turn, "step-2")
    worker.send_signal(signal.SIGCONT)

    report = await story.report(turn)

    assert isinstance(lost.fact, CallFailed)
    assert lost.fact.lost
    assert [step.message.text for step in report.steps] == [
        "working #1",
        "working #3",
        "working #4",
        "done #5",
    ]
    assert story.requests() == {1: 1, 2: 2, 3: 1, 4: 1}
    assert len({entry.pid for entry in story.journal()}) == 1


@pytest.mark.accepts("Y85")
@pytest.mark.parametrize("under_supervisor", WITH_AND_WITHOUT)
async def test_worker_that_is_late_loses_no_call(
    perdure_server: str, tmp_path: Path, under_supervisor: bool
) -> None:
    """A process that does not run for 9 s within a model call is late, not dead: with the default
    tolerance its answer counts, and is not paid twice.
    """
    stub = Improviser((says("done", delay_s=10.0),), tmp_path / "requests.jsonl")
    async with Story(perdure_server, tmp_path, stub=stub, supervised=under_supervisor) as story:
        worker = await story.worker(PERDURE_HEARTBEAT_TOLERANCE_S="12")
        turn = await story.start()
        await story.asked(1)
        [process] = supervised(worker.pid) or [worker.pid]
        os.kill(process, signal.SIGSTOP)
        await asyncio.sleep(9.0)
        os.kill(process, signal.SIGCONT)

        report = await story.report(turn)
        attempts = await story.attempts(turn)

    assert report.output == "done #1"
    assert (story.requests(), attempts["step-1"]) == ({1: 1}, 1)


@pytest.mark.accepts("Y13", "T14", "T65")
async def test_late_result_of_a_lost_tool_reaches_no_request(tell: Tell) -> None:
    """The same with two tools: the repeatable one counts with its second attempt, the other one's
    outcome stays unknown.
    """
    story = await tell(
        asks(use("fetch", "one", first_s=LATE_S), use("charge", "two", takes_s=LATE_S)),
        asks(use("fetch", "three")),
        says("done"),
    )
    worker = await story.worker()
    turn = await story.start()
    for what, key in (("one", "step-1.call-1"), ("two", "step-1.call-2")):
        await story.begun(what)
        worker.send_signal(signal.SIGSTOP)
        lost = await recorded(turn, key)
        assert isinstance(lost.fact, ToolLost)
        loss = lost.fact.how
        worker.send_signal(signal.SIGCONT)

    report = await story.report(turn)

    assert results(report) == ["one by attempt 2", f"charge: {UNKNOWN}", "three by attempt 1"]
    assert [call.loss for call in report.unsettled] == [loss]
    assert loss.after in report.unsettled[0].reason
    assert story.ran() == [("one", 1), ("one", 2), ("two", 1), ("three", 1)]
    assert story.requests() == {1: 1, 2: 1, 3: 1}
    assert len({entry.pid for entry in story.journal()}) == 1


@pytest.mark.accepts("Y13")
async def test_reset_turn_repeats_only_what_comes_after_the_reset(tell: Tell) -> None:
    """Reset to the end of step 1 while step 3 is in flight: step 1 stays, step 2 is asked again,
    its tool has the same key, and the transcripts do not mix.
    """
    story = await tell(
        asks(use("charge", "one")),
        asks(use("fetch", "two")),
        asks(use("fetch", "three"), delay_s=LATE_S),
        says("done"),
    )
    await story.worker()
    turn = await story.start(id=f"reset-{secrets.token_hex(4)}")
    await story.asked(3)
    await reset(story, turn, await scheduler_of(story, turn, "step-2"))
    again = story.client.turn(turn.id)

    report = await again.result()

    with pytest.raises(errors.TurnTerminatedError):
        await turn.result()
    await story.check_requests()
    await Replayer(workflows=[AgentTurn]).replay_workflow(await story.client.history(again))
    assert (await again.first_run()) != await turn.first_run()
    assert [step.message.text for step in report.steps] == [
        "working #1",
        "working #4",
        "working #5",
        "done #6",
    ]
    assert story.requests() == {1: 1, 2: 2, 3: 2, 4: 1}
    assert story.ran() == [("one", 1), ("two", 1), ("two", 1), ("three", 1)]
    assert len(story.keys("two")) == 1


async def reset(story: Story, turn: Turn, workflow_task: int) -> None:
    """Reset to the workflow task that completed with this event: its decisions are made again."""
    await story.temporal.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=story.temporal.namespace,
            workflow_execution=WorkflowExecution(
                workflow_id=turn.id, run_id=await turn.first_run()
            ),
            reason="a story",
            workflow_task_finish_event_id=workflow_task,
            request_id=secrets.token_hex(8),
        )
    )


async def scheduler_of(story: Story, turn: Turn, activity: str) -> int:
    """The end of the workflow task that scheduled an activity."""
    events = (await story.client.history(turn)).events
    scheduled = [event.activity_task_scheduled_event_attributes for event in events]
    return next(
        one.workflow_task_completed_event_id for one in scheduled if one.activity_id == activity
    )


async def nudge(story: Story, turn: Turn) -> int:
    """Wake the waiting turn with a signal, and return the end of the workflow task that follows."""

    async def ends() -> list[int]:
        events = (await story.client.history(turn)).events
        return [
            event.event_id
            for event in events
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        ]

    before = await ends()
    await story.temporal.get_workflow_handle(turn.id, run_id=await turn.first_run()).signal("nudge")
    async with asyncio.timeout(GONE_S):
        while True:
            after = await ends()
            if len(after) > len(before):
                return after[-1]
            await asyncio.sleep(0.02)


@pytest.mark.accepts("Y13", "Y15")
@pytest.mark.parametrize("name", ["charge", "fetch"])
async def test_tool_in_flight_at_a_reset_counts_as_lost(tell: Tell, name: str) -> None:
    """The attempt of the previous run may still take effect, so only an idempotent tool is started
    again, under the same key.
    """
    takes = {"takes_s": LATE_S} if name == "charge" else {"first_s": LATE_S}
    story = await tell(asks(use(name, "one", **takes)), says("done"))
    await story.worker()
    turn = await story.start(id=f"reset-{secrets.token_hex(4)}")
    await story.begun("one")
    await reset(story, turn, await nudge(story, turn))

    report = await story.client.turn(turn.id).result()

    await story.check_requests()
    repeats = name == "fetch"
    assert (report.output, results(report)) == (
        "done #2",
        ["one by attempt 2"] if repeats else [f"charge: {UNKNOWN}"],
    )
    assert story.ran() == [("one", 1), ("one", 2)][: 1 + repeats]
    assert len(story.keys("one")) == 1
    assert story.requests() == {1: 1, 2: 1}


@pytest.mark.accepts("Y13")
async def test_model_call_in_flight_at_a_reset_is_made_again(tell: Tell) -> None:
    """The old run's answer arrives late in the same process; the new run's own answer counts."""
    story = await tell(says("done", delay_s=LATE_S))
    await story.worker()
    turn = await story.start(id=f"reset-{secrets.token_hex(4)}")
    await story.asked(1)
    await reset(story, turn, await nudge(story, turn))

    report = await story.client.turn(turn.id).result()

    await story.check_requests()
    assert (report.output, story.requests()) == ("done #2", {1: 2})


@pytest.mark.accepts("Y13")
async def test_restarted_turn_shares_nothing_with_the_one_before(tell: Tell) -> None:
    """The same id and task, started again during step 2: the old run ends, the new one asks from
    the start, and its tools have other keys.
    """
    story = await tell(
        asks(use("charge", "one")), asks(use("fetch", "two"), delay_s=LATE_S), says("done")
    )
    await story.worker()
    name = f"restart-{secrets.token_hex(4)}"
    turn = await story.start(id=name)
    await story.asked(2)
    again = await story.start(id=name, if_exists="restart")

    report, ended = await asyncio.gather(story.report(again), turn.result(), return_exceptions=True)

    assert isinstance(ended, errors.TurnTerminatedError)
    assert not isinstance(report, BaseException), report
    assert [step.message.text for step in report.steps] == ["working #3", "working #4", "done #5"]
    assert story.requests() == {1: 2, 2: 2, 3: 1}
    assert story.ran() == [("one", 1), ("one", 1), ("two", 1)]
    assert len(story.keys("one")) == 2
