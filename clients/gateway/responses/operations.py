"""OpenAI's Responses API: create responses, retrieve and stream them, and cancel them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any, Final

from sse_starlette.event import ServerSentEvent
from starlette.responses import Response

from perdure import errors, limits
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.ids import checked, new_id
from perdure.clients.gateway.inputs import key_of
from perdure.clients.gateway.operations import EVENTS, Call, operation
from perdure.clients.gateway.options import check_limits
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.quotas import check_sessions, check_turns
from perdure.clients.gateway.responses.composing import Composer
from perdure.clients.gateway.responses.reading import Approval, approvals_in, asked_in
from perdure.clients.gateway.responses.refusals import bad, refusal, unsupported
from perdure.clients.gateway.responses.requests import CreateResponse, RetrieveResponse
from perdure.clients.gateway.responses.values import ConversationRef, ResponseObject
from perdure.clients.gateway.streams import EventStream, begun
from perdure.clients.sessions.handle import Sent
from perdure.clients.turns.handle import Turn
from perdure.values.budgets import Budget

PATH: Final = "/responses"
_ITEMS = "/input_items"
"""How a path of OpenAI's API ends that is not supported. It could be the end of an id."""
_AT_ONCE = timedelta()
_NOT_WITH = ("temperature", "max_output_tokens", "tool_choice")


@operation("POST", PATH, may="read", takes_key=True, refuse=refusal)
async def create_response(call: Call, body: CreateResponse) -> ResponseObject | Response:
    """Start a turn, go on from one, or decide about its calls.

    In the background, the answer comes at once. Otherwise it comes when the turn is over or needs a
    person, or after a minute; the turn goes on.
    """
    wait = _AT_ONCE if body.background else limits.HTTP_WAIT
    with contextlib.ExitStack() as held:
        if body.stream or wait:
            held.enter_context(call.stay_open())
        turn = await _turn(call, body)
        if isinstance(turn, ResponseObject):
            return turn
        composer = Composer(turn.id, await turn.first_run(), background=body.background)
        if body.stream:
            return await _stream(turn, composer, -1, held)
        return await _response(turn, composer, wait)


@operation("GET", f"{PATH}/{{id:path}}", may="read", refuse=refusal)
async def retrieve_response(call: Call, query: RetrieveResponse) -> ResponseObject | Response:
    """Return a response as it is now, or stream its events after a sequence number."""
    after = query.starting_after
    if after is not None and not query.stream:
        raise bad("starting_after", "it goes with stream=true")
    turn = call.client.turn(call.id)
    try:
        await turn.check()
    except errors.TurnNotFoundError:
        queued = None if query.stream else await _queued_as(call)
        if queued is not None:
            return queued
        if call.id.endswith(_ITEMS):
            raise unsupported(call.request) from None
    composer = Composer(turn.id, await turn.first_run())  # it may have begun meanwhile
    if not query.stream:
        return await _response(turn, composer, _AT_ONCE)
    with contextlib.ExitStack() as held:
        held.enter_context(call.stay_open())
        return await _stream(turn, composer, -1 if after is None else after, held)


@operation("POST", f"{PATH}/{{id:path}}/cancel", may="control", refuse=refusal)
async def cancel_response(call: Call) -> ResponseObject:
    """Cancel a response. One that is over is returned as it is."""
    call.caller.require("read")
    turn = call.client.turn(call.id)
    with call.stay_open():
        await turn.cancel(by=call.caller.subject)
        composer = Composer(turn.id, await turn.first_run())
        return await _response(turn, composer, limits.HTTP_WAIT, only_end=True)


async def _turn(call: Call, body: CreateResponse) -> Turn[Any] | ResponseObject:
    """Return the turn of a request, or a response whose turn begins later."""
    approvals = approvals_in(body.input)
    if body.previous_response_id is not None and body.session is not None:
        raise bad("conversation", "give previous_response_id or conversation, and not both")
    if approvals:
        return await _decided(call, body.previous_response_id, approvals)
    call.caller.require("start")
    if body.previous_response_id is not None:
        return await _forked(call, body, call.caller.own(body.previous_response_id))
    if body.session is not None:
        return await _sent(call, body, body.session)
    return await _started(call, body)


async def _started(call: Call, body: CreateResponse) -> Turn[Any]:
    conversation = asked_in(body.input)
    turn_id = new_id(call, None, body.model)
    await check_turns(call.client, call.caller, turn_id)
    return await call.client.start(
        body.model,
        conversation.task,
        id=turn_id,
        history=conversation.history,
        labels=body.metadata,
        budget=_budget(call.caller, body),
        options=body.options,
        fairness=call.caller.tenant,
    )


async def _forked(call: Call, body: CreateResponse, previous: str) -> Turn[Any]:
    text = asked_in(body.input).text
    _refuse_options(body, "previous_response_id")
    turn = call.client.turn(previous)
    status = await turn.status()
    if status.outcome is None:
        raise bad(
            "previous_response_id",
            f"response {previous!r} is not over; wait for its end, decide about the call that"
            " waits, or cancel it",
        )
    same = body.model in (status.agent, status.last_agent)
    key = key_of(call.request)
    new_turn = None if key is None else checked(call, key)
    await check_turns(call.client, call.caller, new_turn)
    return await turn.fork(
        id=new_turn,
        say=text,
        agent=None if same else body.model,
        labels=body.metadata or None,
        budget=_budget(call.caller, body),
        by=call.caller.subject,
    )


async def _sent(call: Call, body: CreateResponse, conversation: str) -> Turn[Any] | ResponseObject:
    content = asked_in(body.input).content
    _refuse_options(body, "conversation")
    if body.max_tool_calls is not None:
        raise bad("max_tool_calls", "it does not go with conversation")
    session_id = checked(call, conversation)
    await check_sessions(call.client, call.caller, session_id)
    session = call.client.session(
        session_id,
        body.model,
        labels=body.metadata,
        fairness=call.caller.tenant,
    )
    sent = await session.say(content, id=key_of(call.request), by=call.caller.subject)
    try:
        async with asyncio.timeout(_first_wait(body, sent)):
            return await sent.turn()
    except TimeoutError:
        if body.stream:
            raise RefusedError(
                409,
                "CONVERSATION_BUSY",
                f"the message waits in conversation {session.id!r}, and will be response"
                f" {sent.turn_id!r}; stream that when it has begun",
            ) from None
        return _queued(sent.turn_id, session.id, body.model, background=body.background)


def _first_wait(body: CreateResponse, sent: Sent) -> float | None:
    """Return the seconds to wait for the turn of a message to begin."""
    is_soon = sent.disposition == "started"
    return limits.HTTP_WAIT.total_seconds() if is_soon or not body.background else 0


async def _decided(call: Call, previous: str | None, approvals: tuple[Approval, ...]) -> Turn[Any]:
    call.caller.require("decide")
    if previous is None:
        raise bad("previous_response_id", "a decision needs the id of the response that waits")
    turn, by = call.client.turn(call.caller.own(previous)), call.caller.subject
    for approval in approvals:
        if approval.is_answer:
            await turn.answer(approval.call_id, approval.answer, token=approval.token, by=by)
        elif approval.approve:
            await turn.approve(
                approval.call_id, token=approval.token, reason=approval.reason, by=by
            )
        else:
            await turn.deny(approval.call_id, approval.reason, token=approval.token, by=by)
    return turn


def _budget(caller: Caller, body: CreateResponse) -> Budget | None:
    limit = body.max_tool_calls
    budget = None if limit is None else Budget(tool_calls=limit)
    check_limits(caller, body, budget)
    return budget


def _refuse_options(body: CreateResponse, with_: str) -> None:
    for name in _NOT_WITH:
        if name in body.model_fields_set:
            raise bad(name, f"it does not go with {with_}: the options of the first turn hold")


async def _queued_as(call: Call) -> ResponseObject | None:
    """Return the response of a message that waits in a session; None if there is none."""
    session_id, _, number = call.id.rpartition("/")
    if not number.isdecimal():
        return None
    try:
        status = await call.client.session(session_id).status()
    except (errors.SessionNotFoundError, errors.InvalidRequestError):
        return None
    is_next = bool(status.queue) and number == str(status.turns + 1)
    if not is_next and status.turn != call.id:
        return None
    return _queued(call.id, session_id, status.agent)


def _queued(
    turn_id: str, session_id: str, agent: str, *, background: bool = True
) -> ResponseObject:
    return ResponseObject(
        id=turn_id,
        created_at=int(time.time()),
        status="queued",
        model=agent,
        conversation=ConversationRef(id=session_id),
        background=background,
    )


async def _response(
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
    return composer.response


async def _stream(
    turn: Turn[Any], composer: Composer, after: int, held: contextlib.ExitStack
) -> Response:
    """Return the events of a response after a sequence number, until it is over."""
    items = await begun(_messages(turn, composer, after), held)
    if items is None:
        return Response(media_type=EVENTS)
    return EventStream(items, held.pop_all(), retry=False)


async def _messages(
    turn: Turn[Any], composer: Composer, after: int
) -> AsyncGenerator[ServerSentEvent, None]:
    async for event in turn.events():
        for number, data in composer.see(event):
            if number > after:
                yield ServerSentEvent(json.dumps(data), event=str(data["type"]), sep="\n")
