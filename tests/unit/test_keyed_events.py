"""Events by key: which turn gets which event, what is kept, and what a turn remembers; all pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import errors, limits
from perdure.keyed_events import state as keyed_events
from perdure.keyed_events.wire import EventWaiter, KeyedEvents
from perdure.turn import event_keys
from perdure.turn.state import TurnState
from perdure.turn.wait_values import CallWait, Emit, TurnEvent, Woken

NOW = datetime(2026, 11, 27, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
EMPTY = KeyedEvents(name="built", key="42")


def taken(state: KeyedEvents, id: str, body: str = "", at: datetime = NOW) -> KeyedEvents:
    """The state after another event."""
    return keyed_events.taken_in(state, id, Emit(name="built", body=body), at)


def waits(state: KeyedEvents, turn_id: str, **fields: Any) -> KeyedEvents:
    """The state after another turn begins to wait."""
    waiter = EventWaiter(turn_id=turn_id, **{"until": NOW + HOUR, **fields})
    return keyed_events.awaited(state, waiter, NOW)


def sent(state: KeyedEvents, at: datetime = NOW) -> list[tuple[str, str]]:
    """Which turns are told of which events."""
    told = keyed_events.deliveries(state, at)
    return [(delivery.turn_id, delivery.event.id) for delivery in told]


@pytest.mark.accepts("W37", "W38")
def test_each_turn_that_waits_gets_the_first_event_that_it_has_not_got() -> None:
    """Now or within the hour; an event of an hour ago, and a wait that is over, are forgotten."""
    state = taken(taken(waits(EMPTY, "a"), "e-1"), "e-2")
    first, second = state.events
    state = waits(waits(state, "b", after=first.at), "c", after=second.at)

    assert sent(state) == [("a", "e-1"), ("b", "e-2")]
    assert second.at > first.at
    state = keyed_events.told(state, keyed_events.deliveries(state, NOW))
    assert sent(state) == []
    assert [waiter.turn_id for waiter in state.waiters] == ["c"]
    assert keyed_events.lasts_until(state) == second.at + HOUR
    assert keyed_events.current(state, second.at + HOUR) == state.model_copy(
        update={"events": (), "waiters": ()}
    )
    assert sent(waits(state, "d", until=NOW + 3 * HOUR), NOW + 2 * HOUR) == []


@pytest.mark.accepts("W38")
def test_one_id_is_one_event_as_long_as_it_is_known() -> None:
    """Also when the event is not kept any more; the last five hundred are known."""
    state = taken(taken(EMPTY, "e-1"), "e-1", "other")

    assert len(state.events) == 1
    later = taken(keyed_events.current(state, NOW + HOUR), "e-1", at=NOW + HOUR)
    assert later.events == ()
    for number in range(limits.EVENT_IDS):
        later = taken(later, f"other-{number}", at=NOW + number * HOUR)
    assert taken(later, "e-1", at=NOW + 600 * HOUR).events[-1].id == "e-1"


@pytest.mark.accepts("W43")
def test_events_without_room_are_refused_and_those_that_were_given_make_room() -> None:
    """A hundred that no turn has got are the most, and 256 KiB of them."""
    full = EMPTY
    for number in range(limits.KEPT_EVENTS):
        full = taken(full, f"e-{number}")

    with pytest.raises(errors.TooManyRequestsError, match="100 events 'built' with the key '42'"):
        taken(full, "late")
    assert taken(full, "e-7") is full
    assert taken(full, "late", at=NOW + HOUR + HOUR).events[-1].id == "late"
    roomy = taken(keyed_events.given(full, {"e-0", "e-1"}), "late")
    assert [roomy.events[0].id, roomy.events[-1].id] == ["e-1", "late"]

    large = EMPTY
    for number in range(5):
        large = taken(large, f"e-{number}", "x" * limits.EVENT_BYTES)
    with pytest.raises(errors.TooManyRequestsError):
        taken(large, "late", "x" * limits.EVENT_BYTES)
    with pytest.raises(errors.TooLargeError, match="more than 49152"):
        taken(EMPTY, "huge", "x" * 10_000_000)
    for id in ("", "a\nb", "x" * 101):
        with pytest.raises(errors.InvalidRequestError, match="id"):
            taken(EMPTY, id)


@pytest.mark.accepts("W44")
def test_turns_without_a_place_are_told_so() -> None:
    """A turn waits once; a wait that is over leaves its place, and the longer wait counts."""
    state = EMPTY
    for number in range(limits.EVENT_WAITERS):
        state = waits(state, f"t-{number}")
    full = waits(state, "late")

    [refusal] = keyed_events.deliveries(full, NOW)
    assert refusal.turn_id == "late"
    assert refusal.event.refusal == "2000 turns wait for this event and key, which is the most"
    assert keyed_events.deliveries(keyed_events.told(full, [refusal]), NOW) == ()
    again = waits(state, "t-0", until=NOW + timedelta(minutes=1))
    assert again.refused == ()
    assert again.waiters[-1].until == NOW + HOUR
    after = EventWaiter(turn_id="late", until=NOW + 3 * HOUR)
    assert keyed_events.awaited(state, after, NOW + HOUR).waiters == (after,)
    assert len(waits(state, "x" * 300_000).refused) == 1


@pytest.mark.accepts("W44")
def test_what_is_sent_at_once_is_bounded() -> None:
    """A megabyte, or two hundred turns: the rest is sent afterwards, and nobody is forgotten."""
    state = taken(EMPTY, "e-1", "x" * 48_000)
    for number in range(300):
        state = waits(state, f"t-{number}")
    rounds = []
    while told := keyed_events.deliveries(state, NOW):
        rounds.append(len(told))
        state = keyed_events.told(state, told)

    assert rounds == [20] * 15
    small = state.model_copy(update={"waiters": waits(EMPTY, "x").waiters * 300})
    small = small.model_copy(update={"events": taken(EMPTY, "e-1").events})
    assert len(keyed_events.deliveries(small, NOW)) == 200


@pytest.mark.accepts("W41")
def test_turn_of_another_tenant_does_not_wait() -> None:
    """Nor a turn without a tenant, for events of a tenant; ids and keys say whose they are."""
    of_a = KeyedEvents(name="built", key="@a/42")

    assert waits(of_a, "@b/turn").waiters == waits(of_a, "turn").waiters == ()
    assert waits(EMPTY, "@a/turn").waiters == ()
    [waiter] = waits(of_a, "@a/turn").waiters
    assert waiter.turn_id == "@a/turn"
    ids = {
        event_keys.workflow_id(name, key)
        for name in ("a", "a/b", "%61", "x" * 200)
        for key in ("c", "b/c", "@a/c", "%63", "y" * 200, "ü" * 200)
    }
    assert len(ids) == 24
    assert max(len(id.encode()) for id in ids) < 1000
    assert all(id.startswith("events//") for id in ids)


@pytest.mark.accepts("W42")
@pytest.mark.parametrize("key", ["", " ", "a\nb", "x" * 201, "@b/42", "@", 4.5, True, [], {}])
def test_key_of_a_call_that_is_not_valid(key: Any) -> None:
    """Is an error result; a whole number is taken as its text."""
    with pytest.raises(ValueError, match="key is no line of 1 to 200"):
        event_keys.key_in({"key": key})
    assert event_keys.key_in({"key": 42}) == "42"
    assert event_keys.key_in({}) == event_keys.key_in({"key": None}) == ""


def event(number: int, body: str = "", **fields: Any) -> TurnEvent:
    """An event by key, as a turn is told of it."""
    at = NOW + timedelta(minutes=number)
    common = {"id": f"e-{number}", "name": "built", "key": "42", "at": at, "body": body}
    return TurnEvent(**{**common, **fields})


def ended(number: int) -> Woken:
    """The end of a wait by such an event."""
    return Woken(key="x", by="event", event_id=f"e-{number}", event="built", event_key="42")


@pytest.mark.accepts("W38", "W40")
def test_turn_takes_an_event_once_however_often_it_comes() -> None:
    """What it has got, and what came before that, is not kept; a late one is kept for later."""
    state = event_keys.emitted(event_keys.emitted(TurnState(), event(1)), event(1))

    assert [each.id for each in state.events] == ["e-1"]
    state = event_keys.without(state, [ended(1)])
    assert state.events == event_keys.emitted(state, event(1)).events == ()
    assert event_keys.emitted(state, event(0)).events == ()
    late = event_keys.emitted(state, event(2))
    assert event_keys.event_of(late, ended(2)) == event(2)
    other = event_keys.emitted(late, event(1, key="43"))
    assert [each.key for each in other.events] == ["42", "43"]


@pytest.mark.accepts("W40")
def test_what_a_turn_keeps_of_late_events_is_bounded() -> None:
    """The newest are kept; and of the names and keys whose events it has got, the last hundred."""
    state = TurnState()
    for number in range(200):
        state = event_keys.emitted(state, event(number, "x" * 40_000, key=f"k-{number}"))
    assert [each.key for each in state.events] == [f"k-{number}" for number in range(194, 200)]
    for number in range(200):
        given = event_keys.emitted(state, event(number, key=f"g-{number}"))
        end = ended(number).model_copy(update={"event_key": f"g-{number}"})
        state = event_keys.without(given, [end])
    assert len(state.last_events) == limits.LAST_EVENTS


@pytest.mark.accepts("W44")
def test_refusal_ends_the_wait_that_it_is_about() -> None:
    """And no wait that begins later."""
    refusal = event(1, id="refused", refusal="too many")
    state = event_keys.emitted(TurnState(), refusal)
    wait = CallWait(key="x", note="n", since=NOW, until=NOW + HOUR, event="built", event_key="42")

    assert event_keys.event_for(state, wait, ()) == refusal
    later = wait.model_copy(update={"since": NOW + timedelta(minutes=2)})
    assert event_keys.event_for(state, later, ()) is None
