"""Replays of the stored histories of a batch and its part."""

from __future__ import annotations

import pytest
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from perdure.batch.part import is_answered
from perdure.temporal.histories.part_history import PartReader, TurnOfPart
from perdure.workflows import WORKFLOWS

from .record import texts
from .record_batch import FOLDER


def stored(name: str) -> WorkflowHistory:
    """A stored history."""
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    return WorkflowHistory.from_json(f"nightly/{name}", text)


@pytest.mark.accepts("Y6", "Y65")
@pytest.mark.parametrize("name", ["batch", "part"])
async def test_stored_history_of_a_batch_replays(name: str) -> None:
    """The current code makes the same decisions as the code that recorded it."""
    replayed = await Replayer(workflows=WORKFLOWS).replay_workflow(stored(name))

    assert replayed.replay_failure is None
    assert '"identity": "worker"' in texts((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.accepts("Y6", "E76")
async def test_stored_history_of_a_part_has_the_ends_of_its_turns() -> None:
    """Two answers and a failure; the last task was not started."""
    reader = PartReader(DataConverter.default)
    found = [fact for event in stored("part").events for fact in await reader.read(event)]
    ends = {
        one.turn_id: is_answered(one.end)
        for one in found
        if isinstance(one, TurnOfPart) and one.end is not None
    }

    assert ends == {"nightly/1": True, "nightly/2": True, "nightly/3": False}
