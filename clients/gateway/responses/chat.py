"""Chat completions of OpenAI's API: a completion is a turn."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from pydantic_core import to_json
from sse_starlette.event import ServerSentEvent
from starlette.responses import Response

from perdure import limits
from perdure.clients.gateway.ids import new_id
from perdure.clients.gateway.operations import EVENTS, Call, operation
from perdure.clients.gateway.options import check_limits
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.quotas import check_turns
from perdure.clients.gateway.responses.chat_requests import CreateCompletion
from perdure.clients.gateway.responses.chat_values import (
    ChatCompletion,
    ChunkCall,
    ChunkChoice,
    ChunkDelta,
    CompletionCall,
    CompletionChoice,
    CompletionChunk,
    CompletionMessage,
    CompletionUsage,
    FinishReason,
)
from perdure.clients.gateway.responses.composing import DELTA, VOID, Composer
from perdure.clients.gateway.responses.continuing import continued
from perdure.clients.gateway.responses.following import events_of, response_of
from perdure.clients.gateway.responses.functions import FunctionItem
from perdure.clients.gateway.responses.refusals import error_of, refusal
from perdure.clients.gateway.responses.values import OutputMessage, ResponseObject, Status
from perdure.clients.gateway.streams import EventStream, begun
from perdure.clients.turns.handle import Turn

PATH: Final = "/chat/completions"
_FINISHED: Mapping[Status, FinishReason] = {"completed": "stop", "incomplete": "length"}
_BETWEEN = "\n\n"
"""Between two texts of a stream."""
_FAILED: Mapping[str, int] = {"rate_limit_exceeded": 429, "invalid_prompt": 400}
"""The statuses for errors of turns; that of the others is 500."""


@operation("POST", PATH, may="start", takes_key=True, refuse=refusal)
async def create_completion(call: Call, body: CreateCompletion) -> ChatCompletion | Response:
    """Start a turn, or go on with outputs of functions, and return the answer, or stream it.

    The answer comes when the turn is over, or calls functions of the client. It is an error that
    the turn needs a person, or is not over after a minute: then it goes on, and the response with
    its id has the rest.
    """
    call.caller.require("read")
    with contextlib.ExitStack() as held:
        held.enter_context(call.stay_open())
        part, outputs = 1, body.outputs
        if outputs:
            turn, part = await continued(call, outputs, subject=body.subject(call.caller))
        else:
            turn = await _started(call, body)
        composer = Composer(turn.id, await turn.first_run(), part=part, background=False)
        if not body.stream:
            return _completion(await response_of(turn, composer, limits.HTTP_WAIT))
        is_counted = body.stream_options.include_usage
        items = await begun(_frames(turn, composer, is_counted=is_counted), held)
        if items is None:
            return Response(media_type=EVENTS)
        return EventStream(items, held.pop_all(), retry=False)


async def _started(call: Call, body: CreateCompletion) -> Turn[Any]:
    asked = body.read()
    check_limits(call.caller, body)
    turn_id = new_id(call, None, body.model)
    await check_turns(call.client, call.caller, turn_id)
    return await call.client.start(
        body.model,
        asked.task,
        id=turn_id,
        history=asked.history,
        labels=body.labels,
        subject=body.subject(call.caller),
        options=body.options,
        instructions=asked.instructions(None),
        output_schema=body.output_schema,
        client_tools=body.client_tools,
        live=body.stream,
        fairness=call.caller.tenant,
        by=call.caller.subject,
    )


def _completion(response: ResponseObject) -> ChatCompletion:
    """Return the completion that a response is.

    Raises:
        RefusedError: The turn has no answer, or not yet.
    """
    reason = _reason(response)
    if reason is None:
        raise _without_answer(response)
    usage = None if response.usage is None else CompletionUsage.of(response.usage)
    texts = [_text(item) for item in response.output if isinstance(item, OutputMessage)]
    calls = tuple(map(CompletionCall.of, _functions(response)))
    text = texts[-1] if texts else None if calls else ""
    message = CompletionMessage(content=text, tool_calls=calls)
    return ChatCompletion(
        id=response.id,
        created=response.created_at,
        model=response.model,
        choices=(CompletionChoice(message=message, finish_reason=reason),),
        usage=usage,
        metadata=response.metadata,
    )


def _functions(response: ResponseObject) -> list[FunctionItem]:
    return [item for item in response.output if isinstance(item, FunctionItem)]


def _reason(response: ResponseObject) -> FinishReason | None:
    """Return why an answer has ended; None without an answer."""
    reason = _FINISHED.get(response.status)
    return "tool_calls" if reason == "stop" and _functions(response) else reason


def _text(item: OutputMessage) -> str:
    return "".join(part.text for part in item.content)


def _without_answer(response: ResponseObject) -> RefusedError:
    """Return why a response is no completion."""
    if response.status == "cancelled":
        return RefusedError(409, "TURN_CANCELLED", f"response {response.id!r} was cancelled")
    if response.error is not None:
        code, _, detail = response.error.message.partition(": ")
        return RefusedError(_FAILED.get(response.error.code, 500), code, detail)
    if any(item.type == "mcp_approval_request" for item in response.output):
        return RefusedError(
            409,
            "NEEDS_PERSON",
            f"the turn waits for a person; retrieve and decide about response {response.id!r}",
        )
    return RefusedError(
        504,
        "TIMEOUT",
        f"the turn goes on; retrieve response {response.id!r} later, or repeat the request with"
        " its Idempotency-Key, or as a stream",
    )


async def _frames(
    turn: Turn[Any], composer: Composer, *, is_counted: bool
) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield the chunks of a completion, and the mark of its end; or an error."""
    chunk, is_after_text = None, False
    following = events_of(turn, composer, until_person=True)
    async with contextlib.aclosing(following) as events:
        async for _, event in events:
            if chunk is None:
                chunk = _first_chunk(composer.response)
                yield _frame(chunk)
            if event["type"] == "response.output_text.done":
                is_after_text = True
            elif event["type"] == DELTA:
                text = f"{_BETWEEN if is_after_text else ''}{event['delta']}"
                is_after_text = False
                yield _frame(_with(chunk, ChunkDelta(content=text)))
    for frame in _end(composer, is_counted=is_counted):
        yield frame


def _end(composer: Composer, *, is_counted: bool) -> list[ServerSentEvent]:
    """Return the end of a stream: an error, or the reason and the tokens."""
    response = composer.response
    reason = None if composer.is_broken else _reason(response)
    if reason is None:
        error = _void(response) if composer.is_broken else _without_answer(response)
        return [ServerSentEvent(to_json({"error": error_of(error)}).decode(), sep="\n")]
    chunk = _first_chunk(response)
    frames = [
        _frame(_with(chunk, ChunkDelta(tool_calls=(ChunkCall(index=index, **dict(made)),))))
        for index, made in enumerate(map(CompletionCall.of, _functions(response)))
    ]
    frames.append(_frame(_with(chunk, ChunkDelta(), reason)))
    if is_counted:
        usage = response.usage and CompletionUsage.of(response.usage)
        frames.append(_frame(chunk.model_copy(update={"choices": (), "usage": usage})))
    return [*frames, ServerSentEvent("[DONE]", sep="\n")]


def _void(response: ResponseObject) -> RefusedError:
    return RefusedError(
        500,
        VOID,
        "the model call was lost or given up, so the last text does not count; the turn goes on:"
        f" retrieve response {response.id!r}, or repeat the request with its Idempotency-Key",
    )


def _first_chunk(response: ResponseObject) -> CompletionChunk:
    delta = ChunkDelta(role="assistant", content="")
    return CompletionChunk(
        id=response.id,
        created=response.created_at,
        model=response.model,
        choices=(ChunkChoice(delta=delta),),
    )


def _with(
    chunk: CompletionChunk, delta: ChunkDelta, reason: FinishReason | None = None
) -> CompletionChunk:
    choice = ChunkChoice(delta=delta, finish_reason=reason)
    return chunk.model_copy(update={"choices": (choice,)})


def _frame(chunk: CompletionChunk) -> ServerSentEvent:
    return ServerSentEvent(to_json(chunk).decode(), sep="\n")
