"""The records of a turn are written once the server has accepted the workflow task that
closes it.
"""

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import (
    QueryWorkflow,
    RemoveFromCache,
    ResolveActivity,
    WorkflowActivation,
    WorkflowActivationJob,
)
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import (
    CompleteWorkflowExecution,
    QueryResult,
    WorkflowCommand,
)
from temporalio.bridge.proto.workflow_completion.workflow_completion_pb2 import (
    Success,
    WorkflowActivationCompletion,
)
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

from perdure.temporal.names import TURN
from perdure.temporal.trace_ids import WRITE
from perdure.worker.ends import TakenTasks

RESULT = WorkflowActivationJob(resolve_activity=ResolveActivity())
QUERY = WorkflowActivationJob(query_workflow=QueryWorkflow(query_id="q"))
CLOSES = WorkflowCommand(complete_workflow_execution=CompleteWorkflowExecution())
ANSWERS = WorkflowCommand(respond_to_query=QueryResult(query_id="q"))
NOTHING: Any = None


class Ending(WorkflowInstance):
    """A workflow that writes its end and closes when its activity has ended, and that answers
    queries.
    """

    def __init__(self, det: WorkflowInstanceDetails) -> None:
        self._write = det.extern_functions[WRITE]
        self._written = det.extern_functions["written"]

    def activate(self, act: Any) -> Any:
        is_query = any(job.HasField("query_workflow") for job in act.jobs)
        if not is_query and not any(job.HasField("remove_from_cache") for job in act.jobs):
            self._write(self._written)
        commands = [ANSWERS if is_query else CLOSES]
        return WorkflowActivationCompletion(successful=Success(commands=commands))

    def get_serialization_context(self, command_info: Any) -> Any:
        raise NotImplementedError

    def get_external_store_context(self, command_info: Any) -> Any:
        raise NotImplementedError

    def get_info(self) -> Any:
        raise NotImplementedError


class Runner(WorkflowRunner):
    """An instance of that workflow."""

    def prepare_workflow(self, defn: Any) -> None:
        raise NotImplementedError

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return Ending(det)


def written_after(*jobs: WorkflowActivationJob) -> list[int]:
    """The number of ends written after each activation."""
    ends: list[str] = []
    info: Any = SimpleNamespace(workflow_type=TURN)
    functions = {"written": lambda: ends.append("ended")}
    det = WorkflowInstanceDetails(
        NOTHING, NOTHING, (), NOTHING, info, 0, functions, False, (), None, NOTHING, None
    )
    turn, counts = TakenTasks(Runner()).create_instance(det), []
    for job in jobs:
        turn.activate(WorkflowActivation(jobs=[job]))
        counts.append(len(ends))
    return counts


def dropped(reason: RemoveFromCache.EvictionReason.ValueType) -> WorkflowActivationJob:
    """The SDK evicts the workflow."""
    return WorkflowActivationJob(remove_from_cache=RemoveFromCache(reason=reason))


@pytest.mark.accepts("O16")
@pytest.mark.parametrize(
    ("reason", "times"),
    [
        (RemoveFromCache.WORKFLOW_EXECUTION_ENDING, 1),
        (RemoveFromCache.CACHE_FULL, 1),
        (RemoveFromCache.UNHANDLED_COMMAND, 0),
        (RemoveFromCache.TASK_NOT_FOUND, 0),
        (RemoveFromCache.LANG_FAIL, 0),
    ],
    ids=str,
)
def test_end_is_written_when_the_server_has_taken_it_also_where_a_query_came_with_its_task(
    reason: RemoveFromCache.EvictionReason.ValueType, times: int
) -> None:
    """Query results are sent with the commands of the previous activation, so they are no
    evidence.
    """
    assert written_after(RESULT, QUERY, dropped(reason)) == [0, 0, times]
    assert written_after(RESULT, dropped(reason)) == [0, times]
