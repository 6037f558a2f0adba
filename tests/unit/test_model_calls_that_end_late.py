"""A model call that was given up at the deadline and still ends, during the request for the last
answer.
"""

from decimal import Decimal

import pytest

from perdure import Budget, Price, errors
from perdure.agents.definitions import AgentDefinition
from perdure.turn.decide import Done, next_move
from perdure.turn.facts import (
    AgentResolved,
    CallFailed,
    Fact,
    ModelAnswered,
    Scheduled,
    TurnStarted,
)
from perdure.turn.fold import fold
from perdure.turn.keys import AgentKey, ModelKey
from perdure.turn.reservations import LAST_WORDS
from perdure.turn.situation import Situation
from perdure.turn.wire import TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Text
from perdure.values.reports import Outcome, Usage
from perdure.values.tasks import Task

AGENT = AgentDefinition(
    name="a",
    instructions="",
    model="m:m",
    on_exhausted="finish",
    price=Price(input="1000", output="1000"),
)
FIRST, LAST = ModelKey(1), ModelKey(1, is_last=True)
GIVEN_UP: list[Fact] = [
    TurnStarted(TurnRequest(agent="a", task=Task(content="go"), budget=Budget(usd="90"))),
    AgentResolved(AgentKey(), AGENT),
    Scheduled(FIRST),
    Scheduled(LAST),
]


def answered(key: ModelKey, text: str) -> ModelAnswered:
    """An answer that costs a dollar."""
    message = AssistantMessage(parts=(Text(text=text),))
    return ModelAnswered(
        key,
        ModelAnswer(
            message=message, usage=Usage(input_tokens=900, output_tokens=100), cost=Decimal(1)
        ),
    )


LATE: dict[str, Fact] = {
    "answer": answered(FIRST, "late"),
    "error": CallFailed(FIRST, errors.LLMRateLimitError("busy", context={"status": 429}).info()),
    "cancel": CallFailed(FIRST, errors.TurnCancelledError().info()),
}


@pytest.mark.parametrize("late", LATE)
def test_late_end_changes_what_was_spent_and_nothing_else(late: str) -> None:
    """The transcript of the last answer is unchanged; an answer is charged, and so is a failed call
    that may have produced one.
    """
    before = fold(GIVEN_UP)
    after = fold([LATE[late]], before)

    assert (
        after.transcript.messages,
        after.transcript.digest,
        after.steps,
        after.open_step.answer,
    ) == (
        before.transcript.messages,
        before.transcript.digest,
        before.steps,
        before.open_step.answer,
    )
    assert after.transcript.messages[-1] == LAST_WORDS
    assert after.attempts.failures == ()
    assert list(after.in_flight) == [LAST]
    reserved = before.accounts.ledger.held[str(FIRST)].usd
    assert (
        after.accounts.ledger.spent.usd
        == {"answer": Decimal(1), "error": Decimal(0), "cancel": reserved}[late]
    )
    assert set(after.accounts.ledger.held) == {str(LAST)}


@pytest.mark.parametrize("late", LATE)
def test_last_answer_is_the_end_whatever_came_late(late: str) -> None:
    """Before it or after it."""
    for facts in ([LATE[late], answered(LAST, "last")], [answered(LAST, "last"), LATE[late]]):
        state = fold([*GIVEN_UP, *facts])

        assert next_move(Situation(state, AGENT)) == Done(
            Outcome.BUDGET_EXHAUSTED, "last", risk="budget_exhausted"
        )
        assert [step.message.text for step in state.steps] == ["last"]
