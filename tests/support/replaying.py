"""Replays of stored histories, and readers' folds of them."""

from __future__ import annotations

import json
from typing import Any

from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from perdure.temporal.data_converter import chosen
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.turn.fold import apply
from perdure.turn.state import TurnState
from perdure.workflows import WORKFLOWS

STARTED = "workflowExecutionStartedEventAttributes"


async def replayed(told: dict[str, Any]) -> WorkflowHistory:
    """Replay a history."""
    history = WorkflowHistory.from_json(told["events"][0][STARTED]["workflowId"], json.dumps(told))
    found = await Replayer(data_converter=chosen(), workflows=WORKFLOWS).replay_workflow(history)
    assert found.replay_failure is None
    return history


async def folded(told: dict[str, Any]) -> TurnState:
    """Replay the history of a turn, and return its fold."""
    reader, state = HistoryReader(DataConverter.default), TurnState()
    for event in (await replayed(told)).events:
        for fact in await reader.facts(event):
            state = apply(state, fact)
    return state
