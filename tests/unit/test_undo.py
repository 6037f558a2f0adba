"""The inputs of turns that take an effect back."""

from __future__ import annotations

import pytest

from perdure.turn import undo
from perdure.turn.effect_values import Undo
from perdure.turn.facts import TurnStarted
from perdure.turn.fold import fold
from perdure.turn.wire import TurnRequest
from perdure.values.effects import EffectRecord
from perdure.values.tasks import Task

ASKED = TurnRequest(agent="clerk", task=Task(content="pay"))


def record(arguments: str = '{"invoice": "i-1"}') -> EffectRecord:
    """A payment that can be taken back."""
    return EffectRecord(
        tool="pay", call_id="c1", step=1, arguments=arguments, turn_id="t-1", undo="clerk"
    )


@pytest.mark.accepts("T59")
def test_call_that_has_the_place_of_another_has_another_key() -> None:
    """After a reset, the second call of a turn may have the id and the step of the first."""
    first, second = Undo(record=record()), Undo(record=record('{"invoice": "i-2"}'))

    assert undo.turn_id_of(undo.place_of(first.record)) == undo.turn_id_of(
        undo.place_of(second.record)
    )
    assert undo.scope_of(first) != undo.scope_of(second)
    assert undo.scope_of(first) == undo.scope_of(Undo(record=record(), by="anna"))


@pytest.mark.accepts("T59")
def test_worker_of_an_earlier_release_offers_its_model_no_tools() -> None:
    """It does not know what the turn is for, and would ask a model to do the task."""
    request = undo.request_of(ASKED, "t-1", Undo(record=record(), by="anna"))

    assert TurnRequest.model_validate(request.model_dump(exclude={"undo"})).allowed == ()


@pytest.mark.accepts("T59")
def test_undo_of_another_call_at_the_same_place_is_another_undo() -> None:
    """It is not taken for done after a reset, when another call has the id and the step."""
    request = undo.request_of(ASKED, "t-1", Undo(record=record()))
    state = fold([TurnStarted(request)])

    assert undo.is_about(state, record())
    assert not undo.is_about(state, record('{"invoice": "i-2"}'))
    assert not undo.is_about(state, record().model_copy(update={"key": "another"}))
    assert not undo.is_about(fold([TurnStarted(ASKED)]), record())
