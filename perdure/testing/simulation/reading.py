"""The fold of a simulated history, by the product's own reader."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from perdure.session import state
from perdure.temporal.names import SESSION, TURN
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.turn.fold import apply

T = TypeVar("T")


def catch_up(run: SimulatedRun) -> None:
    """Fold what the history of a turn or a session has that was not read yet."""
    for event in run.history.events[run.read_events :]:
        if run.begun.type == TURN:
            for fact in _at_once(run.reader.facts(event)):
                run.facts.append(fact)
                run.read = apply(run.read, fact)
        elif run.begun.type == SESSION:
            for session_fact in _at_once(run.session_reader.facts(event)):
                run.session_facts.append(session_fact)
                run.session = state.apply(run.session, session_fact)
    run.read_events = len(run.history)


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing: without a codec, decoding does not."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        value: T = stopped.value
        return value
    raise RuntimeError("reading an event has waited for something")
