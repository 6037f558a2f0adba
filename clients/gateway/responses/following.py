"""A response that is waited for, and its events as a stream."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

from sse_starlette.event import ServerSentEvent
from starlette.responses import Response

from perdure import errors
from perdure.clients.gateway.operations import EVENTS
from perdure.clients.gateway.responses.composing import DELTA, OF_DELEGATE, Composer
from perdure.clients.gateway.responses.values import Event, ResponseObject
from perdure.clients.gateway.streams import EventStream, begun
from perdure.clients.reading.events import CaughtUp
from perdure.clients.reading.events import Event as TurnEvent
from perdure.clients.reading.live_text import Piece
from perdure.clients.reading.tool_progress import ToolProgress
from perdure.clients.reading.tree_text import TurnText
from perdure.clients.turns.handle import Turn


async def response_of(
    turn: Turn[Any], composer: Composer, wait: timedelta, *, only_end: bool = False
) -> ResponseObject:
    """Return the response of a turn, as soon as it is over or needs a person, or after a time."""
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(None) as waiting,
            contextlib.aclosing(turn.changes()) as changing,
        ):
            async for change in changing:
                if change.event is None:
                    waiting.reschedule(asyncio.get_running_loop().time() + wait.total_seconds())
                else:
                    composer.see(change.event)
                if change.is_new and composer.needs_person and not only_end:
                    break
                if composer.is_over and not only_end:
                    break
    if composer.is_over and not composer.is_there:
        raise errors.TurnNotFoundError(f"there is no response {composer.response.id!r}")
    return composer.response


async def stream_of(
    turn: Turn[Any],
    composer: Composer,
    after: int,
    held: contextlib.ExitStack,
    *,
    delegates: bool = False,
) -> Response:
    """Return the events of a response after a sequence number, until it is over.

    With `delegates`, there is the text of the turns below as well, while it is generated.
    """
    items = await begun(_messages(turn, composer, after, delegates=delegates), held)
    if items is None:
        return Response(media_type=EVENTS)
    return EventStream(items, held.pop_all(), retry=False)


async def _messages(
    turn: Turn[Any], composer: Composer, after: int, *, delegates: bool
) -> AsyncGenerator[ServerSentEvent, None]:
    async with contextlib.aclosing(events_of(turn, composer, delegates=delegates)) as events:
        async for number, event in events:
            if event["type"] == OF_DELEGATE:
                event["sequence_number"] = max(number, after)  # what the client has already
                yield ServerSentEvent(json.dumps(event), event=OF_DELEGATE, sep="\n")
            elif number > after or composer.is_broken:
                data = json.dumps(_rest(event, number, after))
                yield ServerSentEvent(data, event=str(event["type"]), sep="\n")


def _rest(event: Event, number: int, after: int) -> Event:
    """Return an event without the characters of a text that a client has."""
    delta = event.get("delta")
    if event["type"] != DELTA or not isinstance(delta, str) or number - len(delta) >= after:
        return event
    return {**event, "delta": delta[after - number :]}


async def events_of(
    turn: Turn[Any], composer: Composer, *, until_person: bool = False, delegates: bool = False
) -> AsyncGenerator[tuple[int, Event], None]:
    """Yield the events of a response, each with its number, until it is over or broken.

    With `until_person`, also until it needs a person; with `delegates`, also text of the turns
    below.

    Raises:
        PerdureError: As `Turn.live`.
    """
    is_new = False
    async with contextlib.aclosing(_pieces(turn, delegates=delegates)) as pieces:
        async for piece in pieces:
            for numbered in _made(composer, piece):
                yield numbered
            is_new = is_new or isinstance(piece, CaughtUp)
            needs_person = until_person and is_new and composer.needs_person
            if composer.is_broken or composer.is_over or needs_person:
                return


def _made(
    composer: Composer, piece: TurnEvent | Piece | TurnText | CaughtUp
) -> tuple[tuple[int, Event], ...]:
    match piece:
        case CaughtUp():
            return ()
        case TurnText():
            return composer.hear_below(piece)
        case TurnEvent():
            return composer.see(piece)
        case _:
            return composer.hear(piece)


async def _pieces(
    turn: Turn[Any], *, delegates: bool
) -> AsyncGenerator[TurnEvent | Piece | TurnText | CaughtUp, None]:
    """Yield the events of a turn, and before that of an answer its text, as it is generated."""
    items = turn.live(delegates="running" if delegates else False)
    async with contextlib.aclosing(items):
        async for item in items:
            if not isinstance(item, ToolProgress):
                yield item
