"""Events by key: their keys, and which of them the calls of a turn get.

An event by key is for all turns of its tenant that wait for its name and key. A turn gets it from
the workflow that keeps the events of that name and key. It may come again, after the wait for it,
or twice, so the state has the moment of the last event that calls have got.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from typing import Annotated, Any
from urllib.parse import quote

from perdure import limits
from perdure.base import replace
from perdure.text import harmless, size
from perdure.turn.state import TurnState
from perdure.turn.wait_values import CallWait, LastEvent, TurnEvent, Woken
from perdure.validation import Must

_TENANT = re.compile(rf"@[A-Za-z0-9_-]{{1,{limits.TENANT_CHARACTERS}}}/")
_READABLE_BYTES = 600
"""The length of a name and a key in the id of a workflow, which has at most 1,000 bytes."""


def _is_key(value: object) -> bool:
    if not isinstance(value, str) or not 0 < len(value) <= limits.EVENT_KEY_CHARACTERS:
        return False
    within_tenant = own_part(value)
    is_line = bool(within_tenant.strip()) and harmless(value) == value
    return is_line and not within_tenant.startswith("@")


EventKey = Annotated[
    str,
    Must(
        f"one line of 1 to {limits.EVENT_KEY_CHARACTERS} visible characters that does not begin"
        " with @, except with the @tenant/ of its turns",
        _is_key,
    ),
]
"""The key of an event: complete, so with the tenant of the turns that may wait for it."""


def tenant_prefix(id: str) -> str:
    """Return the beginning of an id or a key that names its tenant; empty without a tenant."""
    match = _TENANT.match(id)
    return match[0] if match else ""


def own_part(key: str) -> str:
    """Return a complete key without its tenant."""
    return key.removeprefix(tenant_prefix(key))


def workflow_id(name: str, key: str) -> str:
    """Return the id of the workflow that keeps the events of a name and a complete key.

    No turn can have it, because of the empty part. A long one is replaced by its digest.
    """
    readable = f"{quote(name, safe='')}/{key}"
    if size(readable) > _READABLE_BYTES:
        readable = hashlib.sha256(readable.encode()).hexdigest()
    return f"events//{readable}"


def key_in(arguments: dict[str, Any]) -> str:
    """Return the key in the arguments of a call that waits; empty without a key.

    Raises:
        ValueError: It is not valid.
    """
    key = arguments.get("key")
    if key is None:
        return ""
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not _is_key(key) or key.startswith("@"):
        raise ValueError(
            f"key is no line of 1 to {limits.EVENT_KEY_CHARACTERS} visible characters that does not"
            " begin with @"
        )
    assert isinstance(key, str)
    return key


def event_for(state: TurnState, wait: CallWait, taken: Collection[str]) -> TurnEvent | None:
    """Return the event that a wait gets now; None without one.

    An event of the turn alone is given once, so not if it is `taken` by another call. An event by
    key is for all calls that wait for it.
    """
    return next(
        (
            event
            for event in state.events
            if (event.name, event.key) == (wait.event, wait.event_key)
            and (event.key or event.id not in taken)
            and not _is_old_refusal(event, wait)
        ),
        None,
    )


def _is_old_refusal(event: TurnEvent, wait: CallWait) -> bool:
    """Return whether a refusal is about a wait before this one."""
    return bool(event.refusal) and event.at is not None and event.at < wait.since


def event_of(state: TurnState, end: Woken) -> TurnEvent | None:
    """Return the event that has ended a wait; None for another end."""
    return next((event for event in state.events if _is_of(event, end)), None)


def _is_of(event: TurnEvent, end: Woken) -> bool:
    if event.id != end.event_id or event.key != end.event_key:
        return False
    return not event.key or event.name == end.event


def without(state: TurnState, ends: Sequence[Woken]) -> TurnState:
    """Return the state without the events that have ended waits."""
    given = [event for event in state.events if any(_is_of(event, end) for end in ends)]
    if not given:
        return state
    last = list(state.last_events)
    for event in given:
        if event.key and event.at is not None:
            last = [each for each in last if (each.name, each.key) != (event.name, event.key)]
            last.append(LastEvent(name=event.name, key=event.key, at=event.at))
    events = tuple(event for event in state.events if event not in given)
    return replace(state, events=events, last_events=tuple(last[-limits.LAST_EVENTS :]))


def last_event(state: TurnState, name: str, key: str) -> LastEvent | None:
    """Return the last event of a name and a key that calls have got; None without one."""
    found = (each for each in state.last_events if (each.name, each.key) == (name, key))
    return next(found, None)


def emitted(state: TurnState, event: TurnEvent) -> TurnState:
    """Return the state with an event by key, unless calls have got it, or the turn keeps it.

    One that comes after the end of its wait is kept for the next, within the limits of the turn.
    """
    last = last_event(state, event.name, event.key)
    if last is not None and event.at is not None and event.at <= last.at:
        return state
    others = [kept for kept in state.events if not _is_same(kept, event)]
    keyed = [kept for kept in others if kept.key]
    while _are_too_many([*keyed, event]):
        others.remove(keyed.pop(0))
    return replace(state, events=(*others, event))


def _is_same(kept: TurnEvent, event: TurnEvent) -> bool:
    return (kept.name, kept.key, kept.at) == (event.name, event.key, event.at)


def _are_too_many(events: Sequence[TurnEvent]) -> bool:
    bytes_ = sum(size(event.body) for event in events)
    return len(events) > limits.KEPT_EVENTS or bytes_ > limits.KEPT_EVENTS_BYTES
