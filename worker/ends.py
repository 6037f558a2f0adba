"""Delays logs, spans and metrics of turns until the server has accepted their workflow task.

The server rejects a task that closes a workflow if an event arrived meanwhile: the turn then
continues, and may end differently. In both cases the SDK evicts the workflow, and the eviction
reason distinguishes them. Records of a closing task are therefore kept until then, and discarded if
the task was rejected. If the server's response is lost, the server reports for the repeated
completion that there is no such task, just as if another worker had taken over. Nothing is written
then: a missing record is better than a record that another worker's record contradicts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails

from perdure.temporal.names import TURN
from perdure.temporal.trace_ids import WRITE
from perdure.worker.wrapped_workflow import WrappedRunner, WrappedWorkflow

_CLOSING = (
    "complete_workflow_execution",
    "fail_workflow_execution",
    "cancel_workflow_execution",
    "continue_as_new_workflow_execution",
)


class TakenTasks(WrappedRunner):
    """A workflow runner that wraps another runner and delays the records of turns."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return the workflow instance of one run."""
        return (
            self._turn(det) if det.info.workflow_type == TURN else self._inner.create_instance(det)
        )

    def _turn(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        writes: list[Callable[[], None]] = []
        functions = {**det.extern_functions, WRITE: writes.append}
        return _TurnInstance(
            self._inner.create_instance(replace(det, extern_functions=functions)), writes
        )


class _TurnInstance(WrappedWorkflow):
    """The workflow of a turn. `kept` holds its records until the server has accepted its task."""

    def __init__(self, inner: WorkflowInstance, writes: list[Callable[[], None]]) -> None:
        super().__init__(inner)
        self._kept = writes

    def activate(self, act: Any) -> Any:
        completion = self._inner.activate(act)
        dropped = next(
            (job.remove_from_cache for job in act.jobs if job.HasField("remove_from_cache")), None
        )
        # the reason of a task that the server rejected, even if the cache is full
        if dropped is not None:
            self._settle(dropped.reason in (dropped.WORKFLOW_EXECUTION_ENDING, dropped.CACHE_FULL))
        elif completion.HasField("failed"):
            self._settle(False)
        elif not _answers_queries(act) and not _closes(completion):
            self._settle(True)
        return completion

    def _settle(self, is_taken: bool) -> None:
        writes = list(self._kept)
        self._kept.clear()
        for write in writes if is_taken else ():
            write()


def _closes(completion: Any) -> bool:
    return any(
        command.WhichOneof("variant") in _CLOSING for command in completion.successful.commands
    )


def _answers_queries(act: Any) -> bool:
    """Return whether an activation only contains queries.

    Its results are sent with the commands that came before them, so nothing is accepted yet.
    """
    return bool(act.jobs) and all(job.HasField("query_workflow") for job in act.jobs)
