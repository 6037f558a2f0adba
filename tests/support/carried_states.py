"""States that a run hands to the next one, without a workflow."""

from __future__ import annotations

from perdure.temporal import outcomes
from perdure.temporal.payloads import pack
from perdure.turn import carry
from perdure.turn.continuation import Continuation
from perdure.turn.facts import Recorded, Scheduled, TurnContinued
from perdure.turn.fold import fold
from perdure.turn.keys import CarryKey
from perdure.turn.state import TurnState
from perdure.turn.wire import Origin

from .simulated import NOW


def continued(state: TurnState, steps: int | None = None) -> TurnContinued:
    """How the next run begins, as its input is read."""
    assert state.request is not None
    given = Continuation(
        continues=Origin(
            turn_id="t",
            run_id="r",
            steps=state.step_count if steps is None else steps,
            digest=carry.state_of(state).digest,
        ),
        request=state.request.model_copy(update={"history": ()}),
        request_digest=state.request.digest(),
        first_run="r",
        ledger=state.accounts.ledger,
        began=NOW,
    )
    fact = outcomes.started(pack(given))
    assert isinstance(fact, TurnContinued)
    return fact


def parts_of(state: TurnState, most_bytes: int = 2_000) -> list[Recorded]:
    """The facts of a takeover, as they are read."""
    facts = list[Recorded]()
    for number, part in enumerate(carry.split(carry.state_of(state), most_bytes), 1):
        key = CarryKey(number)
        facts += [Scheduled(key), outcomes.completed(key, pack(part))]
    return facts


def carried(state: TurnState) -> TurnState:
    """The state as a later run has it."""
    return fold([continued(state), *parts_of(state)])
