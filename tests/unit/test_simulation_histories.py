"""Histories that a real server has recorded, fed through the simulator's model of the SDK's core.

They show that the model is right: it makes activations of them that give the same commands, and the
workflow has the state that a reader of the history has.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from perdure.testing.simulation.server.core import Core, NotDeterministicError
from perdure.testing.simulation.server.history import tasks

from ..support.fed_histories import begun_of, differences

FOLDER = Path(__file__).parents[1] / "replay"
TURNS = sorted(
    path
    for folder in ("histories", "earlier", "sessions", "pushes")
    for path in (FOLDER / folder).glob("*.json")
    if "session" not in path.stem and path.stem != "push"
)
OTHERS = sorted(
    path
    for pattern in ("batches/*.json", "webhooks/webhook.json", "patches/*added-*.json")
    for path in FOLDER.glob(pattern)
)
"""Those of batches, of their parts and of a webhook.

The id of a turn's webhook is random, and the seed of that is in no history.
"""
OTHER_WORDS = {"paused"}
"""In these, an earlier release has worded the reason of a wait differently."""


def read(path: Path) -> list[HistoryEvent]:
    return list(WorkflowHistory.from_json("", path.read_text(encoding="utf-8")).events)


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


@pytest.mark.table(13)
@pytest.mark.accepts("Y111")
@pytest.mark.parametrize("path", [*TURNS, *OTHERS], ids=lambda path: path.stem)
def test_a_stored_history_gives_the_same_commands(path: Path) -> None:
    """Every activation of it is answered as the history has it."""
    assert replayed(read(path)) > 0


@pytest.mark.accepts("Y111")
@pytest.mark.parametrize(
    "path", [path for path in TURNS if path.stem not in OTHER_WORDS], ids=lambda path: path.stem
)
def test_a_stored_history_gives_the_state_that_its_reader_has(path: Path) -> None:
    """After each workflow task, the fold of the history is the state of the workflow."""
    assert differences(read(path)) == []


def test_another_history_is_not_accepted() -> None:
    """A history with another command than the workflow gives is refused."""
    events = read(FOLDER / "histories" / "tools.json")
    scheduled = next(
        event for event in events if event.HasField("activity_task_scheduled_event_attributes")
    )
    scheduled.activity_task_scheduled_event_attributes.activity_id = "another"

    with pytest.raises(NotDeterministicError, match="another"):
        replayed(events)
