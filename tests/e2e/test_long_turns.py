"""A turn over many runs of its workflow, whose workers are killed.

`PERDURE_LONG_STEPS` and `PERDURE_LONG_KILLS` say how long it is and how many workers are killed.
From 5,000 steps on, the runs are as long as they are by default; a shorter turn has shorter ones.
"""

import asyncio
import os
import random
from collections import Counter as Counts
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory

from perdure import AgentReport, Outcome, limits
from perdure.clients import Turn
from perdure.temporal import start_request
from perdure.temporal.histories.runs import describe_last, runs_up_to
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.turn.facts import CallFailed, Recorded, Scheduled
from perdure.turn.fold import apply
from perdure.turn.history_limits import replayable_events
from perdure.turn.keys import CarryKey, ModelKey, ToolKey
from perdure.turn.state import TurnState

from ..conftest import check_history, eventually
from ..support.e2e.app import AGENT
from ..support.e2e.long_app import Counter
from ..support.e2e.stories import UNKNOWN, Story, assert_recorded_once
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor
from ..support.losses import timeless

__all__ = ["has_supervisor"]

APP = "tests.support.e2e.long_app:make"
STEPS = int(os.environ.get("PERDURE_LONG_STEPS", "1200"))
KILLS = int(os.environ.get("PERDURE_LONG_KILLS", "6"))
TASK_TIMEOUT = limits.TASK_TIMEOUT if STEPS >= 5_000 else timedelta(seconds=4)
FULL = int(min(limits.RUN_EVENTS, replayable_events(TASK_TIMEOUT) * limits.RUN_SHARE))
"""The events of a run that is full."""
EVENTS_OF_A_STEP = 12
AROUND_S = 1.5
"""A kill near the end of a run comes in this time: before, in or after its continue-as-new."""
PATIENCE_S = 60 + STEPS * 0.2 + KILLS * 30


@pytest.mark.slow
@pytest.mark.timeout(3 * PATIENCE_S)
@pytest.mark.accepts("Y2", "Y8", "Y45", "Y46", "Y47")
async def test_turn_over_many_runs_repeats_nothing_when_its_workers_are_killed(
    perdure_server: str, tmp_path: Path, has_supervisor: bool
) -> None:
    """Every step is recorded once, no tool that may not repeat runs twice, the bill is booked, and
    the report is whole.
    """
    stub = Counter(STEPS)
    async with Story(perdure_server, tmp_path, stub=stub, supervised=has_supervisor) as story:
        turn = await _start(story)
        killing = asyncio.create_task(_kill_at_random(story, stub, turn, random.Random(STEPS)))
        async with asyncio.timeout(PATIENCE_S):
            report = await turn.result()
            await killing
        histories = await _histories(story, turn)
        await check_history(story.temporal, turn.id, histories[0].run_id)
        facts = [await _facts(story, history) for history in histories]

    _check_whole(report)
    _check_tools(story, facts, report)
    _check_bill(stub, facts, report)
    assert len(histories) >= min(6, STEPS * EVENTS_OF_A_STEP // FULL)
    assert max(len(history.events) for history in histories) < replayable_events(TASK_TIMEOUT)


async def _start(story: Story) -> Turn:
    request = start_request.turn_request(AGENT, "go")
    options = start_request.introduced(request, {})
    handle = await story.temporal.start_workflow(
        TURN,
        pack(request),
        id=f"long-{story.client.task_queue}",
        task_queue=story.client.task_queue,
        **{**options, "task_timeout": TASK_TIMEOUT},
    )
    return story.client.turn(handle.id)


async def _kill_at_random(story: Story, stub: Counter, turn: Turn, moments: random.Random) -> None:
    """Kill a worker somewhere in each part of the turn; every second one around the end of a run.

    Another one goes on at once.
    """
    worker = await story.worker(APP)
    part = STEPS // (KILLS + 1)
    for number in range(KILLS):
        step = number * part + moments.randrange(part // 2)
        await _asked(stub, step)
        if number % 2:
            await _nearly_full(story, turn)
            await asyncio.sleep(moments.uniform(0, AROUND_S))
        else:
            await asyncio.sleep(moments.uniform(0, 0.1))
        worker = await story.replace(worker, APP)
        await _asked(stub, len(stub.asked) + 1)


async def _asked(stub: Counter, times: int) -> None:
    await eventually(
        lambda: len(stub.asked) >= times, f"request {times} arrives", within_s=PATIENCE_S
    )


async def _nearly_full(story: Story, turn: Turn) -> None:
    """Wait until the current run has a few steps left."""
    while True:
        found = await describe_last(story.temporal, turn.id, await turn.first_run())
        if found.workflow_execution_info.history_length > FULL - 5 * EVENTS_OF_A_STEP:
            return
        await asyncio.sleep(0.1)


async def _histories(story: Story, turn: Turn) -> list[WorkflowHistory]:
    found = await describe_last(story.temporal, turn.id, await turn.first_run())
    runs = await runs_up_to(story.temporal, found)
    handles = [story.temporal.get_workflow_handle(turn.id, run_id=run) for run in runs]
    return [await handle.fetch_history() for handle in handles]


async def _facts(story: Story, history: WorkflowHistory) -> list[Recorded]:
    reader = HistoryReader(story.temporal.data_converter)
    return [fact for event in history.events for fact in await reader.facts(event)]


def _check_whole(report: AgentReport) -> None:
    assert (report.outcome, report.output) == (Outcome.COMPLETED, "done")
    assert report.messages_from == 1
    assert [step.number for step in report.steps] == list(range(1, STEPS + 2))
    assert len(report.messages) == 2 * STEPS + 2
    for step in report.steps[:STEPS]:
        [call], [result] = step.message.calls, step.results
        assert result.call_id == call.id
        assert f'"{step.number} ' in call.arguments
        content = timeless(result.content)
        assert content.startswith(f"{step.number} ") or content.endswith(UNKNOWN)


def _check_tools(story: Story, facts: Sequence[list[Recorded]], report: AgentReport) -> None:
    """History has each step once, and the journal has no more runs of a tool than history."""
    scheduled = [fact for run in facts for fact in run if not _is_carry(fact)]
    assert_recorded_once(scheduled)
    attempts = Counts(
        (fact.key.step, type(fact.key)) for fact in scheduled if isinstance(fact, Scheduled)
    )
    ran = Counts(int(entry.what.split()[0]) for entry in story.journal())
    assert len({entry.key for entry in story.journal()}) == len(ran)
    for step, times in ran.items():
        assert times <= attempts[step, ToolKey]
        assert times == 1 or step % 2  # charge, of the even steps, may not run again
    unknown = {
        step.number
        for step in report.steps
        for result in step.results
        if timeless(result.content).endswith(UNKNOWN)
    }
    assert set(range(1, STEPS + 1)) - set(ran) <= unknown


def _is_carry(fact: Recorded) -> bool:
    return isinstance(getattr(fact, "key", None), CarryKey)


def _check_bill(stub: Counter, facts: Sequence[list[Recorded]], report: AgentReport) -> None:
    """The cost is the provider's bill, with the reservation of each attempt that was lost."""
    lost = Decimal(0)
    for run in facts:
        state = TurnState()
        for fact in run:
            if isinstance(fact, CallFailed) and isinstance(fact.key, ModelKey):
                assert fact.lost
                lost += state.accounts.ledger.held[str(fact.key)].usd
            state = apply(state, fact)
    assert report.cost == stub.billed_for_answers() + lost
    assert stub.spent <= report.cost
    if not lost:
        assert report.cost == stub.spent
