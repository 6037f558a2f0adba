"""Histories of a real server, fed through the simulator's model of the SDK's core."""

from collections.abc import Iterator, Sequence
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import decode_typed_search_attributes

from perdure.temporal.names import MEMO
from perdure.testing.simulation.reading import before_end, catch_up, difference_of
from perdure.testing.simulation.server.core import Core
from perdure.testing.simulation.server.history import attributes, name_of, tasks
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.sdk import BegunRun

CLOSES = (
    "WORKFLOW_EXECUTION_COMPLETED",
    "WORKFLOW_EXECUTION_FAILED",
    "WORKFLOW_EXECUTION_CANCELED",
)


def begun_of(events: Sequence[HistoryEvent]) -> BegunRun:
    """How a stored run was started."""
    start = attributes(events[0])
    parent = start.parent_workflow_execution
    return BegunRun(
        workflow_id=start.workflow_id,
        run_id=start.original_execution_run_id or start.first_execution_run_id,
        first_run_id=start.first_execution_run_id,
        type=start.workflow_type.name,
        at_ns=events[0].event_time.ToNanoseconds(),
        continued=start.continued_execution_run_id,
        parent=(parent.workflow_id, parent.run_id) if parent.workflow_id else None,
        memo=tuple(start.memo.fields.items()),
        task_timeout=start.workflow_task_timeout.ToTimedelta(),
        search_attributes=decode_typed_search_attributes(start.search_attributes),
    )


def differences(events: Sequence[HistoryEvent]) -> list[str]:
    """How the states of the workflow and of a reader differ after a workflow task, if they do."""
    return list(filter(None, _differences(events)))


def _differences(events: Sequence[HistoryEvent]) -> Iterator[str]:
    begun = begun_of(events)
    core, run = Core(begun), SimulatedRun(begun)
    try:
        for task in tasks(events):
            core.replay(task, exactly=False)
            ends = shown_end(task.written)
            run.history.events = list(
                events[: task.started.event_id + 1 + len(task.written) - ends]
            )
            catch_up(run)
            workflow: Any = core.instance.workflow
            state = workflow._board.state
            yield difference_of(state, before_end(state, run.read) if ends else run.read)
    finally:
        core.evict()


def shows_end(event: HistoryEvent) -> bool:
    """Whether an event shows the end of a turn in the memo or in the search attributes."""
    if name_of(event) == "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES":
        return "PerdureOutcome" in attributes(event).search_attributes.indexed_fields
    memo = event.workflow_properties_modified_event_attributes.upserted_memo
    return MEMO in memo.fields


def shown_end(written: Sequence[HistoryEvent]) -> int:
    """The number of the last events of a task that show and make the end of the turn."""
    count = 0
    if written and name_of(written[-1]) in CLOSES:
        count = 1
        while count < len(written) and shows_end(written[-1 - count]):
            count += 1
    return count
