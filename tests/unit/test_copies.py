"""Copies of frozen values with other fields."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perdure.base import replace
from perdure.session.state import SessionState
from perdure.turn.keys import ModelKey
from perdure.turn.ledger import Ledger
from perdure.turn.open_step import Attempts, OpenStep
from perdure.turn.state import Accounts, CarriedOver, TurnState
from perdure.turn.transcript import TokenCount, Transcript

CHANGED: list[tuple[Any, dict[str, Any]]] = [
    (TurnState(), {"finishing": True, "cancel_reason": "enough"}),
    (SessionState(), {"is_over": True}),
    (Accounts(), {"model_calls": 2}),
    (CarriedOver(), {"steps": 3}),
    (OpenStep(), {"objections": 1}),
    (Attempts(), {"rounds": 2}),
    (Transcript(), {"size_bytes": 7}),
    (TokenCount(), {"base": 9}),
    (ModelKey(1, 1), {"attempt": 2}),  # with slots
]


@pytest.mark.parametrize(("value", "changes"), CHANGED, ids=lambda one: type(one).__name__)
def test_copy_is_that_of_dataclasses(value: Any, changes: dict[str, Any]) -> None:
    """The copy has the other fields, and the value keeps its own."""
    before = repr(value)
    copy = replace(value, **changes)

    assert copy == dataclasses.replace(value, **changes)
    assert type(copy) is type(value)
    assert repr(value) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(copy, next(iter(changes)), None)


@pytest.mark.parametrize(
    "copied", [TurnState, SessionState, Accounts, Ledger, OpenStep, Transcript, TokenCount]
)
def test_what_a_fold_copies_with_each_fact_has_no_slots(copied: type) -> None:
    """With slots, each field would be copied by itself."""
    assert not hasattr(copied, "__slots__")
