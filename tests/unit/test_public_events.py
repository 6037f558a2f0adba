"""The public view of an event, where it differs from the event with fields left out."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perdure import Budget, Outcome
from perdure.clients.reading.events import Event
from perdure.turn.facts import (
    BudgetAdded,
    CancelRequested,
    Decided,
    Emitted,
    Fact,
    Resumed,
    Said,
    ToolLost,
    TurnEnded,
)
from perdure.turn.keys import ToolKey
from perdure.turn.wait_values import TurnEvent
from perdure.values.approvals import Decision
from perdure.values.losses import Loss

AT = datetime(2026, 11, 22, tzinfo=UTC)
WORDS = "PRIVATE"


@pytest.mark.accepts("E16")
@pytest.mark.parametrize(
    ("fact", "shown"),
    [
        (
            TurnEnded(Outcome.TERMINATED, reason=WORDS),
            {"outcome": "terminated", "error": "TURN_TERMINATED"},
        ),
        (TurnEnded(Outcome.CANCELLED), {"outcome": "cancelled", "error": "TURN_CANCELLED"}),
        (
            ToolLost(ToolKey(1, 1), Loss.BY_OPERATOR, WORDS),
            {"loss": "ended_by_operator", "error": None},
        ),
    ],
    ids=["terminated", "cancelled", "lost"],
)
def test_end_has_its_code_and_its_words_only_if_asked_for(
    fact: Fact, shown: dict[str, object]
) -> None:
    """The code equals that of the status, even if no workflow code ran at the end."""
    event = Event("cursor", AT, fact, turn_id="t", agent="a")
    envelope = {"v", "turn", "kind", "cursor", "at", "agent", "last_agent", "step", "attempt"}
    envelope |= {"tool", "call_id"}

    assert {name: value for name, value in event.public().items() if name not in envelope} == shown
    assert (WORDS in str(event.public({"errors"}))) == (WORDS in str(fact))


@pytest.mark.accepts("H152", "E16")
@pytest.mark.parametrize(
    "fact",
    [
        Decided(Decision(call_id="c", digest="d", approve=True, by=WORDS)),
        BudgetAdded(Budget(usd="1"), by=WORDS),
        Said("1", "a", by=WORDS),
        Emitted(TurnEvent(id="1", name="built"), by=WORDS),
        Resumed(by=WORDS),
        CancelRequested("", by=WORDS),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_name_of_a_person_is_shown_only_if_asked_for(fact: Fact) -> None:
    event = Event("cursor", AT, fact, turn_id="t", agent="a")

    assert event.public({"errors"})["by"] == WORDS
    assert WORDS not in str(event.public({"task", "arguments", "results"}))
