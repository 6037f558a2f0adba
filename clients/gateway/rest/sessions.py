"""Sessions over HTTP: conversations of many turns."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

from perdure import errors
from perdure.base import Value
from perdure.clients.gateway.ids import checked
from perdure.clients.gateway.inputs import Body, key_of
from perdure.clients.gateway.operations import Accepted, Call, operation
from perdure.clients.gateway.options import (
    AddBudget,
    Cancelled,
    CommonOptions,
    LabelledPages,
    Reason,
    check_limits,
    content_of,
)
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.quotas import check_sessions
from perdure.clients.gateway.rest.turns import WaitFor
from perdure.clients.sessions.handle import Session
from perdure.clients.sessions.listing import SessionEntry
from perdure.clients.sessions.readable import MessageStatus, SessionStatus
from perdure.session.wire import Disposition, IfBusy, Queued, SessionTurn
from perdure.values.messages import Message, UserParts


class BeginSession(CommonOptions):
    """What a session is begun with, if it does not exist.

    Attributes:
        agent: The name of the agent.
        budget: What all of its turns may spend together; it needs the permission `budget`.
        idle: The time without a turn and a message after which it is closed.
        live: Whether the events of its turns have text while it is generated.
    """

    agent: str
    idle: timedelta | None = None
    live: bool = False


class SendMessage(Body):
    """A message of the user.

    Attributes:
        text: The message, or its beginning.
        parts: Images, files and texts that follow.
        id: Its id; the same id is the same message. The header `Idempotency-Key` can have it
            instead.
        if_busy: What happens if a turn runs: `queue` for the next one, `steer` the running one,
            `interrupt` it, or `reject` the message. To steer and to interrupt needs the permission
            `control`.
        agent: The agent that answers this message and those after it.
        begin: What the session is begun with, if it does not exist.
    """

    text: str = ""
    parts: UserParts = ()
    id: str | None = None
    if_busy: IfBusy = "queue"
    agent: str | None = None
    begin: BeginSession | None = None


class SentMessage(Value):
    """A message that was accepted: what happens to it, and the turn that reads it."""

    id: str
    disposition: Disposition
    turn_id: str


class SessionList(Value):
    """Sessions in a list: open ones first, then the last ended first.

    `next` is the cursor of the next page; null if there is none.
    """

    sessions: tuple[SessionEntry, ...]
    next: str | None = None


class SessionMessages(Value):
    """The messages of the turns that are over."""

    messages: tuple[Message, ...]


class SessionTurns(Value):
    """The last 50 turns that are over and the running one, in order."""

    turns: tuple[SessionTurn, ...]


class Changed(Value):
    """Whether the request changed anything."""

    changed: bool


class Unread(Value):
    """The messages that no turn has read."""

    unread: tuple[Queued, ...]


class TakeOut(Body):
    """The id of a message in the queue."""

    id: str


class Forgotten(Body):
    """The id of a reminder."""

    id: str


class ForkSession(Body):
    """The id of the new session, and the number of the last turn whose messages it takes over."""

    id: str
    at_turn: int | None = None


@operation("POST", "/v1/sessions/{id:path}/messages", may="start", takes_key=True)
async def send_message(call: Call, body: SendMessage) -> Accepted[SentMessage]:
    """Send a message to a session, which the first one begins.

    The answer comes when the message is recorded. The turn of a message that waits begins later.
    """
    if body.if_busy in ("steer", "interrupt"):
        call.caller.require("control")
    sent = await (await _session(call, body.begin)).say(
        content_of(body.text, body.parts),
        id=body.id if body.id is not None else key_of(call.request),
        if_busy=body.if_busy,
        by=call.caller.subject,
        agent=body.agent,
    )
    if sent.disposition is Disposition.STARTED:
        await sent.turn()  # so that it exists when the caller asks for it
    return SentMessage(id=sent.id, disposition=sent.disposition, turn_id=sent.turn_id)


async def _session(call: Call, begin: BeginSession | None) -> Session:
    if begin is None:
        return call.client.session(call.id, fairness=call.caller.tenant)
    check_limits(call.caller, begin)
    session_id = checked(call, call.id)
    await check_sessions(call.client, call.caller, session_id)
    return call.client.session(
        session_id,
        begin.agent,
        idle=begin.idle,
        live=begin.live,
        fairness=call.caller.tenant,
        **begin.common(call.caller),
    )


@operation("GET", "/v1/sessions", may="read")
async def list_sessions(call: Call, query: LabelledPages) -> SessionList:
    """List sessions, page by page. The list may lag a second behind."""
    listing = call.client.sessions(
        query.agent, labels=query.labels, id_prefix=call.caller.prefix or None
    )
    page = await listing.page(query.after, size=query.limit)
    return SessionList(sessions=page.entries, next=page.next)


@operation("GET", "/v1/sessions/{id:path}/messages", may="read")
async def get_messages(call: Call) -> SessionMessages:
    """Return the messages of the turns that are over; the oldest are left out beyond 800 kB."""
    messages = await call.client.session(call.id).messages()
    return SessionMessages(messages=messages)


@operation("GET", "/v1/sessions/{id:path}/messages/{message_id}", may="read")
async def get_message(call: Call, query: WaitFor) -> MessageStatus:
    """Return the turn of a message; null while it waits in the queue.

    With `wait`, the answer comes as soon as a turn has been given it. A session knows the messages
    of its last 50 turns.
    """
    session, message_id = call.client.session(call.id), call.request.path_params["message_id"]
    status = await session.find(message_id)
    if status is not None and status.turn_id is None and query.wait:
        with call.stay_open(), contextlib.suppress(TimeoutError, errors.SessionClosedError):
            async with asyncio.timeout(query.wait):
                await session.turn_of(message_id)
        status = await session.find(message_id)
    if status is None:
        raise RefusedError(
            404, "MESSAGE_NOT_FOUND", "the session has no such message, or it is too old"
        )
    return status


@operation("GET", "/v1/sessions/{id:path}/turns", may="read")
async def get_turns(call: Call) -> SessionTurns:
    """Return the last turns of a session, with their outcomes."""
    return SessionTurns(turns=await call.client.session(call.id).turns())


@operation("GET", "/v1/sessions/{id:path}", may="read")
async def get_session(call: Call) -> SessionStatus:
    """Return the status of a session."""
    return await call.client.session(call.id).status()


@operation("POST", "/v1/sessions/{id:path}/interrupt", may="control")
async def interrupt_session(call: Call, body: Reason) -> Accepted[Cancelled]:
    """Cancel the running turn. Messages that wait stay waiting, until the next message comes."""
    session, by = call.client.session(call.id), call.caller.subject
    return Cancelled(cancelled=await session.interrupt(body.reason, by=by))


@operation("POST", "/v1/sessions/{id:path}/cancel", may="control")
async def cancel_session(call: Call, body: Reason) -> Accepted[Cancelled]:
    """Cancel the running turn, and close the session: it takes no more messages."""
    session, by = call.client.session(call.id), call.caller.subject
    return Cancelled(cancelled=await session.cancel(body.reason, by=by))


@operation("POST", "/v1/sessions/{id:path}/resume", may="start")
async def resume_session(call: Call) -> Changed:
    """Let the next turn read the messages that wait, after a turn was cancelled."""
    changed = await call.client.session(call.id).resume(by=call.caller.subject)
    return Changed(changed=changed)


@operation("POST", "/v1/sessions/{id:path}/unqueue", may="control")
async def unqueue_message(call: Call, body: TakeOut) -> Changed:
    """Take a message out of the queue, unless a turn has been given it."""
    session, by = call.client.session(call.id), call.caller.subject
    return Changed(changed=await session.unqueue(body.id, by=by))


@operation("POST", "/v1/sessions/{id:path}/forget-reminder", may="control")
async def forget_reminder(call: Call, body: Forgotten) -> Changed:
    """Give a reminder of a session up that is not due yet."""
    session, by = call.client.session(call.id), call.caller.subject
    return Changed(changed=await session.forget_reminder(body.id, by=by))


@operation("POST", "/v1/sessions/{id:path}/add-budget", may="budget")
async def add_to_session(call: Call, body: AddBudget) -> None:
    """Add to the budget of a session. A request that is repeated adds again."""
    await call.client.session(call.id).add_budget(body.budget, by=call.caller.subject)


@operation("POST", "/v1/sessions/{id:path}/close", may="control")
async def close_session(call: Call, body: Reason) -> Unread:
    """Close a session: it takes no more messages. A running turn continues to its end."""
    session, by = call.client.session(call.id), call.caller.subject
    return Unread(unread=await session.close(body.reason, by=by))


@operation("POST", "/v1/sessions/{id:path}/fork", may="start")
async def fork_session(call: Call, body: ForkSession) -> Accepted[SessionStatus]:
    """Start another session with the messages of this one, which is not changed."""
    session = call.client.session(call.id, fairness=call.caller.tenant)
    fork_id = checked(call, body.id)
    await check_sessions(call.client, call.caller, fork_id)
    fork = await session.fork(body.at_turn, id=fork_id, by=call.caller.subject)
    return await fork.status()
