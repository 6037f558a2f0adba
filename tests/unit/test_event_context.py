"""The context of an event equals the state of the fold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings

from perdure import Outcome
from perdure.agents.definitions import Stage
from perdure.clients.reading.event_context import EventContext
from perdure.turn import carry
from perdure.turn.facts import (
    AgentResolved,
    Decided,
    Fact,
    HookEnded,
    ModelAnswered,
    Scheduled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from perdure.turn.fold import apply
from perdure.turn.keys import AgentKey, CallKey, HookKey, ModelKey, ToolKey
from perdure.turn.state import TurnState
from perdure.turn.wire import ToolOutput, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision
from perdure.values.budgets import Budget
from perdure.values.messages import AssistantMessage, Text, ToolCall, UserMessage, closed
from perdure.values.tasks import Task

from ..support.folding import AGENT, every_turn
from ..support.simulated import Played, any_turn, turn
from ..support.thorough import examples

GUARD = {"middleware": (Stage(name="guard", has_before=False, has_after=True),)}
PASSED = (HookEnded(HookKey("after", 1)), TurnEnded(Outcome.COMPLETED))
REFUSED = (TurnEnded(Outcome.FAILED),)


def by_fold(facts: Sequence[Fact]) -> Iterator[tuple[tuple[ToolCall, ...], str]]:
    """The calls and the text for each fact, according to the states around it."""
    state = TurnState()
    for fact in facts:
        before, state = state, apply(state, fact)
        yield calls_of(before, state, fact), text_of(before, state, fact)


def text_of(before: TurnState, after: TurnState, fact: Fact) -> str:
    if isinstance(fact, ModelAnswered) and _is_taken(before, after):
        return "" if after.open_step.unpassed else after.last_words
    return after.output if isinstance(fact, TurnEnded) else ""


def calls_of(before: TurnState, after: TurnState, fact: Fact) -> tuple[ToolCall, ...]:
    if isinstance(fact, ModelAnswered):
        answer = after.open_step.answer
        return answer.message.calls if answer and _is_taken(before, after) else ()
    if isinstance(fact, Decided):
        return tuple(
            one.call for one in before.open_step.calls if one.call.id == fact.decision.call_id
        )
    key = getattr(fact, "key", AgentKey())
    past = (
        [step.message.calls for step in before.steps[key.step - 1 : key.step]]
        if isinstance(key, CallKey)
        else [()]
    )
    return (
        (past[0] if past else tuple(one.call for one in before.open_step.calls))[
            key.call - 1 : key.call
        ]
        if isinstance(key, CallKey)
        else ()
    )


def _is_taken(before: TurnState, after: TurnState) -> bool:
    """Whether an answer is that of its step. One that was given up may come late."""
    answer = after.open_step.answer
    return answer is not None and answer is not before.open_step.answer


def by_context(facts: Sequence[Fact]) -> Iterator[tuple[tuple[ToolCall, ...], str]]:
    context = EventContext()
    for fact in facts:
        told = context.of(fact)
        yield told["calls"], told["text"]


@settings(every_turn, max_examples=examples(30))
@given(any_turn)
@example(turn(10224838))  # an answer that was given up comes after the last one
def test_calls_and_text_are_those_of_the_fold(played: Played) -> None:
    """In every turn, including one that continues another, without middleware and with one that
    accepts or refuses the answer.
    """
    going = [fact for fact in played.facts if not isinstance(fact, TurnEnded)]
    guarded = [
        replace(fact, agent=fact.agent.model_copy(update=GUARD))
        if isinstance(fact, AgentResolved)
        else fact
        for fact in going
    ]
    for facts in (
        played.facts,
        going,
        [*going, *REFUSED],
        [*guarded, *PASSED],
        [*guarded, *REFUSED],
    ):
        assert list(by_context(facts)) == list(by_fold(facts))


@pytest.mark.parametrize("late", [True, False])
def test_answer_that_was_given_up_has_no_text_and_a_late_result_has_its_call(late: bool) -> None:
    """The last answer is requested while a tool runs, and during a model call."""
    asked = AssistantMessage(
        parts=(Text(text="I look."), ToolCall(id="", name="look"), ToolCall(id="", name="write"))
    )
    request = TurnRequest(agent="any", task=Task(content="go"), budget=Budget(tokens=10**6))
    facts: list[Fact] = [
        TurnStarted(request),
        Scheduled(AgentKey()),
        AgentResolved(AgentKey(), AGENT),
    ]
    facts += [
        Scheduled(ModelKey(1)),
        ModelAnswered(ModelKey(1), ModelAnswer(message=asked)),
        Scheduled(ToolKey(1, 2)),
        Decided(Decision(call_id="call_1_1", digest="", approve=True)),
    ]
    facts += [
        Scheduled(ModelKey(2, is_last=True)),
        ToolReturned(ToolKey(1, 2), ToolOutput(content="late")),
    ]
    facts += [ModelAnswered(ModelKey(1, 2), ModelAnswer(message=asked))] if late else []
    facts += [
        ModelAnswered(
            ModelKey(2, is_last=True),
            ModelAnswer(message=AssistantMessage(parts=(Text(text="bye"),))),
        ),
        *REFUSED,
    ]

    told = list(by_context(facts))

    assert told == list(by_fold(facts))
    assert [[call.id for call in calls] for calls, _ in told[4:9]] == [
        ["call_1_1", "call_1_2"],
        ["call_1_2"],
        ["call_1_1"],
        [],
        ["call_1_2"],
    ]
    assert told[-1][1] == "bye"


@pytest.mark.accepts("E125")
def test_calls_of_a_turn_of_a_session_have_other_ids_than_those_before_it() -> None:
    """Also for a reader that does not have the messages before the turn."""
    asked = AssistantMessage(parts=(ToolCall(id="a", name="look"),))
    origin = carry.after_session("s", "r", closed((UserMessage.of("go"), asked)))
    request = TurnRequest(agent="any", task=Task(content="again"), session="s", origin=origin)
    facts: list[Fact] = [
        TurnStarted(request),
        Scheduled(AgentKey()),
        AgentResolved(AgentKey(), AGENT),
        Scheduled(ModelKey(1)),
        ModelAnswered(ModelKey(1), ModelAnswer(message=asked)),
    ]

    told = list(by_context(facts))

    assert told == list(by_fold(facts))
    assert [call.id for call in told[-1][0]] == ["call_1_1"]
