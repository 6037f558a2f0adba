"""Folds of the history of a turn, for a model activity that does not have its transcript.

It reads all of the history, or the tail since the last answer that it knows.
"""

from __future__ import annotations

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from perdure.temporal.histories.fetching import backwards, recorded
from perdure.temporal.histories.turn_history import HistoryReader, key_of
from perdure.turn.calls import ready_for
from perdure.turn.facts import Recorded, Scheduled
from perdure.turn.fold import apply
from perdure.turn.keys import AgentKey, Key, ModelKey
from perdure.turn.state import TurnState


async def fold_all(client: Client, turn_id: str, run_id: str, own_key: Key | None) -> TurnState:
    """Fold the history of a run, up to the call with a key."""
    state = TurnState()
    async for _, fact in recorded(client, turn_id, run_id, is_worker=True):
        if own_key is not None and fact == Scheduled(own_key):
            return ready_for(state, own_key)
        state = state if fact is None else apply(state, fact)
    return state


async def _since(client: Client, turn_id: str, run_id: str, step: int) -> list[HistoryEvent]:
    """Return the events since the answer of a step, reading history backwards."""
    events: list[HistoryEvent] = []
    async for event in backwards(client, turn_id, run_id):
        key = key_of(event)
        if isinstance(key, AgentKey | ModelKey) and key.step <= step:
            break
        events.append(event)
    return events[::-1]


async def fold_tail(
    client: Client, turn_id: str, run_id: str, own_key: Key | None, state: TurnState
) -> TurnState:
    """Fold what happened since the last answer in `state`, up to the call with a key."""
    answered = state.step_count + bool(state.open_step.calls)
    reader = HistoryReader(client.data_converter, is_worker=True)
    for event in await _since(client, turn_id, run_id, answered):
        for fact in await reader.facts(event):
            if own_key is not None and fact == Scheduled(own_key):
                return ready_for(state, own_key)
            if _is_news(fact, answered):
                state = apply(state, fact)
    return state


def _is_news(fact: Recorded, answered: int) -> bool:
    """Return whether a fact is new: a tail may begin with events that are folded already."""
    key: Key | None = getattr(fact, "key", None)
    return not isinstance(key, AgentKey | ModelKey) or key.step > answered
