"""Histories that only an earlier release could record, because today such a turn ends sooner."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from perdure import limits
from perdure.temporal.history import HistoryReader
from perdure.turn.fold import fold
from perdure.turn.state import TurnState
from perdure.workflows import AgentTurn

FOLDER = Path(__file__).parent / "earlier"


@pytest.mark.accepts("L21", "Y6")
async def test_answer_with_more_calls_than_one_may_hold_replays() -> None:
    """66 parallel calls, recorded before there was a limit, fold to the turn's own summary."""
    history = WorkflowHistory.from_json(
        "adder/many_calls", (FOLDER / "many_calls.json").read_text(encoding="utf-8")
    )
    reader, state = HistoryReader(DataConverter.default), TurnState()

    replayed = await Replayer(workflows=[AgentTurn]).replay_workflow(history)
    for event in history.events:
        state = fold(await reader.facts(event), state)

    assert replayed.replay_failure is None
    assert state.ended is not None
    assert state.ended.summary is not None
    assert len(state.steps[0].results) == 66 > limits.CALLS
    assert (state.transcript.digest, state.tool_calls) == (state.ended.summary.digest, 66)
