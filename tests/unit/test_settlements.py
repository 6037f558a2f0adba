"""Where what a person says of a call is kept: the id of its workflow."""

from __future__ import annotations

import pytest

from perdure.temporal.settlements import workflow_id
from perdure.turn.effect_values import CallPlace, KnownEffect
from perdure.values.effects import EffectRecord

PLACES = (
    CallPlace("a", 1, "b/2/c"),
    CallPlace("a/1/b", 2, "c"),
    CallPlace("a", 1, "b%2F2%2Fc"),
    CallPlace("a", 12, "c"),
    CallPlace("a", 1, "2/c"),
    CallPlace("a", 1, "c" * 900),
    CallPlace("a", 1, "c" * 901),
    CallPlace("a", 1, "\ud800"),
)


def test_each_call_has_an_id_of_its_own() -> None:
    """Whatever the caller and the provider choose; Temporal takes 1,000 bytes."""
    ids = [workflow_id(place) for place in PLACES]

    assert len(set(ids)) == len(PLACES)
    assert max(len(one.encode()) for one in ids) < 1_000
    assert workflow_id(CallPlace("ticket 7", 3, "call_3_1")) == "settled/ticket 7/3/call_3_1"


@pytest.mark.parametrize("turn_id", ["", "a", "a:1:b", ":x"])
@pytest.mark.parametrize("call_id", ["call_1_1", "b:2:c", ""])
def test_record_says_which_call_it_is_about(turn_id: str, call_id: str) -> None:
    """With any ids; a record that is done needs no lookup."""
    record = EffectRecord(
        tool="pay",
        call_id=call_id,
        step=3,
        arguments="{}",
        status="unknown",
        turn_id=turn_id,
    )

    assert KnownEffect.of(record).call_in("own") == CallPlace(turn_id or "own", 3, call_id)


def test_record_of_another_turn_from_an_earlier_release_is_not_looked_up() -> None:
    """It does not name the turn."""
    assert KnownEffect(place="other:1:c", is_done=False).call_in("own") is None
