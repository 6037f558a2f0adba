"""The state of a turn that is carried over to another run: nothing that matters is lost.

The turns are those of `simulated`, which the real rules play.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import errors
from perdure.agents.definitions import AgentDefinition
from perdure.temporal import outcomes
from perdure.temporal.payloads import pack, unpack
from perdure.turn import carry, guards, take_over
from perdure.turn.context_window import Cut, sent
from perdure.turn.decide import Stop, next_move
from perdure.turn.facts import (
    AgentResolved,
    BudgetAdded,
    CallFailed,
    Decided,
    ModelAnswered,
    Recorded,
    Resumed,
    Scheduled,
    ToolLost,
    ToolReturned,
    TurnStarted,
)
from perdure.turn.fold import apply, fold
from perdure.turn.keys import AgentKey, CarryKey, ModelKey, ToolKey
from perdure.turn.situation import Situation
from perdure.turn.snapshot import VERSION, CarriedPart
from perdure.turn.state import CarriedOver, TurnState
from perdure.turn.wire import Origin, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision
from perdure.values.losses import Loss
from perdure.values.messages import (
    AssistantMessage,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    closed,
)
from perdure.values.reports import StopReason
from perdure.values.tasks import Task

from ..support.carried_states import carried, continued, parts_of
from ..support.folding import AGENT
from ..support.simulated import SENT_AT, Played, turn
from ..support.thorough import examples


def is_free(state: TurnState) -> bool:
    """Whether a turn may go on in a new run."""
    return (
        state.agent is not None
        and not state.in_flight
        and state.ended is None
        and state.cancel_reason is None
    )


def told(state: TurnState, agent: AgentDefinition) -> dict[str, Any]:
    """All of a state that something depends on later."""
    cut = state.transcript.cut(agent.model)
    move = next_move(Situation(state, agent)) if is_free(state) else None
    if isinstance(move, Stop):
        move_told: Any = (type(move.error), move.error.message)
    else:
        move_told = move
    return {
        "sent": sent(state.transcript.messages, cut),
        "partial": state.partial[len(state.transcript.messages) :],
        "input": state.input_bound(agent.model, cut),
        "accounts": state.accounts,
        "open": state.open_step,
        "attempts": state.attempts,
        "waiting": state.waiting,
        "finishing": state.finishing,
        "steps": state.step_count,
        "last": state.steps[-3:],
        "warned": guards.warned_of_loop(state, agent),
        "priced": state.is_priced,
        "move": move_told,
    }


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_turn_goes_on_as_if_it_had_not_been_carried(seed: int, luck: int) -> None:
    """At any moment at which nothing of it runs, and again later: the same facts lead to the same
    requests, bills, gates and moves. A reader that knows the earlier runs has the whole transcript.
    """
    played = turn(seed)
    places = [place for place, state in enumerate(played.states) if is_free(state)]
    if not places:
        return
    chosen = random.Random(luck)
    place = chosen.choice(places)
    ours = carried(played.states[place])
    reader = fold([continued(played.states[place])], played.states[place])
    for number in range(place, len(played.facts)):
        assert told(ours, played.agent) == told(played.states[number], played.agent)
        if is_free(ours) and chosen.random() < 0.1:
            reader = fold([continued(ours), *parts_of(ours)], reader)
            ours = carried(ours)
        ours = apply(ours, played.facts[number])
        reader = apply(reader, played.facts[number])

    assert reader.all_messages == played.state.partial
    assert reader.all_steps == played.state.steps
    assert reader.whole_from == 1


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 500, 10**6]))
def test_parts_hold_what_was_split(seed: int, most_bytes: int) -> None:
    """Through JSON, whatever their size: the digest is the same."""
    for state in turn(seed).states:
        if is_free(state):
            whole = carry.state_of(state)
            parts = [unpack(pack(part), CarriedPart) for part in carry.split(whole, most_bytes)]

            assert carry.join(parts) == whole
            assert carry.join(parts).digest == whole.digest


def with_long_results() -> tuple[TurnState, list[int]]:
    """A turn between two activities, with the places of its messages with results. These are so
    long that a note would replace them.
    """
    for seed in range(3_000):
        played = turn(seed)
        facts = [
            replace(fact, output=fact.output.model_copy(update={"content": "x" * 500}))
            if isinstance(fact, ToolReturned)
            else fact
            for fact in played.facts
        ]
        for state in (fold(facts[:count]) for count in range(len(facts))):
            messages = enumerate(state.transcript.messages)
            places = [place for place, message in messages if is_long(message)]
            if is_free(state) and len(places) > 1:
                return state, places
    raise AssertionError("no turn has the results of two steps")


def is_long(message: Message) -> bool:
    return isinstance(message, ToolMessage) and any(
        len(result.content) >= 500 for result in message.results
    )


def cut_at(state: TurnState, place: int) -> TurnState:
    """The state after a request without the results before a place."""
    assert state.agent is not None
    cut = Cut(results=place)
    return replace(state, transcript=state.transcript.with_cut(state.agent.model, cut))


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32 - 1), st.integers(500, 20_000))
def test_turn_of_a_session_counts_messages_that_it_does_not_have(
    seed: int, most_bytes: int
) -> None:
    """Its state is that of a turn that has them, also once it takes them over after all."""
    played = turn(seed)
    messages = closed(played.state.transcript.messages)
    origin = carry.after_session("s", "r", messages)
    assert origin is not None
    assert origin.preceding is not None
    given_parts = carry.split(carry.Carried(messages, 0), most_bytes)
    taken_over = list[Recorded]()
    for number, part in enumerate(given_parts, 1):
        taken_over += [
            Scheduled(CarryKey(number)),
            outcomes.completed(CarryKey(number), pack(part)),
        ]

    def begun(origin: Origin, *facts: Recorded) -> TurnState:
        request = TurnRequest(agent="a", task=Task(content="Go on."), session="s", origin=origin)
        state = fold([outcomes.started(pack(request)), *facts])
        return replace(state, request=None, carried=CarriedOver())

    eager = begun(origin.model_copy(update={"preceding": None}), *taken_over)
    lean = begun(origin)
    assert lean.transcript.messages == eager.transcript.messages[len(messages) :]
    assert take_over.complete(lean, messages) == eager == begun(origin, *taken_over)
    assert lean.transcript.length == len(eager.transcript.messages)


def test_takeover_in_the_middle_of_a_step_keeps_its_failed_attempts() -> None:
    """A turn of a session takes messages over when a second model has a smaller window."""
    messages = (UserMessage.of("Hello."), AssistantMessage(parts=(Text(text="Hi."),)))
    origin = carry.after_session("s", "r", messages)
    request = TurnRequest(agent="a", task=Task(content="Go on."), session="s", origin=origin)
    away = CallFailed(ModelKey(1), errors.LLMUnavailableError("away").info(), model="m:m")
    lost = CallFailed(CarryKey(1), errors.PerdureError("lost").info(), lost=True)
    began = [outcomes.started(pack(request)), Scheduled(ModelKey(1)), away, Scheduled(CarryKey(1))]
    [part] = carry.split(carry.Carried(messages, 0))
    key = CarryKey(1, 2)

    waiting = fold([*began, lost])
    state = fold([*began, lost, Scheduled(key), outcomes.completed(key, pack(part))])

    assert [waiting.waiting and waiting.waiting.kind, state.waiting] == ["retry", None]
    assert [one.key for one in state.attempts.failures] == [ModelKey(1)]
    assert (state.transcript.absent, state.transcript.messages[:2]) == (0, messages)


def test_part_that_is_not_sent_is_counted_over_all_runs() -> None:
    """After the takeover, with the next cut, and in the run after that."""
    state, [first, second, *_] = with_long_results()
    before = cut_at(state, first + 1)
    after = cut_at(before, second + 1)
    ours = carried(before)
    ours_after = cut_at(ours, second + 1)

    assert ours.transcript.left_out == before.transcript.left_out != after.transcript.left_out
    assert ours_after.transcript.left_out == after.transcript.left_out
    assert carried(ours_after).transcript.left_out == after.transcript.left_out


def waits_for_two() -> tuple[Played, TurnState]:
    """A turn that waits for decisions about two calls at least."""
    for seed in range(3_000):
        played = turn(seed)
        for state in played.states:
            if state.waiting and len(state.waiting.pending) > 1 and len(state.asked.calls) > 1:
                return played, state
    raise AssertionError("no turn waits for two decisions")


def decision(state: TurnState, place: int, **given: Any) -> Decided:
    assert state.waiting is not None
    one = state.waiting.pending[place]
    fields = {"call_id": one.call_id, "digest": one.digest, "approve": True, **given}
    return Decided(Decision(**fields))


@pytest.mark.accepts("Y28")
def test_updates_that_come_while_a_run_takes_over_count_afterwards() -> None:
    """For who reads one run and for who has read the run before: what was asked for counts once;
    a second decision, one with other arguments, and a resume that nothing waits for are refused.
    """
    _, state = waits_for_two()
    state = apply(state, BudgetAdded(None, iterations=2))
    first, second = decision(state, 0), decision(state, 1, approve=False)
    again, wrong = decision(state, 0, approve=False), decision(state, 1, digest="other")
    updates: list[Recorded] = [
        wrong,
        first,
        again,
        second,
        Resumed(),
        BudgetAdded(None, iterations=1),
    ]
    began, parts = continued(state), parts_of(state)
    after_one_run = fold([began, parts[0], *updates, *parts[1:]])
    after_both = fold([began, parts[0], *updates, *parts[1:]], state)
    expected = fold([first, second, BudgetAdded(None, iterations=1)], state)

    for found in (after_one_run, after_both):
        assert found.open_step == expected.open_step
        assert found.accounts == expected.accounts
        assert found.carried.refused == (wrong, again, Resumed())
        assert found.carried.waiting_facts == ()
    assert after_one_run.partial == expected.partial


def test_reader_that_knows_the_run_before_knows_the_state_at_once() -> None:
    """Before any part was carried over, and also when one cannot be."""
    played, state = waits_for_two()
    at_once = fold([continued(state), *parts_of(state)[:1]], state)

    assert told(replace(at_once, in_flight={}), played.agent) == told(state, played.agent)
    assert not at_once.awaits_parts


def test_run_without_the_state_of_the_run_before_knows_steps_and_spending() -> None:
    """They are in its input, for the report of a turn whose earlier run was deleted."""
    played = turn(5)
    state = [one for one in played.states if is_free(one)][-1]
    alone = fold([continued(state)])

    assert (alone.step_count, alone.charged) == (state.step_count, state.charged)
    assert alone.is_priced is False
    assert alone.whole_from == state.step_count + 1


@pytest.mark.accepts("Y34")
def test_state_that_is_not_what_the_run_before_left_is_refused() -> None:
    """Typed, when the last part is there."""
    played = turn(5)
    states = [one for one in played.states if is_free(one)]
    parts = parts_of(states[-1])
    with pytest.raises(errors.TranscriptMismatchError, match="nothing was sent"):
        fold([continued(states[0]), *parts])
    with pytest.raises(errors.TranscriptMismatchError, match="nothing was sent"):
        fold([continued(states[0])], states[-1])


@pytest.mark.accepts("Y33")
def test_part_of_a_later_version_is_refused_before_it_is_read() -> None:
    """Whatever its shape is."""
    with pytest.raises(errors.UnknownVersionError) as caught:
        outcomes.completed(
            CarryKey(1), pack(_Later(version=VERSION + 1, number="one", count="one"))
        )

    assert caught.value.context == {"version": VERSION + 1}


@pytest.mark.accepts("Y35")
def test_release_without_runs_refuses_the_input_of_a_later_run() -> None:
    """It has no agent and no task at the top, so that such a worker never begins the turn again."""
    state = next(one for one in turn(5).states if is_free(one))
    given = pack(continued(state).continuation)
    with pytest.raises(errors.InvalidRequestError, match="agent"):
        unpack(given, TurnRequest)


class _Later(CarriedPart):
    """A part as a later release may record it."""

    number: str  # type: ignore[assignment]  # another shape
    count: str  # type: ignore[assignment]


@pytest.mark.accepts("T65")
def test_loss_of_an_attempt_is_carried_but_not_in_the_digest() -> None:
    """A worker of an earlier release drops it, and computes the same digest."""
    tools = tuple(item.model_copy(update={"is_idempotent": True}) for item in AGENT.tools)
    agent = AGENT.model_copy(update={"tools": tools})
    call = ToolCall(id="c1", name="write")
    answer = ModelAnswer(
        message=AssistantMessage(parts=(call,)), stop=StopReason.TOOL_CALLS, model="any"
    )
    lost = ToolLost(ToolKey(1, 1), Loss.WORKER_LOST, sent_at=SENT_AT)
    request = TurnRequest(agent="any", task=Task(content="go"))
    begun = (TurnStarted(request), AgentResolved(AgentKey(), agent))
    state = fold([*begun, ModelAnswered(ModelKey(1), answer), lost])
    open_call = replace(state.open_step.at(1), loss=None)
    without = replace(state, open_step=state.open_step.with_call(1, open_call))

    assert carried(state).open_step.at(1).loss == lost.how
    assert carry.state_of(state).digest == carry.state_of(without).digest
