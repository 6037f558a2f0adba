"""OpenAI's Responses API: create responses, retrieve and stream them, and cancel them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import timedelta
from typing import Any, Final

from pydantic_core import to_json
from starlette.responses import Response

from perdure import errors, limits
from perdure.clients.gateway import subjects
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.ids import checked, new_id
from perdure.clients.gateway.inputs import key_of
from perdure.clients.gateway.operations import Call, operation
from perdure.clients.gateway.options import check_limits
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.quotas import check_sessions, check_turns
from perdure.clients.gateway.responses.composing import Composer
from perdure.clients.gateway.responses.continuing import continued, outputs_of
from perdure.clients.gateway.responses.conversations import beginning
from perdure.clients.gateway.responses.following import response_of, stream_of
from perdure.clients.gateway.responses.functions import (
    FunctionOutput,
    no_output,
    outputs_in,
    part_of,
)
from perdure.clients.gateway.responses.items import (
    ItemList,
    ListItems,
    input_of,
    items_of,
    page_of,
)
from perdure.clients.gateway.responses.reading import Approval, approvals_in, asked_in
from perdure.clients.gateway.responses.refusals import bad, refusal
from perdure.clients.gateway.responses.requests import (
    CountTokens,
    CreateResponse,
    RetrieveResponse,
)
from perdure.clients.gateway.responses.values import (
    ConversationRef,
    CountedTokens,
    DeletedResponse,
    ResponseObject,
)
from perdure.clients.reading.recorded import runs_of, state_of
from perdure.clients.sessions.handle import Session
from perdure.clients.sessions.sent import Sent
from perdure.clients.turns.deleting import delete, has_parent
from perdure.clients.turns.handle import Turn
from perdure.text import size, word
from perdure.turn.state import TurnState
from perdure.turn.token_estimate import BYTES_A_TOKEN, tokens
from perdure.values.budgets import Budget

logger = logging.getLogger("perdure")

PATH: Final = "/responses"
_AT_ONCE = timedelta()


@operation("POST", PATH, may="read", takes_key=True, refuse=refusal)
async def create_response(call: Call, body: CreateResponse) -> ResponseObject | Response:
    """Start a turn, go on from one, decide about its calls, or give outputs of functions.

    In the background, the answer comes at once. Otherwise it comes when the turn is over or needs a
    person, or after a minute; the turn goes on.
    """
    wait = _AT_ONCE if body.background else limits.HTTP_WAIT
    with contextlib.ExitStack() as held:
        if body.stream or wait:
            held.enter_context(call.stay_open())
        part, outputs = 1, outputs_in(body.input)
        turn: Turn[Any] | ResponseObject
        if outputs:
            turn, part = await _answered(call, body, outputs)
        else:
            turn = await _turn(call, body)
        if isinstance(turn, ResponseObject):
            return turn
        composer = Composer(
            turn.id,
            await turn.first_run(),
            part=part,
            background=body.background,
            without_effect=body.without_effect,
        )
        if body.stream:
            return await stream_of(turn, composer, -1, held, delegates=body.delegates)
        return await response_of(turn, composer, wait)


@operation("GET", f"{PATH}/{{id:path}}/input_items", may="read", refuse=refusal)
async def list_input_items(call: Call, query: ListItems) -> ItemList:
    """List what a response was given: the first messages of its turn, or outputs of functions."""
    turn_id, part = part_of(call.id)
    turn = call.client.turn(turn_id)
    if part > 1:
        return page_of([item async for item in outputs_of(turn, part)], query)
    async with contextlib.aclosing(turn.events()) as events:
        async for event in events:
            request = event.onto(TurnState()).request
            if request is not None:
                return page_of(list(items_of(input_of(request), "item_")), query)
    raise errors.TurnNotFoundError(f"there is no turn {call.id!r}")


@operation("POST", f"{PATH}/input_tokens", may="read", refuse=refusal)
async def count_input_tokens(call: Call, body: CountTokens) -> CountedTokens:
    """Estimate the tokens of an input. What the agent and a conversation add is not known here."""
    asked = None if body.input is None else asked_in(body.input)
    messages = () if asked is None else (*asked.history, asked.message)
    own = body.instructions if asked is None else asked.instructions(body.instructions)
    texts = size(own or "") + len(to_json(body.output_schema or ""))
    counted = sum(map(tokens, messages)) + texts // BYTES_A_TOKEN
    return CountedTokens(input_tokens=counted)


@operation("GET", f"{PATH}/{{id:path}}", may="read", refuse=refusal)
async def retrieve_response(call: Call, query: RetrieveResponse) -> ResponseObject | Response:
    """Return a response as it is now, or stream its events after a sequence number."""
    after = query.starting_after
    if after is not None and not query.stream:
        raise bad("starting_after", "it goes with stream=true")
    turn_id, part = part_of(call.id)
    turn = call.client.turn(turn_id)
    try:
        await turn.check()
    except errors.TurnNotFoundError:
        queued = None if query.stream else await _queued_as(call)
        if queued is not None:
            return queued
    first_run = await turn.first_run()  # it may have begun meanwhile
    composer = Composer(turn.id, first_run, part=part)
    if not query.stream:
        return await response_of(turn, composer, _AT_ONCE)
    with contextlib.ExitStack() as held:
        held.enter_context(call.stay_open())
        number = -1 if after is None else after
        return await stream_of(turn, composer, number, held, delegates=query.delegates)


@operation("POST", f"{PATH}/{{id:path}}/cancel", may="control", refuse=refusal)
async def cancel_response(call: Call) -> ResponseObject:
    """Cancel a response. One that is over is returned as it is."""
    call.caller.require("read")
    turn_id, part = part_of(call.id)
    turn = call.client.turn(turn_id)
    with call.stay_open():
        await turn.cancel(by=call.caller.subject)
        composer = Composer(turn.id, await turn.first_run(), part=part)
        return await response_of(turn, composer, limits.HTTP_WAIT, only_end=True)


@operation("DELETE", f"{PATH}/{{id:path}}", may="control", refuse=refusal)
async def delete_response(call: Call) -> DeletedResponse:
    """Delete a response that is over: what Temporal has of its turn.

    One that others read stays: of a conversation, whose items are those of its responses, of a
    batch or another turn, or of a schedule. So does one of several responses of a turn.
    """
    turn_id, part = part_of(call.id)
    client = call.client.temporal
    runs = await runs_of(client, turn_id)
    state = await state_of(client, turn_id, runs[-1])
    request = state.request
    if state.ended is None or request is None:
        raise _stays("it is not over; cancel it first, or wait for its end")
    if request.session is not None:
        raise _stays("it belongs to a conversation, whose items are those of its responses")
    if request.schedule is not None or await has_parent(client, turn_id):
        raise _stays("it belongs to a schedule, a batch or another turn, which reads it")
    if part > 1:
        raise _stays("it is one of several responses of a turn; delete the first of them")
    with call.stay_open():
        await delete(client, turn_id, runs)
    logger.info("turn %s was deleted by %s", word(turn_id), word(call.caller.subject))
    return DeletedResponse(id=call.id)


def _stays(why: str) -> RefusedError:
    return RefusedError(409, "RESPONSE_STAYS", f"the response is not deleted: {why}")


async def _turn(call: Call, body: CreateResponse) -> Turn[Any] | ResponseObject:
    """Return the turn of a request, or a response whose turn begins later."""
    approvals = approvals_in(body.input)
    if body.previous_response_id is not None and body.session is not None:
        raise bad("conversation", "give previous_response_id or conversation, and not both")
    if approvals:
        return await _decided(call, body, approvals)
    call.caller.require("start")
    if body.previous_response_id is not None:
        return await _forked(call, body, call.caller.own(body.previous_response_id))
    if body.session is not None:
        return await _sent(call, body, body.session)
    return await _started(call, body)


async def _answered(
    call: Call, body: CreateResponse, outputs: tuple[FunctionOutput, ...]
) -> tuple[Turn[Any], int]:
    """Return the turn that goes on with outputs, and the number of its response."""
    known = body.previous_response_id is not None or body.session is not None
    if known and len(outputs) < len(body.input):
        raise bad("input", "give the outputs alone; what was before them is known")
    turn, part = await continued(
        call, outputs, body.previous_response_id, subject=body.subject(call.caller)
    )
    if body.session is not None and not turn.id.startswith(f"{call.caller.own(body.session)}/"):
        raise bad("conversation", "the calls are not of this conversation")
    return turn, part


async def _started(call: Call, body: CreateResponse) -> Turn[Any]:
    conversation = asked_in(body.input)
    turn_id = new_id(call, None, body.model)
    await check_turns(call.client, call.caller, turn_id)
    return await call.client.start(
        body.model,
        conversation.task,
        id=turn_id,
        history=conversation.history,
        labels=body.labels,
        subject=body.subject(call.caller),
        budget=_budget(call.caller, body),
        options=body.options,
        instructions=conversation.instructions(body.instructions),
        output_schema=body.output_schema,
        client_tools=body.client_tools,
        live=body.stream,
        fairness=call.caller.tenant,
        by=call.caller.subject,
    )


async def _forked(call: Call, body: CreateResponse, previous: str) -> Turn[Any]:
    asked = asked_in(body.input)
    text = asked.text
    turn = call.client.turn(part_of(previous)[0])
    await subjects.check(call.client, turn.id, body.subject(call.caller))
    status = await turn.status()
    if status.outcome is None:
        waiting = await turn.client_calls()
        if waiting:
            raise no_output([each.token for each in waiting])
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
        labels=body.labels or None,
        budget=_budget(call.caller, body),
        options=body.options,
        instructions=asked.instructions(body.instructions),
        output_schema=body.output_schema,
        client_tools=body.client_tools,
        live=body.stream or None,
        by=call.caller.subject,
    )


async def _sent(call: Call, body: CreateResponse, conversation: str) -> Turn[Any] | ResponseObject:
    asked = asked_in(body.input)
    content, instructions = asked.content, asked.instructions(body.instructions)
    check_limits(call.caller, body)
    if body.max_tool_calls is not None:
        raise bad("max_tool_calls", "it does not go with conversation")
    if body.tool_choice not in ("auto", "none"):
        raise bad("tool_choice", "with conversation, it is auto or none")
    session_id = checked(call, conversation)
    await check_sessions(call.client, call.caller, session_id)
    session = call.client.session(
        session_id,
        body.model,
        labels=body.labels,
        subject=body.subject(call.caller),
        options=body.options,
        instructions=instructions,
        output_schema=body.output_schema,
        live=True,
        fairness=call.caller.tenant,
    )
    await _check_options(session, body, instructions)
    sent = await session.say(
        content,
        id=key_of(call.request),
        by=call.caller.subject,
        client_tools=body.client_tools,
    )
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


async def _decided(call: Call, body: CreateResponse, approvals: tuple[Approval, ...]) -> Turn[Any]:
    call.caller.require("decide")
    previous = body.previous_response_id
    if previous is None:
        raise bad("previous_response_id", "a decision needs the id of the response that waits")
    await subjects.check(call.client, call.caller.own(previous), body.subject(call.caller))
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


async def _check_options(
    session: Session[Any], body: CreateResponse, instructions: str | None
) -> None:
    """Refuse options that differ from those that a conversation began with, and that hold for it.

    Raises:
        RefusedError: They do.
    """
    options = body.model_fields_set & {"temperature", "top_p", "max_output_tokens", "tool_choice"}
    given = {
        "instructions": instructions,
        "text.format": body.output_schema,
        min(options, default="temperature"): body.options,
    }
    if not any(given.values()):
        return
    begun = await beginning(session)
    if begun is None:
        return
    _, began = begun
    holds = dict(zip(given, (began.instructions, began.output_schema, began.options), strict=True))
    for name, value in given.items():
        if value and value != holds[name]:
            raise bad(
                name, "it differs from the first response of the conversation, whose options hold"
            )


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
