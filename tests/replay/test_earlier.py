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
from perdure.workflows.session.agent_session import AgentSession

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


@pytest.mark.accepts("Y6", "E115")
async def test_session_that_began_a_turn_in_a_full_run_replays() -> None:
    """A message that came with the beginning of the run was not given to its first turn; and the
    second turn began although the run was full.
    """
    text = (FOLDER / "session_with_waiting_messages.json").read_text(encoding="utf-8")
    history = WorkflowHistory.from_json("chat", text)

    replayed = await Replayer(workflows=[AgentSession]).replay_workflow(history)

    assert replayed.replay_failure is None
