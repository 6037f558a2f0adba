"""A run of a turn ends while a replay of its history still fits into a workflow task, whatever the
timeout of that is.
"""

import json
from datetime import timedelta

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from perdure import Agent, limits
from perdure.temporal.data_converter import chosen
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.history_limits import replayable_events
from perdure.workflows import AgentTurn
from perdure.workflows.turn.loop import REPLAY_LIMITS

from ...conftest import RecordingClient, Runtime
from ...support.delegating import delegate, editor, researcher
from ...support.long_turns import begin, runs_of
from ...support.spending import look

LONG = 120
"""Steps: more events than a workflow task of two seconds lets a turn have."""


def agent() -> Agent:
    return Agent(name="reader", model="scripted:reader", tools=[look], max_iterations="unlimited")


def script() -> ScriptedModel:
    return ScriptedModel(
        *[calls(call("look", number=number)) for number in range(LONG)], says("done")
    )


@pytest.mark.parametrize(("seconds", "events"), [(1, 330), (10, 3_300), (20, 6_600), (60, 19_800)])
def test_events_of_a_turn_are_limited_by_its_task_timeout(seconds: int, events: int) -> None:
    """The limit is proportional to the timeout."""
    assert replayable_events(timedelta(seconds=seconds)) == events


@pytest.mark.slow
@pytest.mark.accepts("Y21")
@pytest.mark.parametrize("seconds", [1, 2])
async def test_no_run_of_a_turn_outgrows_its_workflow_task(runtime: Runtime, seconds: int) -> None:
    """The turn goes on in a new run in time, so that each history can be replayed."""
    async with runtime(agent(), model=script()) as client:
        turn = await begin(client, timeout=timedelta(seconds=seconds))
        report = await turn.result()
        events = [
            len((await client.history_of(turn.id, run)).events)
            for run in await runs_of(client, turn)
        ]

    assert len(report.steps) == LONG + 1
    assert len(events) > 1
    assert max(events) <= seconds * limits.EVENTS_PER_TASK_SECOND


@pytest.mark.slow
@pytest.mark.accepts("Y23")
@pytest.mark.parametrize("patch", [*REPLAY_LIMITS])
async def test_history_of_a_release_that_did_not_go_on_in_a_new_run_replays(
    runtime: Runtime, patch: str
) -> None:
    """It is longer than a run of today; beyond the limit of that release, its turn ended typed."""
    async with runtime(agent(), model=script()) as client:
        turn = await client.start("reader", "go")
        await turn.result()
        told = json.loads((await client.history(turn)).to_json())
    seconds = len(told["events"]) / REPLAY_LIMITS[patch] + 0.1
    told["events"][0]["workflowExecutionStartedEventAttributes"]["workflowTaskTimeout"] = (
        f"{seconds:.3f}s"
    )

    replayed = await Replayer(data_converter=chosen(), workflows=[AgentTurn]).replay_workflow(
        WorkflowHistory.from_json(turn.id, json.dumps(told))
    )

    assert replayed.replay_failure is None


@pytest.mark.slow
@pytest.mark.accepts("Y6")
async def test_longer_history_of_a_release_without_a_limit_replays(runtime: Runtime) -> None:
    """It was recorded beyond the current limit, and its turn continued."""
    async with runtime(agent(), model=script()) as client:
        turn = await client.start("reader", "go")
        await turn.result()
        told = json.loads((await client.history(turn)).to_json())
    told["events"][0]["workflowExecutionStartedEventAttributes"]["workflowTaskTimeout"] = "1s"

    replayed = await Replayer(data_converter=chosen(), workflows=[AgentTurn]).replay_workflow(
        WorkflowHistory.from_json(turn.id, json.dumps(told))
    )

    assert len(told["events"]) > max(REPLAY_LIMITS.values())
    assert replayed.replay_failure is None


@pytest.mark.accepts("Y21")
async def test_root_turns_and_delegates_are_started_with_the_same_task_timeout(
    runtime: Runtime,
) -> None:
    """The first event of each has it."""
    models = {
        "editor": ScriptedModel(delegate("researcher", "Find."), says("done")),
        "researcher": ScriptedModel(says("found")),
    }
    async with runtime([editor(delegates=["researcher"]), researcher()], model=models) as client:
        turn = await client.start("editor", "go")
        await turn.result()
        timeouts = [
            await task_timeout(client, name) for name in (turn.id, f"{turn.id}/researcher-1")
        ]

    assert timeouts == [limits.TASK_TIMEOUT] * 2


async def task_timeout(client: RecordingClient, turn_id: str) -> timedelta:
    """The workflow task timeout of a turn."""
    history = await client.history(client.turn(turn_id))
    return history.events[
        0
    ].workflow_execution_started_event_attributes.workflow_task_timeout.ToTimedelta()
