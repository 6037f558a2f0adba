"""The events of a turn over HTTP, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

from sse_starlette.event import ServerSentEvent

from perdure.clients.gateway.inputs import Query
from perdure.clients.gateway.operations import Call, operation
from perdure.clients.gateway.streams import EventStream, Frame, with_first
from perdure.clients.reading.events import VERSION, CaughtUp, Event, Private
from perdure.clients.turns.handle import Turn
from perdure.clients.turns.readable import Delegates
from perdure.temporal.recent import Recent

_KEPT = 2_000


class WatchTurn(Query):
    """Which events, and what they show.

    Attributes:
        after: The id of the last known event, where a client cannot send `Last-Event-ID`.
        include: Private fields to include: `task`, `arguments`, `results` and `errors`.
        live: Whether the text of the model and the progress of tools are sent as well.
        delegates: Whether the text of the turns below is sent as well; it names its turn. With
            `running`, none of those that are over when the stream begins, or not live.
    """

    after: str | None = None
    include: tuple[Private, ...] = ()
    live: bool = True
    delegates: Delegates = False


@operation("GET", "/v1/turns/{id:path}/events", may="read")
async def watch_turn(call: Call, query: WatchTurn) -> EventStream | None:
    """Stream the events of a turn, until it is over.

    The id of each message is the cursor of its event. A client that sends the last one as
    `Last-Event-ID` gets the events after it, from any process. Messages without an id are text in
    progress and marks. A client that has the last event of a turn gets 204, and need not reconnect.
    """
    after = call.request.headers.get("last-event-id") or query.after
    with contextlib.ExitStack() as held:
        held.enter_context(call.stay_open())
        turn = call.client.turn(call.id)
        items = turn.live(after, delegates=query.delegates)
        first = await anext(items, None)
        if first is None or await _is_at_the_end(turn, first, after):
            await items.aclose()
            return None
        messages = _messages(with_first(first, items), query)
        return EventStream(messages, held.pop_all())


async def _is_at_the_end(turn: Turn[Any], first: object, after: str | None) -> bool:
    """Whether a client that resumes has all events of a turn that is over."""
    if after is None or not isinstance(first, CaughtUp):
        return False
    return (await turn.status()).outcome is not None


async def _messages(
    items: AsyncGenerator[Any, None], query: WatchTurn
) -> AsyncGenerator[Frame, None]:
    include = frozenset(query.include)
    async with contextlib.aclosing(items):
        async for item in items:
            if isinstance(item, Event):
                yield _written(item, include)
                await asyncio.sleep(0)  # a long history would hold up all other requests
            elif query.live or isinstance(item, CaughtUp):
                data = (
                    {"v": VERSION, "kind": "text", "text": item}
                    if isinstance(item, str)
                    else item.to_json()
                )
                yield ServerSentEvent(json.dumps(data))


_WRITTEN: Recent[tuple[int, frozenset[Private]], tuple[Event, bytes]] = Recent(_KEPT)
"""The last events that were written. All streams of a turn share its events and send the same."""


def _written(event: Event, include: frozenset[Private]) -> bytes:
    known = _WRITTEN.get((id(event), include))
    if known is not None:
        return known[1]  # the event is kept with it, so no other one has its id
    message = ServerSentEvent(json.dumps(event.public(include)), id=event.cursor, sep="\n")
    written = message.encode()
    _WRITTEN.put((id(event), include), (event, written))
    return written
