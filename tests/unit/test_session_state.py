"""Properties of the fold of a session, for random orders of its facts."""

from __future__ import annotations

import base64
import itertools
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import errors, limits, validation
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
from perdure.session.wire import (
    Queued,
    Say,
    SessionFork,
    SessionRequest,
    SessionSnapshot,
    TurnEnd,
    TurnPart,
)
from perdure.temporal.histories import session_history
from perdure.temporal.payloads import pack, unpack
from perdure.turn.wire import Steer
from perdure.values.budgets import Budget, Spending
from perdure.values.content import parts_size
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    in_brief,
)
from perdure.values.reports import Outcome
from perdure.values.tasks import Task

from ..support.thorough import examples

MOST_FACTS = 60
IMAGE = Media(media_type="image/png", data="YWJj")
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
            parts = (Text(text="hello"), IMAGE) if luck.random() < 0.5 else ()
            return [MessageSent(f"m-{number}", "hello", if_busy, parts=parts)]
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
    first = UserMessage.of(state.given[0].text, parts=state.given[0].parts)
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


@pytest.mark.accepts("Y156")
@pytest.mark.parametrize("order", [*itertools.permutations(("m-1", "m-2", "m-3"))], ids="-".join)
def test_messages_that_come_too_late_keep_their_order(order: tuple[str, ...]) -> None:
    """Whichever the session hears of first, and before those that have waited."""
    sent = [MessageSent(one, "hello", "steer") for one in ("m-1", "m-2", "m-3")]
    facts: list[SessionFact] = [
        SessionStarted(REQUEST),
        MessageSent("m-0", "hello"),
        TurnBegan(1, "s/1"),
        MessageSent("m-4", "hello"),
        *sent,
        *(MessageSteered(one.id) for one in sent),
        *map(SteeringFailed, order),
    ]

    assert [one.id for one in fold(facts).queue] == ["m-1", "m-2", "m-3", "m-4"]


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
@pytest.mark.accepts("E51")
@given(any_session)
def test_message_may_be_known_before_the_turn_is_recorded(facts: list[SessionFact]) -> None:
    """The workflow takes in a message, or a resume, before what the same task tells of the turn
    before; history has it afterwards.
    """
    for place, fact in enumerate(facts):
        records = [*itertools.takewhile(_is_record, facts[place + 1 :])]
        if records and isinstance(fact, MessageSent | SessionResumed):
            before = facts[:place]
            assert fold([*before, *records, fact]) == fold([*before, fact, *records])


def _is_record(fact: SessionFact) -> bool:
    return isinstance(fact, TurnRecorded)


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


# Images and files


def sent_image(number: int, bytes_: int = 900) -> MessageSent:
    """A message with an image of its own."""
    data = base64.b64encode(bytes([number % 256]) * bytes_).decode()
    parts = (Text(text=f"{number}"), Media(media_type="image/png", data=data))
    return MessageSent(f"m-{number}", f"{number} [image/png]", parts=parts)


@pytest.mark.accepts("E183")
def test_messages_without_images_are_recorded_as_before() -> None:
    """Byte for byte: as updates, as signals, in the queue of a later run, and in a turn's input."""
    queued = Queued(id="1", text="a")
    state = fold([SessionStarted(REQUEST), MessageSent("1", "a"), MessageSent("2", "b")])

    assert pack(Say(text="a")).payload.data == b'{"text":"a"}'
    assert pack(Steer(text="a", id="1")).payload.data == b'{"text":"a","id":"1"}'
    assert queued.model_dump_json() == '{"id":"1","text":"a","by":null,"agent":null}'
    assert state.next_turn("s", "r").model_dump(include={"task", "said"}, exclude_none=True) == {
        "task": Task(content="a").model_dump(exclude_none=True),
        "said": ({"role": "user", "parts": ({"type": "text", "text": "b"},), "id": "2"},),
    }


@pytest.mark.accepts("E183")
def test_worker_of_an_earlier_release_refuses_a_message_with_an_image() -> None:
    """It does not know the parts, and the text alone is none."""
    for sent in (Say(text="", parts=(IMAGE,)), Steer(text="", parts=(IMAGE,))):
        earlier = json.loads(pack(sent).payload.data)["text"]

        assert not validation.accepts(validation.Message, earlier)


@pytest.mark.accepts("E180")
def test_text_before_the_parts_is_a_part() -> None:
    """As a program may send them that builds JSON itself."""
    payload = pack(Say(text="What is it?", parts=(IMAGE,)))

    assert session_history.sent("1", payload) == MessageSent(
        "1", "What is it? [image/png, 3 bytes]", parts=(Text(text="What is it?"), IMAGE)
    )


@pytest.mark.accepts("E184")
def test_images_are_left_out_before_turns_are() -> None:
    """Of the oldest messages of the user first; the text of each message stays, as does the last
    turn.
    """
    facts: list[SessionFact] = [SessionStarted(REQUEST)]
    for number in (1, 2, 3, 4):
        message = sent_image(number, 260_000)
        own = (UserMessage(parts=message.parts), AssistantMessage(parts=(Text(text="ok"),)))
        part = TurnPart(number=1, count=1, messages=own, end=TurnEnd(outcome=Outcome.COMPLETED))
        facts += [message, TurnBegan(number, f"s/{number}"), TurnOver(number)]
        facts.append(TurnRecorded(number, part))
    state = fold(facts)

    said = [one for one in state.messages if isinstance(one, UserMessage)]
    assert [len(one.media) for one in said] == [0, 0, 1, 1]
    assert said[0].text == (
        "1[image/png, 260 KB: left out, because newer messages fill the session]"
    )
    assert (state.dropped, state.starts) == (0, (0, 2, 4, 6))


@pytest.mark.accepts("E184")
def test_input_of_a_later_run_has_room_for_the_messages_that_wait() -> None:
    """Images of the conversation make room for them, also those of tools."""
    shown = Media(media_type="image/png", data="a" * 900_000)
    result = ToolResult(call_id="c", name="look", content=in_brief(shown), media=(shown,))
    own = (
        UserMessage(parts=sent_image(0).parts),
        AssistantMessage(parts=(ToolCall(id="c", name="look"),)),
        ToolMessage(results=(result,)),
        AssistantMessage(parts=(Text(text="ok"),)),
    )
    part = TurnPart(number=1, count=1, messages=own, end=TurnEnd(outcome=Outcome.COMPLETED))
    waits = sent_image(2, 700_000)
    began: list[SessionFact] = [sent_image(0), TurnBegan(1, "s/1"), TurnOver(1)]
    state = fold([SessionStarted(REQUEST), *began, TurnRecorded(1, part), waits])

    payload = pack(state.snapshot(()))
    later = fold([SessionContinued(unpack(payload, SessionSnapshot))])

    assert len(payload.payload.data) <= limits.PAYLOAD_BYTES
    assert [one.parts for one in later.queue] == [waits.parts]
    assert later.messages[2].media == ()  # type: ignore[union-attr]
    assert len(later.messages) == 4
    assert pack(state.snapshot((), 10**9), most_bytes=10**9).payload.data.count(b"aaaaa") > 0


@pytest.mark.accepts("E181")
@pytest.mark.parametrize("waiting", [0, 1, 2])
def test_room_of_a_queue_counts_text_and_images(waiting: int) -> None:
    facts = [MessageSent(f"{number}", "x", parts=(IMAGE,)) for number in range(waiting)]
    state = fold([SessionStarted(REQUEST), *facts])
    one = len(b'"x"') + parts_size((IMAGE,))
    state.check_room(facts[0] if facts else MessageSent("1", "x", parts=(IMAGE,)), one * 3)
    with pytest.raises(errors.SessionBusyError if waiting else errors.TooLargeError):
        state.check_room(MessageSent("1", "x", parts=(IMAGE,)), one * (waiting + 1) - 1)


@pytest.mark.accepts("S110")
@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.FAILED, Outcome.TERMINATED])
def test_messages_of_a_turn_that_has_read_none_wait_for_the_next_message(outcome: Outcome) -> None:
    """So a turn that cannot begin is not begun again and again."""
    sent = MessageSent("1", "one"), MessageSent("2", "two")
    end = TurnEnd(outcome=outcome, is_unread=True)
    recorded = TurnRecorded(1, TurnPart(number=1, count=1, end=end))
    state = fold([SessionStarted(REQUEST), *sent, TurnBegan(1, "s/1"), TurnOver(1), recorded])
    [turn] = state.turns

    assert [message.id for message in state.queue] == ["1", "2"]
    assert turn.unread == turn.messages == ("1", "2")
    assert not state.may_start
    assert apply(state, MessageSent("3", "three")).may_start
