"""What a supervisor reports to Temporal: nothing that another worker has."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.command.v1 import Command, ScheduleActivityTaskCommandAttributes
from temporalio.api.common.v1 import ActivityType, RetryPolicy, WorkflowExecution
from temporalio.api.enums.v1 import CommandType, WorkflowTaskFailedCause
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    PollActivityTaskQueueRequest,
    PollWorkflowTaskQueueRequest,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker.supervision import lost_work
from perdure.worker.supervision.held_runs import HeldRun, WorkerConnection
from perdure.worker.supervision.lost_work import Lost

from ...conftest import Runtime


@pytest.fixture
async def temporal(perdure_server: str) -> Client:
    """Temporal's client."""
    return await Client.connect(perdure_server)


@pytest.mark.accepts("P39")
@pytest.mark.slow
async def test_call_of_another_worker_is_not_touched(runtime: Runtime, perdure_server: str) -> None:
    """A list may name runs whose calls are elsewhere by now, or that are over."""
    began, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await go_on.wait()
        return "waited"

    agent = Agent(name="clerk", model="scripted:x", tools=[wait])
    async with runtime(agent, model=ScriptedModel(calls(call("wait")), says("done"))) as client:
        turn = await client.start(agent, "go")
        await began.wait()
        worker = WorkerConnection("7@elsewhere.1f2e", "default")
        runs = [
            HeldRun(turn.id, await turn.first_run(), is_cached=True, is_active=True),
            HeldRun("no such turn", await turn.first_run(), is_cached=True, is_active=True),
        ]
        service = await lost_work.connect(perdure_server)
        lost = await lost_work.give_back(service, worker, runs)
        go_on.set()
        report = await turn.result()

    assert lost == Lost(0, 0)
    assert report.steps[0].results[0].content == "waited"


@pytest.mark.accepts("P39")
async def test_token_of_a_workflow_task_is_the_servers(temporal: Client) -> None:
    """The server takes the token that is built from history, once."""
    handle = await temporal.start_workflow(
        "Any", id="token", task_queue="token", task_timeout=timedelta(seconds=60)
    )
    service = temporal.workflow_service
    polled = await service.poll_workflow_task_queue(
        PollWorkflowTaskQueueRequest(
            namespace="default", task_queue=TaskQueue(name="token"), identity="poller"
        )
    )
    described = await service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
    token = lost_work.workflow_task_token(
        described.namespace_info.id,
        WorkflowExecution(workflow_id="token", run_id=handle.result_run_id or ""),
        scheduled=2,
        started=polled.started_event_id,
        attempt=polled.attempt,
    )
    request = RespondWorkflowTaskFailedRequest(
        namespace="default",
        task_token=token,
        cause=WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
    )
    await service.respond_workflow_task_failed(request)
    with pytest.raises(RPCError) as second:
        await service.respond_workflow_task_failed(request)
    await handle.terminate()

    assert second.value.status is RPCStatusCode.NOT_FOUND


@pytest.mark.accepts("Y70", "P39")
async def test_activity_that_is_given_back_is_handed_out_again(
    temporal: Client, perdure_server: str
) -> None:
    """At once, by its own retry policy: the report does not say when the next attempt is due."""
    names: dict[str, Any] = {"namespace": "default", "task_queue": TaskQueue(name="given-back")}
    dead = WorkerConnection("7@elsewhere.2a3b", "default")
    handle = await temporal.start_workflow(
        "Any", id="given-back", task_queue="given-back", task_timeout=timedelta(seconds=60)
    )
    service = temporal.workflow_service
    task = await service.poll_workflow_task_queue(
        PollWorkflowTaskQueueRequest(**names, identity=dead.identity)
    )
    schedule = ScheduleActivityTaskCommandAttributes(
        activity_id="it",
        activity_type=ActivityType(name="Any"),
        task_queue=names["task_queue"],
        schedule_to_close_timeout=_duration(60),
        retry_policy=RetryPolicy(initial_interval=_duration(0.1), maximum_attempts=2),
    )
    command = Command(
        command_type=CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK,
        schedule_activity_task_command_attributes=schedule,
    )
    await service.respond_workflow_task_completed(
        RespondWorkflowTaskCompletedRequest(
            namespace="default",
            task_token=task.task_token,
            identity=dead.identity,
            commands=[command],
        )
    )
    poll = PollActivityTaskQueueRequest(**names, identity=dead.identity)
    first = await service.poll_activity_task_queue(poll)
    run = HeldRun(handle.id, handle.result_run_id or "", is_cached=True, is_active=True)
    connection = await lost_work.connect(perdure_server)
    lost = await lost_work.give_back(connection, dead, [run])
    async with asyncio.timeout(60):
        second = await service.poll_activity_task_queue(poll)
    await handle.terminate()

    assert lost == Lost(1, 0)
    assert [first.attempt, second.attempt] == [1, 2]


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=seconds))
    return duration
