"""A turn ends typed while a replay of its history still fits into a workflow task, whatever the
timeout of that is.
"""

import json
from datetime import timedelta

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from perdure import Agent, Outcome, errors, limits
from perdure.temporal import start_request
from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.decide import outgrows
from perdure.workflows import AgentTurn

from ..conftest import RecordingClient, Runtime
from .delegating import delegate, editor, researcher
from .spending import ended, look

LONG = 120
"""Steps: more events than a workflow task of a second lets a turn have."""


def agent() -> Agent:
    return Agent(name="reader", model="scripted:reader", tools=[look], max_iterations="unlimited")


def script() -> ScriptedModel:
    return ScriptedModel(
        *[calls(call("look", number=number)) for number in range(LONG)], says("done")
    )


@pytest.mark.parametrize(
    ("events", "seconds", "too_many"),
    [(8_000, 10, False), (8_001, 10, True), (16_000, 20, False), (16_001, 20, True)],
)
def test_events_of_a_turn_are_limited_by_its_task_timeout(
    events: int, seconds: int, too_many: bool
) -> None:
    """Eight hundred for each second."""
    assert outgrows(events, timedelta(seconds=seconds)) is too_many


@pytest.mark.accepts("Y21")
async def test_turn_that_outgrows_its_workflow_task_ends_typed(runtime: Runtime) -> None:
    """Its report has the steps, its memo says that it failed, and its history replays."""
    async with runtime(agent(), model=script()) as client:
        request = start_request.turn_request("reader", "go")
        handle = await client.temporal.start_workflow(
            TURN,
            pack(request),
            id=f"long-{id(request)}",
            task_queue=client.task_queue,
            task_timeout=timedelta(seconds=1),
        )
        turn = await client.get(handle.id)
        end = await ended(turn)
        memo = await (await handle.describe()).memo_value("perdure")

    assert isinstance(end, errors.TooLargeError)
    assert end.report is not None
    assert limits.EVENTS_PER_TASK_SECOND / 20 < len(end.report.steps) < LONG
    assert (end.report.outcome, memo["outcome"], memo["steps"]) == (
        Outcome.FAILED,
        "failed",
        len(end.report.steps),
    )


@pytest.mark.slow
@pytest.mark.accepts("Y6")
async def test_longer_history_of_a_release_without_this_limit_replays(runtime: Runtime) -> None:
    """It was recorded beyond what is allowed now, and its turn went on."""
    async with runtime(agent(), model=script()) as client:
        turn = await client.start("reader", "go")
        await turn.result()
        told = json.loads((await client.history(turn)).to_json())
    told["events"][0]["workflowExecutionStartedEventAttributes"]["workflowTaskTimeout"] = "1s"

    replayed = await Replayer(workflows=[AgentTurn]).replay_workflow(
        WorkflowHistory.from_json(turn.id, json.dumps(told))
    )

    assert len(told["events"]) > limits.EVENTS_PER_TASK_SECOND
    assert replayed.replay_failure is None


@pytest.mark.accepts("Y21")
async def test_root_turns_and_delegates_are_started_with_the_same_task_timeout(
    runtime: Runtime,
) -> None:
    """It stands in the first event of each."""
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
    """The workflow task timeout that a turn was started with."""
    history = await client.history(await client.get(turn_id))
    return history.events[
        0
    ].workflow_execution_started_event_attributes.workflow_task_timeout.ToTimedelta()
