"""Histories that a real server has recorded, fed through the simulator's model of the SDK's core.

They show that the model is right: it makes activations of them that give the same commands, and the
workflow has the state that a reader of the history has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.converter import decode_typed_search_attributes

from perdure.temporal.names import MEMO
from perdure.testing.simulation.core import Core, NotDeterministicError
from perdure.testing.simulation.history import attributes, name_of, tasks
from perdure.testing.simulation.promises import difference_of
from perdure.testing.simulation.reading import catch_up
from perdure.testing.simulation.runs import SimulatedRun
from perdure.testing.simulation.sdk import BegunRun

CLOSES = (
    "WORKFLOW_EXECUTION_COMPLETED",
    "WORKFLOW_EXECUTION_FAILED",
    "WORKFLOW_EXECUTION_CANCELED",
)
FOLDER = Path(__file__).parents[1] / "replay"
TURNS = sorted(
    path
    for folder in ("histories", "earlier", "sessions", "pushes")
    for path in (FOLDER / folder).glob("*.json")
    if "session" not in path.stem and path.stem != "push"
)
OTHER_WORDS = {"paused"}
"""In these, an earlier release has worded the reason of a wait differently."""


def read(path: Path) -> list[HistoryEvent]:
    return list(WorkflowHistory.from_json("", path.read_text(encoding="utf-8")).events)


def begun_of(events: list[HistoryEvent]) -> BegunRun:
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


def replayed(events: list[HistoryEvent]) -> int:
    """Replay all workflow tasks of a history, and return their number."""
    core = Core(begun_of(events))
    try:
        found = list(tasks(events))
        for task in found:
            core.replay(task, exactly=False)
        return len(found)
    finally:
        core.evict()


@pytest.mark.accepts("Y111")
@pytest.mark.parametrize("path", TURNS, ids=lambda path: path.stem)
def test_a_stored_history_gives_the_same_commands(path: Path) -> None:
    """Every activation of it is answered as the history has it."""
    assert replayed(read(path)) > 0


@pytest.mark.accepts("Y111")
@pytest.mark.parametrize(
    "path", [path for path in TURNS if path.stem not in OTHER_WORDS], ids=lambda path: path.stem
)
def test_a_stored_history_gives_the_state_that_its_reader_has(path: Path) -> None:
    """After each workflow task, the fold of the history is the state of the workflow."""
    events = read(path)
    begun = begun_of(events)
    core, run = Core(begun), SimulatedRun(begun)
    try:
        for task in tasks(events):
            core.replay(task, exactly=False)
            ends = shown_end(task.written)
            run.history.events = events[: task.started.event_id + 1 + len(task.written) - ends]
            catch_up(run)
            workflow: Any = core.instance.workflow
            assert difference_of(workflow._board.state, run.read) == ""
    finally:
        core.evict()


def shows_end(event: HistoryEvent) -> bool:
    """Whether an event shows the end of a turn in the memo or in the search attributes."""
    if name_of(event) == "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES":
        return "PerdureOutcome" in attributes(event).search_attributes.indexed_fields
    memo = event.workflow_properties_modified_event_attributes.upserted_memo
    return MEMO in memo.fields


def shown_end(written: list[HistoryEvent]) -> int:
    """The number of the last events of a task that show and make the end of the turn."""
    count = 0
    if written and name_of(written[-1]) in CLOSES:
        count = 1
        while count < len(written) and shows_end(written[-1 - count]):
            count += 1
    return count


def test_another_history_is_not_accepted() -> None:
    """A history with another command than the workflow gives is refused."""
    events = read(FOLDER / "histories" / "tools.json")
    scheduled = next(
        event for event in events if event.HasField("activity_task_scheduled_event_attributes")
    )
    scheduled.activity_task_scheduled_event_attributes.activity_id = "another"

    with pytest.raises(NotDeterministicError, match="another"):
        replayed(events)
