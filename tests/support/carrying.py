"""Turns whose next run takes over a state that the test holds up."""

from dataclasses import replace
from typing import Any

from temporalio import workflow
from temporalio.client import WorkflowHandle
from temporalio.common import RawValue
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure import Agent, tool
from perdure.temporal.names import TURN
from perdure.testing import ScriptedModel, call, calls, says

from ..conftest import RecordingClient
from .long_turns import filling, reader
from .spending import look

sent: list[str] = []


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    sent.append(to)
    return f"sent to {to}"


def clerk(**fields: Any) -> Agent:
    return reader(tools=[look, send], parallel_tools=True, max_iterations=9, **fields)


def letters() -> ScriptedModel:
    """Two letters that wait for approval in a run that is almost full."""
    return ScriptedModel(
        *filling(1),
        calls(call("send", call_id="a", to="Ann"), call("send", call_id="b", to="Bob")),
        says("done"),
    )


def with_model(worker: Any, model: ScriptedModel) -> Any:
    return replace(worker, providers={"scripted": model})


@workflow.defn
class RunBefore:
    """A run that goes on as a later run of a turn or a session."""

    @workflow.run
    async def run(self, given: RawValue, queue: str, kind: str) -> None:
        """Go on at once."""
        workflow.continue_as_new(given, workflow=kind, task_queue=queue)  # type: ignore[arg-type]  # a name


async def continued(
    client: RecordingClient,
    turn_id: str,
    given: RawValue,
    task_queue: str | None = None,
    kind: str = TURN,
) -> WorkflowHandle[Any, Any]:
    """A later run of a workflow with this input, which a worker of `task_queue` may begin."""
    queue, temporal = f"before-{turn_id}", client.temporal
    runner = UnsandboxedWorkflowRunner()
    async with Worker(temporal, task_queue=queue, workflows=[RunBefore], workflow_runner=runner):
        first = await temporal.start_workflow(
            RunBefore.run,
            args=[given, task_queue or client.task_queue, kind],
            id=turn_id,
            task_queue=queue,
        )
        run_id = first.first_execution_run_id
        while run_id == first.first_execution_run_id:
            run_id = (await temporal.get_workflow_handle(turn_id).describe()).run_id
    return temporal.get_workflow_handle(turn_id, run_id=run_id)
