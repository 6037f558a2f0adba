"""Histories that only an earlier release could record, because today such a turn ends sooner."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from perdure import limits
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.turn.fold import fold
from perdure.turn.state import TurnState
from perdure.values.messages import UserMessage
from perdure.values.reports import Outcome
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


FOLDED = {
    "failing_tools": (3, Outcome.LOOP, ["1 + 2?"]),
    "guarded_and_steered": (2, Outcome.COMPLETED, ["1 + 2?", "3 + 4?"]),
}
"""The steps of a turn, its outcome, and the ends of the messages of its user."""


@pytest.mark.accepts("Y6")
@pytest.mark.parametrize("name", FOLDED)
async def test_turn_of_earlier_rules_replays(name: str) -> None:
    """Steps in which every tool failed ended a turn with `on_loop="fail"`, where today the model is
    warned. And a guardrail that checked the task alone: the message to the running turn has no
    check in history.
    """
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    history = WorkflowHistory.from_json(f"adder/{name}", text)
    reader, state = HistoryReader(DataConverter.default), TurnState()

    replayed = await Replayer(workflows=[AgentTurn]).replay_workflow(history)
    for event in history.events:
        state = fold(await reader.facts(event), state)

    assert replayed.replay_failure is None
    assert state.ended is not None
    assert state.ended.summary is not None
    assert state.transcript.digest == state.ended.summary.digest
    said = [one.text for one in state.transcript.messages if isinstance(one, UserMessage)]
    steps, outcome, ends = FOLDED[name]
    assert (state.step_count, state.ended.outcome) == (steps, outcome)
    assert [text[-len(end) :] for text, end in zip(said, ends, strict=True)] == ends


@pytest.mark.accepts("Y6", "E115")
async def test_session_that_began_a_turn_in_a_full_run_replays() -> None:
    """A message that came with the beginning of the run was not given to its first turn; and the
    second turn began although the run was full.
    """
    text = (FOLDER / "session_with_waiting_messages.json").read_text(encoding="utf-8")
    history = WorkflowHistory.from_json("chat", text)

    replayed = await Replayer(workflows=[AgentSession]).replay_workflow(history)

    assert replayed.replay_failure is None
