"""Values of events by key that are stored in Temporal."""

from __future__ import annotations

from datetime import datetime

from perdure.base import Wire


class KeptEvent(Wire):
    """An event that is kept for turns that begin to wait for it.

    Attributes:
        id: Its id.
        at: The moment at which it was taken in. No two of a name and a key have the same.
        body: What it holds, as JSON text; empty for an event without a body.
        by: Who has sent it.
        is_given: Whether a turn has it.
    """

    id: str
    at: datetime
    body: str = ""
    by: str | None = None
    is_given: bool = False


class EventWaiter(Wire):
    """A turn that waits for the next event.

    Attributes:
        turn_id: The id of the turn.
        until: The moment at which its wait ends at the latest.
        after: The moment of the last event that it has got; None if it has got none.
    """

    turn_id: str
    until: datetime
    after: datetime | None = None


class KeyedEvents(Wire):
    """The input of a run of the workflow: the events of a name and a key, and who waits for them.

    Attributes:
        name: The name of the events.
        key: Their key, with the tenant of the turns that may wait for them.
        events: Those that are kept, in the order in which they came.
        waiters: The turns that wait, each once.
        refused: The turns that cannot wait, because too many do, until they are told so.
        ids: The ids of the last events, which are known again.
        last: The moment of the last event.
    """

    name: str
    key: str
    events: tuple[KeptEvent, ...] = ()
    waiters: tuple[EventWaiter, ...] = ()
    refused: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    last: datetime | None = None


class Registration(Wire):
    """A turn that is to wait for an event of a name and a complete key."""

    name: str
    key: str
    waiter: EventWaiter
