"""Updates to a turn whose workflow tasks fail for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure.clients import AgentClient
from perdure.temporal.names import TURN
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Runtime
from ...support.approving import agent, pending
from ...support.counting import CountingService
from ...support.spending import SOON_S, app, queue

_REFUSES_FROM = 3
"""From this attempt of a workflow task on, the server refuses updates until one succeeds."""


class Refusing(CountingService):
    """Refuses two updates, as a server does while a workflow task waits for its next attempt."""

    refused = 0

    async def _rpc_call(self, rpc: str, *arguments: Any, **options: Any) -> Any:
        if rpc == "update_workflow_execution" and self.refused < 2:
            self.refused += 1
            message = "Unable to perform workflow execution update due to Workflow Task in failed"
            raise RPCError(f"{message} state.", RPCStatusCode.FAILED_PRECONDITION, b"")
        return await super()._rpc_call(rpc, *arguments, **options)


async def test_update_that_comes_while_a_workflow_task_has_failed_is_sent_again(
    runtime: Runtime,
) -> None:
    """The worker was too busy for the task; nobody has to know."""
    model = ScriptedModel(calls(call("send", to="Ann")), says("done"))
    async with runtime(app(agent()), model=model) as client:
        turn = await client.start("clerk", "go")
        [waiting] = await pending(turn)
        service = Refusing(client.temporal.service_client)
        other = AgentClient.from_temporal(Client(service))
        await other.turn(turn.id).approve(waiting)
        report = await turn.result()

    assert (report.output, service.refused) == ("done", 2)


@workflow.defn(name=TURN, sandboxed=False)
class Broken:
    """A turn, as a worker runs it that cannot go on."""

    @workflow.run
    async def run(self, _request: RawValue) -> None:
        raise RuntimeError("this worker is too busy")


@pytest.mark.slow  # the server waits before its attempts
async def test_update_waits_for_a_worker_whose_workflow_tasks_do_not_fail(
    perdure_server: str,
) -> None:
    async with queue(perdure_server) as work:
        temporal, name = work.client.temporal, work.client.task_queue
        client = AgentClient.from_temporal(temporal, task_queue=name)  # its turns may fail tasks
        broken = Worker(
            temporal,
            task_queue=name,
            workflows=[Broken],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        async with broken:
            turn = await client.start("clerk", "go")
            handle = temporal.get_workflow_handle(turn.id)
            attempt = 1
            async with asyncio.timeout(SOON_S):
                while attempt < _REFUSES_FROM:
                    await asyncio.sleep(0.05)
                    description = (await handle.describe()).raw_description
                    attempt = description.pending_workflow_task.attempt
        adding = asyncio.create_task(turn.steer("be quick"))
        model = ScriptedModel(calls(call("send", to="Ann")), says("done"))
        async with work.worker(app(agent()), model):
            await adding
            await turn.approve((await pending(turn))[0])
            report = await turn.result()

    assert report.output == "done"
