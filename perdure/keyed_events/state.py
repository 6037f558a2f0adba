"""Which turns get which events of a name and a key, and which events are kept.

Each event is for every turn that waits, and is kept for an hour for those that come later. A turn
gets the first event after the last one that it has got, and is no waiter then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from perdure import limits, validation
from perdure.errors import InvalidRequestError, TooManyRequestsError
from perdure.keyed_events.wire import EventWaiter, KeptEvent, KeyedEvents
from perdure.text import size
from perdure.turn.call_waits import check_body
from perdure.turn.event_keys import own_part, tenant_prefix
from perdure.turn.wait_values import Emit, EmitByKey

_TICK = timedelta(microseconds=1)
_TURNS_AT_ONCE = 200
_BYTES_AT_ONCE = 1_000_000
"""The size of the events that one workflow task sends: the server takes 4 MB of commands."""


@dataclass(frozen=True, slots=True)
class EventDelivery:
    """What a turn is told."""

    turn_id: str
    event: EmitByKey


def _check(event_id: str, event: Emit) -> None:
    """Refuse an event that is not valid.

    Raises:
        InvalidRequestError: Its id or its sender is not valid.
        TooLargeError: It is too large.
    """
    validation.check(
        "the event",
        {"id": event_id, "by": event.by},
        {"id": validation.MessageId, "by": validation.By | None},
        InvalidRequestError,
    )
    check_body(event.body)


def _no_room(state: KeyedEvents, kept: Sequence[KeptEvent]) -> TooManyRequestsError:
    return TooManyRequestsError(
        f"{len(kept)} events {state.name!r} with the key {own_part(state.key)!r} wait for a turn,"
        f" which is the most ({limits.KEPT_EVENTS}, and {limits.KEPT_EVENTS_BYTES} bytes); each is"
        " kept for an hour, so send this one again later",
        context={"events": len(kept), "limit": limits.KEPT_EVENTS},
    )


def _fits(kept: Sequence[KeptEvent], body: str) -> bool:
    bytes_ = sum(size(each.body) for each in kept) + size(body)
    return len(kept) < limits.KEPT_EVENTS and bytes_ <= limits.KEPT_EVENTS_BYTES


def _current(state: KeyedEvents, now: datetime) -> list[KeptEvent]:
    """Return the events that are not older than an hour."""
    return [event for event in state.events if now - event.at < limits.EVENT_KEPT]


def taken_in(state: KeyedEvents, event_id: str, event: Emit, now: datetime) -> KeyedEvents:
    """Return the state with another event, unless it knows the id.

    To make room, the first of those go that a turn has got.

    Raises:
        InvalidRequestError: Its id or its sender is not valid.
        TooLargeError: It is too large.
        TooManyRequestsError: Too many events are kept that no turn has got.
    """
    if event_id in state.ids:
        return state
    _check(event_id, event)
    kept = _current(state, now)
    while not _fits(kept, event.body):
        given = next((each for each in kept if each.is_given), None)
        if given is None:
            raise _no_room(state, kept)
        kept.remove(given)
    at = now if state.last is None else max(now, state.last + _TICK)
    new = KeptEvent(id=event_id, at=at, body=event.body, by=event.by)
    ids = (*state.ids, event_id)[-limits.EVENT_IDS :]
    return state.model_copy(update={"events": (*kept, new), "ids": ids, "last": at})


def awaited(state: KeyedEvents, waiter: EventWaiter, now: datetime) -> KeyedEvents:
    """Return the state with a turn that waits. It waits once, for as long as the longest wait.

    A turn of another tenant does not wait here. If too many wait, the turn is to be told so.
    """
    if tenant_prefix(waiter.turn_id) != tenant_prefix(state.key):
        return state
    others = [each for each in state.waiters if each.until > now]
    before = next((each for each in others if each.turn_id == waiter.turn_id), None)
    if before is not None:
        others.remove(before)
        until = max(before.until, waiter.until)
        waiter = waiter.model_copy(update={"until": until})
    elif not _has_place(others, waiter):
        refused = (*state.refused, waiter.turn_id)
        return state.model_copy(update={"waiters": tuple(others), "refused": refused})
    return state.model_copy(update={"waiters": (*others, waiter)})


def _has_place(others: Sequence[EventWaiter], waiter: EventWaiter) -> bool:
    bytes_ = sum(size(each.turn_id) for each in (*others, waiter))
    return len(others) < limits.EVENT_WAITERS and bytes_ <= limits.EVENT_WAITERS_BYTES


def deliveries(state: KeyedEvents, now: datetime) -> tuple[EventDelivery, ...]:
    """Return what turns are to be told now, as much as a workflow task sends."""
    told: list[EventDelivery] = []
    bytes_ = 0
    for delivery in _due(state, now):
        bytes_ += size(delivery.event.body)
        if told and (len(told) == _TURNS_AT_ONCE or bytes_ > _BYTES_AT_ONCE):
            break
        told.append(delivery)
    return tuple(told)


def _due(state: KeyedEvents, now: datetime) -> Iterator[EventDelivery]:
    for turn_id in state.refused:
        yield EventDelivery(turn_id, _refusal(state, now))
    events = _current(state, now)
    if not events:
        return
    for waiter in state.waiters:
        after = waiter.after
        event = next((each for each in events if after is None or each.at > after), None)
        if event is not None and waiter.until > now:
            yield EventDelivery(waiter.turn_id, _for_turn(state, event))


def _refusal(state: KeyedEvents, now: datetime) -> EmitByKey:
    refusal = f"{len(state.waiters)} turns wait for this event and key, which is the most"
    key = own_part(state.key)
    return EmitByKey(id="refused", name=state.name, key=key, at=now, refusal=refusal)


def _for_turn(state: KeyedEvents, event: KeptEvent) -> EmitByKey:
    key = own_part(state.key)
    return EmitByKey(
        id=event.id, name=state.name, key=key, at=event.at, body=event.body, by=event.by
    )


def told(state: KeyedEvents, sent: Sequence[EventDelivery]) -> KeyedEvents:
    """Return the state after turns are told: they do not wait any more."""
    turns = {delivery.turn_id for delivery in sent if not delivery.event.refusal}
    refused = {delivery.turn_id for delivery in sent if delivery.event.refusal}
    return state.model_copy(
        update={
            "waiters": tuple(each for each in state.waiters if each.turn_id not in turns),
            "refused": tuple(each for each in state.refused if each not in refused),
        }
    )


def given(state: KeyedEvents, event_ids: Collection[str]) -> KeyedEvents:
    """Return the state after turns have got events."""
    events = (
        each.model_copy(update={"is_given": True}) if each.id in event_ids else each
        for each in state.events
    )
    return state.model_copy(update={"events": tuple(events)})


def current(state: KeyedEvents, now: datetime) -> KeyedEvents:
    """Return the state without what is over: events of an hour ago, and waits that have ended."""
    return state.model_copy(
        update={
            "events": tuple(_current(state, now)),
            "waiters": tuple(each for each in state.waiters if each.until > now),
        }
    )


def lasts_until(state: KeyedEvents) -> datetime | None:
    """Return the moment at which nothing of the state is left; None if nothing is."""
    moments = [each.at + limits.EVENT_KEPT for each in state.events]
    moments += [each.until for each in state.waiters]
    return max(moments, default=None)
