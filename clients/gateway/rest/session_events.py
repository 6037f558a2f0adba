"""The events of a session over HTTP, as server-sent events."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping

from pydantic_core import to_json
from sse_starlette.event import ServerSentEvent

from perdure.clients.gateway.inputs import Query
from perdure.clients.gateway.operations import Call, operation
from perdure.clients.gateway.streams import EventStream, begun
from perdure.clients.reading.events import VERSION
from perdure.clients.reading.tree_text import TurnText
from perdure.clients.sessions.readable import SessionEvent
from perdure.session import facts
from perdure.temporal import access
from perdure.temporal.histories.runs import describe
from perdure.temporal.names import SESSION

SHOWN: Mapping[type, tuple[str, tuple[str, ...]]] = {
    facts.SessionStarted: ("session_started", ()),
    facts.SessionContinued: ("session_continued", ()),
    facts.MessageSent: ("message_sent", ("id", "text", "if_busy", "by", "agent")),
    facts.MessageSteered: ("message_steered", ("id",)),
    facts.SteeringFailed: ("steering_failed", ("id",)),
    facts.MessageUnqueued: ("message_unqueued", ("id",)),
    facts.ReminderSet: ("reminder_set", ("reminder",)),
    facts.ReminderForgotten: ("reminder_forgotten", ("id", "by")),
    facts.ReminderDue: ("reminder_due", ("id",)),
    facts.TurnBegan: ("turn_began", ("number", "turn_id")),
    facts.TurnOver: ("turn_over", ("number", "began")),
    facts.TurnRecorded: ("turn_recorded", ("number",)),
    facts.TurnInterrupted: ("turn_interrupted", ("reason",)),
    facts.SessionBudgetAdded: ("session_budget_added", ("more",)),
    facts.SessionResumed: ("session_resumed", ()),
    facts.SessionClosed: ("session_closed", ("reason",)),
}
"""The kind of each fact, and the fields that are sent; a field that is added later is not."""


class WatchSession(Query):
    """Which events.

    Attributes:
        after: The id of the last known event, where a client cannot send `Last-Event-ID`.
        text: Whether the text of the turns is sent as well, with that of their delegates. Messages
            of text have no id; each names its turn.
    """

    after: str | None = None
    text: bool = False


@operation("GET", "/v1/sessions/{id:path}/events", may="read")
async def watch_session(call: Call, query: WatchSession) -> EventStream | None:
    """Stream the events of a session, until it is closed.

    The id of each message is the cursor of its event. A client that sends the last one as
    `Last-Event-ID` gets the events after it. The events of a turn are those of the turn itself.
    """
    after = call.request.headers.get("last-event-id") or query.after
    with contextlib.ExitStack() as held:
        held.enter_context(call.stay_open())
        is_over = await _is_over(call)
        session = call.client.session(call.id)
        events = session.live(after) if query.text else session.events(after)
        items = await begun(events, held, is_over=is_over)
        if items is None:
            return None
        return EventStream(_messages(items), held.pop_all())


async def _is_over(call: Call) -> bool:
    """Whether the session is closed. A slow server is waited for, before the stream begins.

    Raises:
        SessionNotFoundError: There is no such session.
    """
    describing = describe(call.client.temporal, call.id, retry=True)
    description = await access.SESSION.asked(call.id, describing)
    if description.workflow_execution_info.type.name != SESSION:
        raise access.SESSION.missing(call.id)
    return description.workflow_execution_info.HasField("close_time")


async def _messages(
    items: AsyncGenerator[SessionEvent | TurnText, None],
) -> AsyncGenerator[ServerSentEvent, None]:
    async with contextlib.aclosing(items):
        async for item in items:
            if isinstance(item, TurnText):
                yield ServerSentEvent(to_json(item.to_json()).decode())
            else:
                yield ServerSentEvent(to_json(_public(item)).decode(), id=item.cursor)


def _public(event: SessionEvent) -> dict[str, object]:
    kind, names = SHOWN[type(event.fact)]
    return {
        "v": VERSION,
        "session": event.session_id,
        "kind": kind,
        "cursor": event.cursor,
        "at": event.at,
        **{name: getattr(event.fact, name) for name in names},
    }
