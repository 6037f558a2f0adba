"""Properties of the fold of a session, for random orders of its facts."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import limits
from perdure.session.facts import (
    MessageSent,
    MessageSteered,
    MessageUnqueued,
    SessionContinued,
    SessionFact,
    SessionResumed,
    SessionStarted,
    SteeringFailed,
    TurnBegan,
    TurnInterrupted,
    TurnOver,
    TurnRecorded,
)
from perdure.session.state import SessionState, apply, fold
from perdure.session.wire import SessionFork, SessionRequest, SessionSnapshot, TurnEnd, TurnPart
from perdure.temporal.payloads import pack, unpack
from perdure.values.budgets import Budget, Spending
from perdure.values.messages import AssistantMessage, Text, UserMessage
from perdure.values.reports import Outcome

from ..support.thorough import examples

MOST_FACTS = 60
REQUEST = SessionRequest(agent="clerk", budget=Budget(usd="5", model_calls=1000))


def drawn(seed: int) -> list[SessionFact]:
    """The facts of a session by chance, in an order in which its workflow may have them."""
    luck = random.Random(seed)
    facts: list[SessionFact] = [SessionStarted(REQUEST)]
    state = fold(facts)
    while len(facts) < MOST_FACTS:
        for fact in _next(state, luck, len(facts)):
            facts.append(fact)
            state = apply(state, fact)
    return facts


def _next(state: SessionState, luck: random.Random, number: int) -> list[SessionFact]:
    running = state.running
    match luck.randrange(9):
        case 0 | 1:
            if_busy: Any = luck.choice(["queue", "steer", "interrupt"])
            return [MessageSent(f"m-{number}", "hello", if_busy)]
        case 2 if state.queue:
            return [MessageUnqueued(luck.choice(state.queue).id)]
        case 3 | 4 if state.queue and running is None:
            return [TurnBegan(state.count + 1, f"s/{state.count + 1}")]
        case 5 if state.queue and state.is_busy:
            steered = luck.choice(state.queue).id
            failed = [SteeringFailed(steered)] if luck.random() < 0.3 else []
            return [MessageSteered(steered), *failed]
        case 6 if running is not None and state.is_busy:
            return [TurnOver(running.number, began=luck.random() > 0.1)]
        case 7 if running is not None and state.is_over:
            return _records(state, luck)
        case 8:
            return [TurnInterrupted("enough") if luck.random() < 0.5 else SessionResumed()]
        case _:
            return []


def _records(state: SessionState, luck: random.Random) -> list[SessionFact]:
    assert state.running is not None
    number = state.running.number
    if luck.random() < 0.1:
        return [TurnRecorded(number, None)]
    first = UserMessage.of(state.given[0].text)
    answer = AssistantMessage(parts=(Text(text="x" * luck.choice([1, 200_000])),))
    unread = tuple(one.id for one in state.given[1:] if luck.random() < 0.5)
    outcome = luck.choice([Outcome.COMPLETED, Outcome.CANCELLED])
    end = TurnEnd(outcome=outcome, spent=Spending(model_calls=2), unread=unread)
    return [
        TurnRecorded(number, TurnPart(number=1, count=2, messages=(first,))),
        TurnRecorded(number, TurnPart(number=2, count=2, messages=(answer,), end=end)),
    ]


def as_read(facts: list[SessionFact]) -> list[SessionFact]:
    """The same facts as history may have them: the end of a turn before messages that the workflow
    took in first.
    """
    read = list(facts)
    for place in range(1, len(read)):
        if isinstance(read[place], TurnOver) and isinstance(read[place - 1], MessageSent):
            read[place - 1], read[place] = read[place], read[place - 1]
    return read


any_session = st.integers(0, 2**32 - 1).map(drawn)


@settings(max_examples=examples(200))
@pytest.mark.accepts("E52", "E53")
@given(any_session)
def test_no_message_is_lost_and_none_is_in_two_places(facts: list[SessionFact]) -> None:
    """Each waits, was given to the running turn, was read by one that is over, or was taken out."""
    state = fold(facts)
    sent = {fact.id for fact in facts if isinstance(fact, MessageSent)}
    taken = {fact.id for fact in facts if isinstance(fact, MessageUnqueued)}
    waits = [one.id for one in state.queue]
    with_turn = [one.id for one in state.given]
    read = {one for turn in state.turns for one in turn.messages}

    assert len({*waits, *with_turn}) == len(waits) + len(with_turn)
    assert sent == {*waits, *with_turn, *read, *taken}
    assert not taken & {*waits, *with_turn}


@settings(max_examples=examples(200))
@pytest.mark.accepts("E51")
@given(any_session)
def test_readers_have_the_state_of_the_workflow(facts: list[SessionFact]) -> None:
    """Except for a message that came with the end of a turn: history has it after that end, and
    the workflow folds the facts of that task again.
    """
    read, noted = (
        replace(fold(order), goes_on=False, is_parked=False) for order in (as_read(facts), facts)
    )

    assert read == noted


@settings(max_examples=examples(200))
@pytest.mark.accepts("Y51")
@given(any_session)
def test_next_run_begins_with_the_state_of_the_one_before(facts: list[SessionFact]) -> None:
    """Through JSON, and in the size of a payload."""
    state = fold(facts)
    if state.running is not None:
        return
    snapshot = unpack(pack(state.snapshot(())), SessionSnapshot)

    assert fold([SessionContinued(snapshot)]) == replace(state, is_interrupted=False, goes_on=False)


@settings(max_examples=examples(200))
@given(any_session)
def test_what_a_turn_begins_with_is_bounded_and_begins_with_a_turn(
    facts: list[SessionFact],
) -> None:
    state = fold(facts)
    if state.messages:
        assert isinstance(state.messages[0], UserMessage)
        assert state.starts[0] == 0
    assert (
        len(state.starts) <= 1
        or sum(len(message.model_dump_json()) for message in state.messages)
        <= limits.SESSION_BYTES + 1_000
    )


@pytest.mark.accepts("E98")
def test_queue_waits_after_a_cancelled_turn_until_a_message_or_a_resume_comes() -> None:
    """After the interruption or after the end of the turn; messages of before wait."""
    first, began, over = MessageSent("1", "one"), TurnBegan(1, "s/1"), TurnOver(1)
    queued, late = MessageSent("2", "two"), MessageSent("3", "three")
    stop, urgent = TurnInterrupted("enough"), MessageSent("4", "four", "interrupt")
    end = TurnEnd(outcome=Outcome.CANCELLED)
    recorded = TurnRecorded(1, TurnPart(number=1, count=1, end=end))
    begun = (SessionStarted(REQUEST), first, began)
    starts = {
        (queued, stop, over, recorded): False,
        (queued, over, recorded): False,
        (queued, stop, late, over, recorded): True,
        (queued, over, late, recorded): True,
        (queued, stop, over, recorded, late): True,
        (queued, stop, SessionResumed(), over, recorded): True,
        (queued, urgent, over, recorded): True,
        (queued, urgent, stop, over, recorded): False,
        (over, recorded): False,
    }

    assert {facts: fold([*begun, *facts]).may_start for facts in starts} == starts


@pytest.mark.accepts("A16")
def test_each_run_of_a_fork_knows_who_made_it() -> None:
    """Also a later run, which is no fork by itself; a fork of an earlier release knows nothing."""
    origin = SessionFork(session_id="first", at_turn=2, by="anna@example.com")
    begun = SessionSnapshot.of_fork(REQUEST, "clerk", "clerk", (), (), origin)
    state = fold([SessionContinued(unpack(pack(begun), SessionSnapshot))])
    after = fold([SessionContinued(replace(state, count=1).snapshot(()))])
    old = SessionSnapshot.model_validate(begun.model_dump(exclude={"forked_from"}))
    before = fold([SessionContinued(old)])

    assert (begun.is_of_a_fork, old.is_of_a_fork) == (True, True)
    assert not replace(state, count=1).snapshot(()).is_of_a_fork
    assert (state.forked_from, after.forked_from, before.forked_from) == (origin, origin, None)
