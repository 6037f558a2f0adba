"""A turn ends with a typed error while a replay of its history still fits into a workflow task, for
any task timeout.
"""

import base64
import json
from datetime import timedelta

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from perdure import Agent, Outcome, errors, limits
from perdure.clients import Turn
from perdure.temporal import start_request
from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.decide import replayable_events
from perdure.workflows import AgentTurn
from perdure.workflows.agent_turn import REPLAY_LIMITS

from ..conftest import RecordingClient, Runtime
from .delegating import delegate, editor, researcher
from .spending import ended, look

LONG = 120
"""Steps: more events than a workflow task of two seconds lets a turn have."""
EVENTS_OF_A_STEP = 12


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


@pytest.mark.accepts("Y21")
@pytest.mark.parametrize("seconds", [1, pytest.param(2, marks=pytest.mark.slow)])
async def test_turn_that_outgrows_its_workflow_task_ends_typed(
    runtime: Runtime, seconds: int
) -> None:
    """Its report has the steps, its memo says that it failed, and its history replays."""
    async with runtime(agent(), model=script()) as client:
        turn = await start_with(client, timedelta(seconds=seconds))
        end = await ended(turn)
        memo = await (await client.temporal.get_workflow_handle(turn.id).describe()).memo_value(
            "perdure"
        )

    assert isinstance(end, errors.TooLargeError)
    assert end.report is not None
    steps, limit = len(end.report.steps), seconds * limits.EVENTS_PER_TASK_SECOND
    events = end.context["events"]
    assert isinstance(events, int)
    assert limit < events <= limit + EVENTS_OF_A_STEP
    assert end.context == {"steps": steps, "events": events, "limit": limit}
    assert (end.report.outcome, memo["outcome"], memo["steps"]) == (Outcome.FAILED, "failed", steps)
    assert (
        end.message
        == f"the turn ended after {steps} steps because its history has {events} events; more than"
        f" {limit} may take too long to be replayed within its workflow task timeout of"
        f" {seconds} s; turn.resume() goes on in a new turn, or split the task"
    )


@pytest.mark.accepts("Y6", "Y23")
async def test_history_that_ended_at_the_limit_of_an_earlier_release_replays(
    runtime: Runtime,
) -> None:
    """A current history whose start and marker are changed to those of that release, with its 800
    events per second.
    """
    async with runtime(agent(), model=script()) as client:
        turn = await start_with(client, timedelta(seconds=1))
        assert isinstance(await ended(turn), errors.TooLargeError)
        told = json.loads((await client.history(turn)).to_json())
    [today, earlier] = REPLAY_LIMITS
    seconds = REPLAY_LIMITS[today] / REPLAY_LIMITS[earlier]
    told["events"][0]["workflowExecutionStartedEventAttributes"]["workflowTaskTimeout"] = (
        f"{seconds}s"
    )
    [marker] = [
        event["markerRecordedEventAttributes"]
        for event in told["events"]
        if "markerRecordedEventAttributes" in event
    ]
    [patch] = marker["details"]["patch-data"]["payloads"]
    patch["data"] = base64.b64encode(
        base64.b64decode(patch["data"]).replace(today.encode(), earlier.encode())
    ).decode()

    replayed = await Replayer(workflows=[AgentTurn]).replay_workflow(
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

    replayed = await Replayer(workflows=[AgentTurn]).replay_workflow(
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


async def start_with(client: RecordingClient, timeout: timedelta) -> Turn:
    """Start a turn with Temporal's client, with the caller's workflow task timeout."""
    request = start_request.turn_request("reader", "go")
    handle = await client.temporal.start_workflow(
        TURN,
        pack(request),
        id=f"long-{id(request)}",
        task_queue=client.task_queue,
        task_timeout=timeout,
    )
    return await client.get(handle.id)


async def task_timeout(client: RecordingClient, turn_id: str) -> timedelta:
    """The workflow task timeout of a turn."""
    history = await client.history(await client.get(turn_id))
    return history.events[
        0
    ].workflow_execution_started_event_attributes.workflow_task_timeout.ToTimedelta()
