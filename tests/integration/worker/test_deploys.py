"""Deploys and running turns: everything that goes wrong can be fixed by a rollback."""

import asyncio
import secrets
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import RawValue
from temporalio.worker import Worker

from perdure import Agent
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, says
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

SETTINGS = WorkerSettings(grace=timedelta(seconds=1))


@workflow.defn(name="AgentTurn", sandboxed=False)
class OtherTurn:
    """A release whose first command differs."""

    @workflow.run
    async def run(self, start: RawValue) -> None:
        """Wait with a timer, where the history of a running turn has an activity."""
        await workflow.sleep(60)


class Slow:
    """A model whose request is not answered while its worker lives."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.asked.set()
        await asyncio.sleep(60)
        raise AssertionError

    async def close(self) -> None: ...


@pytest.mark.slow
@pytest.mark.accepts("Y11")
async def test_nondeterministic_deploy_leaves_a_turn_waiting_and_a_rollback_lets_it_end(
    perdure_server: str,
) -> None:
    """Its workflow task fails and is retried, the turn stays Running, and the old code completes
    it.
    """
    temporal = await Client.connect(perdure_server)
    queue = f"deploys-{secrets.token_hex(6)}"
    agent, slow = Agent(name="talker", model="scripted:talker"), Slow()
    client = AgentClient.from_temporal(temporal, task_queue=queue)
    async with AgentWorker(agent, providers={"scripted": slow}, task_queue=queue).running(
        temporal, settings=SETTINGS
    ):
        turn = await client.start(agent, "go")
        await asyncio.wait_for(slow.asked.wait(), 60)
    handle = temporal.get_workflow_handle(turn.id)

    async with Worker(temporal, task_queue=queue, workflows=[OtherTurn]):
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("workflow_task_failed_event_attributes"):
                break
    cause = event.workflow_task_failed_event_attributes.cause
    status = (await handle.describe()).status
    answers = ScriptedModel(says("still here"))
    async with AgentWorker(agent, providers={"scripted": answers}, task_queue=queue).running(
        temporal, settings=SETTINGS
    ):
        report = await asyncio.wait_for(turn.result(), 60)

    assert cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR
    assert status == WorkflowExecutionStatus.RUNNING
    assert (report.output, report.model_calls) == ("still here", 2)
