"""A run of an agent over AG-UI, as server-sent events."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Any

from ag_ui.core import BaseEvent
from sse_starlette.event import ServerSentEvent

from perdure import errors
from perdure.clients.gateway.agui import run_input, snapshots
from perdure.clients.gateway.agui.run_input import RunInput
from perdure.clients.gateway.agui.threads import Thread, decide, give, open_thread
from perdure.clients.gateway.agui.translation import Names, Translation, TurnItem
from perdure.clients.gateway.inputs import Query
from perdure.clients.gateway.operations import Call, operation
from perdure.clients.gateway.problems import problem_of
from perdure.clients.gateway.streams import EventStream
from perdure.clients.reading.events import CaughtUp, Event
from perdure.clients.turns.handle import Turn
from perdure.clients.turns.status import Wait
from perdure.errors import PerdureError
from perdure.turn.waiting import PEOPLE


class FollowRun(Query):
    """What a run shows.

    Attributes:
        delegates: Whether it has the text of subagents, in messages that name them.
    """

    delegates: bool = False


@operation("POST", "/agui/{agent}", may="read")
async def run_agent(call: Call, body: RunInput, query: FollowRun) -> EventStream:
    """Run an agent over AG-UI 1.0, and stream the events of the protocol.

    A thread is a session. The last message of the user is sent to it, unless it has the message;
    that needs the permission `start`, as do results of the tools of the user interface. `resume`
    decides about calls that wait; that needs the permission `decide`. A disconnect does not stop
    the run: the same request follows it again, from its messages so far, or with `Last-Event-ID`
    from an event. It needs the extra `perdure[agui]`.
    """
    request = run_input.read(body)
    if request.answers:
        call.caller.require("decide")
    with contextlib.ExitStack() as held:
        held.enter_context(call.stay_open())
        thread = await open_thread(call, body.thread_id, request)
        async with contextlib.AsyncExitStack() as followed:
            live = thread.turn.live(delegates="running" if query.delegates else False)
            items = await followed.enter_async_context(contextlib.aclosing(live))
            run = Translation(_names(body, thread))
            after = None if thread.is_new else call.request.headers.get("last-event-id") or None
            cursor = await _pass_over(run, items, thread, after)
            ignored = await decide(call.client, thread, request.answers, call.caller.subject)
            run.given = await give(call, thread.turn, request.results)
            ignored += run.unknown_of(body.messages)
            opening = run.opening((*request.ignored, *ignored), has_state=bool(body.state))
            messages = _messages(run, items, thread.turn, _frames(opening, cursor))
            followed.pop_all()
            return EventStream(messages, held.pop_all())


def _names(body: RunInput, thread: Thread) -> Names:
    before = snapshots.before(thread.conversation, thread.session_id, thread.session_turn.number)
    return Names(
        thread_id=body.thread_id,
        run_id=body.run_id,
        parent_run_id=body.parent_run_id,
        turn_id=thread.turn.id,
        message_ids=thread.session_turn.messages,
        before=tuple(before),
    )


async def _pass_over(
    run: Translation, items: AsyncGenerator[TurnItem, None], thread: Thread, after: str | None
) -> str | None:
    """Let a run see what precedes it, and return the cursor of the last event of that.

    A run that follows a new turn begins after its first event, a run with a cursor after the event
    of the cursor, and every other run after the events that history has.

    Raises:
        StaleCursorError: The cursor is of another turn or of another run of it.
        InvalidRequestError: The cursor is not one of the turn's events.
    """
    await thread.turn.check_cursor(after)
    cursor = None
    async for item in items:
        for _ in run.see(item):
            pass
        cursor = item.cursor if isinstance(item, Event) else cursor
        if isinstance(item, CaughtUp) and after is not None:
            raise errors.InvalidRequestError("the cursor is not that of an event of the run")
        begins_here = thread.is_new if after is None else cursor == after
        if (cursor is not None and begins_here) or isinstance(item, CaughtUp):
            break
    return cursor


async def _messages(
    run: Translation,
    items: AsyncGenerator[TurnItem, None],
    turn: Turn[Any],
    opening: Iterable[ServerSentEvent],
) -> AsyncGenerator[ServerSentEvent, None]:
    async with contextlib.aclosing(items):
        for message in opening:
            yield message
        try:
            async for message in _following(run, items, turn):
                yield message
        except PerdureError as error:
            problem, _ = problem_of(error)
            for message in _frames([run.failed(problem.code, problem.detail)]):
                yield message


async def _following(
    run: Translation, items: AsyncGenerator[TurnItem, None], turn: Turn[Any]
) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield the messages after the opening, until the turn is over or waits for people."""
    while not (waits := await _waits(run, turn)) and not run.is_over:
        item = await anext(items)
        cursor = item.cursor if isinstance(item, Event) else None
        for message in _frames(run.see(item), cursor):
            yield message
    for message in _frames(run.interrupted(waits) if waits else run.finished()):
        yield message


async def _waits(run: Translation, turn: Turn[Any]) -> Sequence[Wait]:
    """Return what a turn and those below it wait for now, if only people can end that."""
    if not run.has_caught_up or not run.state.needs_person:
        return ()
    return [wait for wait in (await turn.status()).waits if wait.kind in PEOPLE]


def _frames(events: Iterable[BaseEvent], cursor: str | None = None) -> Iterator[ServerSentEvent]:
    """Yield the messages of events, of which the last has the id of what they were made from.

    The protocol has lines end in LF alone.
    """
    written = [event.model_dump_json(by_alias=True) for event in events]
    for number, data in enumerate(written, 1):
        is_last = number == len(written)
        yield ServerSentEvent(data, id=cursor if is_last else None, sep="\n")
