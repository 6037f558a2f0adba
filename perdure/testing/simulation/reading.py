"""What the history of a simulated run says: its fold, by the product's own reader, and its memo."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import fields
from typing import Any, TypeVar

from temporalio.api.common.v1 import Payload

from perdure.base import replace
from perdure.session import state
from perdure.session.state import SessionState
from perdure.temporal.names import BATCH, BATCH_PART, SESSION, TURN
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.turn.facts import WaitEnded
from perdure.turn.fold import apply
from perdure.turn.state import TurnState

T = TypeVar("T")
S = TypeVar("S", TurnState, SessionState)


def catch_up(run: SimulatedRun) -> None:
    """Fold what the history of a turn or a session has that was not read yet."""
    for event in run.history.events[run.read_events :]:
        if run.begun.type == TURN:
            for fact in _at_once(run.reader.facts(event)):
                run.facts.append(fact)
                run.read = apply(run.read, fact)
        elif run.begun.type == BATCH:
            run.batch.apply(event)
        elif run.begun.type == BATCH_PART:
            for part_fact in _at_once(run.part_reader.read(event)):
                run.part.apply(part_fact)
        elif run.begun.type == SESSION:
            for session_fact in _at_once(run.session_reader.facts(event)):
                run.session_facts.append(session_fact)
                run.session = state.apply(run.session, session_fact)
    run.read_events = len(run.history)


def memo_of(run: SimulatedRun) -> dict[str, Payload]:
    """Return the memo of a run: that of its start, with all changes."""
    memo = dict(run.begun.memo)
    for event in run.history.events:
        if name_of(event) == "WORKFLOW_PROPERTIES_MODIFIED":
            memo |= attributes(event).upserted_memo.fields
    return memo


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing: without a codec, decoding does not."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        value: T = stopped.value
        return value
    raise RuntimeError("reading an event has waited for something")


def before_end(state: TurnState, read: TurnState) -> TurnState:
    """Return what a reader has as if it had seen the end of the wait of a turn that is over.

    The end of the turn, which the reader is about to see, shows it in the same event.
    """
    is_left = read.waiting is not None and read.waiting.is_told and state.waiting is None
    return apply(read, WaitEnded()) if is_left else read


def difference_of(own: S, read: S) -> str:
    """Describe the first field in which the states of a workflow and of a reader differ.

    Empty if they agree.
    """
    if isinstance(own, TurnState) and own.cancel_reason is None:
        read = replace(read, cancel_reason=None)
    if isinstance(own, SessionState) and own.closed is None:
        read = replace(read, closed=None)
    for one in fields(own):
        if not one.compare:
            continue
        ours, theirs = getattr(own, one.name), getattr(read, one.name)
        if ours is not theirs and ours != theirs:
            return f"{one.name} is\n  {str(ours)[:1200]}\nand a reader has\n  {str(theirs)[:1200]}"
    return ""
