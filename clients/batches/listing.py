"""The batches of a namespace, from Temporal's list."""

from __future__ import annotations

from datetime import UTC, datetime

from temporalio.api.enums.v1 import WorkflowExecutionStatus as Status
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client

from perdure import errors
from perdure.base import Value
from perdure.clients.batches.handle import note_in, status_of
from perdure.clients.reading.lists import Listing
from perdure.clients.turns.filters import Filter
from perdure.clients.turns.listing import Workflows
from perdure.errors import ErrorInfo
from perdure.temporal.access import BATCH
from perdure.temporal.histories.runs import describe
from perdure.temporal.names import BATCHES
from perdure.temporal.namespace_check import Index
from perdure.values import states
from perdure.values.states import State

_ENDS: dict[Status.ValueType, states.OfBatch] = {
    Status.WORKFLOW_EXECUTION_STATUS_CANCELED: State.CANCELLED,
    Status.WORKFLOW_EXECUTION_STATUS_TERMINATED: State.TERMINATED,
}
"""The states that the server knows. A batch whose workflow completed may have stopped early."""


_WORDS = {
    State.STOPPED: "a turn of the batch failed, or a part of it is gone",
    State.BUDGET_EXHAUSTED: "the budget of the batch is spent",
    State.CANCELLED: "the batch was cancelled",
    State.TERMINATED: "the batch was terminated",
}


class BatchEntry(Value):
    """A batch in a list. A batch that was run again is listed with its last round.

    Attributes:
        id: The batch's id; `client.batch(entry.id)` returns its handle.
        agent: The name of its agent; empty if this process cannot decode it.
        state: The state of the batch. None for a batch that is over if this process cannot decode
            how.
        total: The number of its tasks.
        done: The number of tasks with an answer, of all rounds so far.
        failed: The number of tasks whose latest turn ended without one.
        round: The number of the round.
        started_at: When the round was started.
        ended_at: When it ended; None before.
        error: Why tasks of a batch that is over were not started; or why the entry lacks the agent
            and the numbers: this process cannot decode them. None for all other entries.
    """

    id: str
    agent: str = ""
    state: states.OfBatch | None
    total: int = 0
    done: int = 0
    failed: int = 0
    round: int = 1
    started_at: datetime
    ended_at: datetime | None = None
    error: ErrorInfo | None = None


def batches(
    client: Client, index: Index, agent: str | None, id_prefix: str | None, limit: int | None
) -> Listing[BatchEntry]:
    """Return the batches of an agent, those that are not over first, then the last ended first.

    Raises:
        PerdureError: As `perdure.clients.turns.listing.turns` does.
    """
    filters = Filter(id_prefix=id_prefix, workflows=BATCHES)

    async def read(info: WorkflowExecutionInfo) -> BatchEntry | None:
        if await _is_earlier_round(client, info):
            return None
        entry = await _entry_of(client, info)
        is_wanted = agent in (None, entry.agent) and filters.admits_id(entry.id)
        return entry if is_wanted else None

    workflows = Workflows(client, index, filters, BATCH)
    return Listing(workflows, limit, read, also="" if agent is None else f"\n{agent}")


async def _is_earlier_round(client: Client, info: WorkflowExecutionInfo) -> bool:
    """Whether a batch was run again after a workflow, which the server lists as well."""
    if not info.HasField("close_time"):
        return False
    id, run_id = info.execution.workflow_id, info.execution.run_id
    last = await BATCH.asked_if_known(id, describe(client, id, retry=True))
    return last is not None and last.workflow_execution_info.execution.run_id != run_id


async def _entry_of(client: Client, info: WorkflowExecutionInfo) -> BatchEntry:
    try:
        status = status_of(info, await note_in(client, info))
    except errors.PerdureError as error:
        is_over = info.HasField("close_time")
        return BatchEntry(
            id=info.execution.workflow_id,
            state=_ENDS.get(info.status) if is_over else State.RUNNING,
            started_at=info.start_time.ToDatetime(tzinfo=UTC),
            ended_at=info.close_time.ToDatetime(tzinfo=UTC) if is_over else None,
            error=error.info(),
        )
    fields = BatchEntry.model_fields.keys() - {"error"}
    values = {name: getattr(status, name) for name in fields}
    return BatchEntry(**values, error=error_of(status.state))


def error_of(state: State) -> ErrorInfo | None:
    """Return why a batch has not tried all of its tasks."""
    why = _WORDS.get(state)
    if why is None:
        return None
    message = f"tasks were not started: {why}"
    return errors.TaskNotStartedError(message, context={"reason": state}).info()
