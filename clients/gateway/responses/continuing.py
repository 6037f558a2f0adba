"""Outputs of functions that the client has run: the turn of their calls goes on with them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from perdure import errors, limits
from perdure.clients.gateway import subjects
from perdure.clients.gateway.ids import check_token
from perdure.clients.gateway.operations import Call
from perdure.clients.gateway.past_events import past_events
from perdure.clients.gateway.responses.composing import Composer
from perdure.clients.gateway.responses.functions import (
    FunctionOutput,
    OutputItem,
    no_call,
    no_output,
    part_of,
)
from perdure.clients.gateway.responses.refusals import bad
from perdure.clients.turns.handle import Turn
from perdure.text import size
from perdure.turn import call_tokens, client_calls
from perdure.turn.facts import CallFinished
from perdure.turn.wire import ToolOutput


async def continued(
    call: Call,
    outputs: Sequence[FunctionOutput],
    previous: str | None = None,
    *,
    subject: str | None = None,
) -> tuple[Turn[Any], int]:
    """Send what the client has made of calls, and return their turn, and its next response.

    Either all calls that wait are given their outputs, or none is. A request may be repeated.

    Args:
        call: The request.
        outputs: The outputs, at least one.
        previous: The response of the calls, if the request names one.
        subject: The data subject of the turn, if the request names one.

    Raises:
        RefusedError: There is no such call, or an output is missing.
        TurnConflictError: The turn is of another data subject.
        CallFinishedError: A call has another output already, or was given up.
        TooLargeError: An output is too large; none is sent then.
    """
    call.caller.require("start")
    turn = call.client.turn(_turn_of(call, outputs))
    await subjects.check(call.client, turn.id, subject)
    first = await _first_run(turn, outputs[0])
    composer, finished = await _read(turn, first)
    for output in outputs:
        if output.token not in composer.calls:
            raise no_call(output.token, output.where)
        if (bytes_ := size(output.content)) > limits.TOOL_RESULT_BYTES:
            raise errors.TooLargeError(
                f"{output.where} is {bytes_} bytes, more than {limits.TOOL_RESULT_BYTES}; send the"
                " address of the rest",
                context={"bytes": bytes_, "limit": limits.TOOL_RESULT_BYTES},
            )
    part = max(composer.calls[output.token] for output in outputs)
    if previous is not None and part_of(call.caller.own(previous)) != (turn.id, part):
        raise bad("previous_response_id", "it is not the response whose calls have these outputs")
    waiting = {each.token for each in client_calls.awaited(composer.state, turn.id)}
    given = {output.token for output in outputs}
    if waiting & given and waiting - given:
        raise no_output(sorted(waiting - given))
    for output in outputs:
        await _finish(call, output, finished.get(call_tokens.proof_of(output.token)))
    return turn, part + 1


def _turn_of(call: Call, outputs: Sequence[FunctionOutput]) -> str:
    """Return the turn of the calls.

    Raises:
        RefusedError: A call is not one of the caller's, or not of the same turn.
    """
    for output in outputs:
        try:
            check_token(call.caller, output.token)
        except errors.InvalidRequestError:
            raise no_call(output.token, output.where) from None
    turn_id, *others = {call_tokens.parse(output.token).turn_id for output in outputs}
    if others:
        raise bad(outputs[-1].where, "the outputs are of calls of several responses")
    return turn_id


async def _first_run(turn: Turn[Any], output: FunctionOutput) -> str:
    try:
        return await turn.first_run()
    except errors.TurnNotFoundError:
        raise no_call(output.token, output.where) from None


async def _read(turn: Turn[Any], first_run: str) -> tuple[Composer, dict[str, ToolOutput]]:
    """Return the responses of a turn so far, and what its calls were given, by their proofs."""
    composer, finished = Composer(turn.id, first_run), dict[str, ToolOutput]()
    async with contextlib.aclosing(past_events(turn)) as events:
        async for event in events:
            composer.see(event)
            if isinstance(event.fact, CallFinished):
                finished.setdefault(event.fact.proof, event.fact.output)
    return composer, finished


async def _finish(call: Call, output: FunctionOutput, before: ToolOutput | None) -> None:
    """Give a call its output, unless it has the same one."""
    if before is not None and not before.is_error and before.content == output.content:
        return
    try:
        await call.client.finish_call(output.token, output.content, by=call.caller.subject)
    except errors.TurnOverError:
        raise errors.CallFinishedError(
            f"{output.where}: the call was given up, or has another output: its turn is over"
        ) from None


async def outputs_of(turn: Turn[Any], part: int) -> AsyncIterator[OutputItem]:
    """Yield what the response of a turn with this number was given: the outputs before it."""
    composer, finished = await _read(turn, await turn.first_run())
    for number, (token, its_part) in enumerate(composer.calls.items(), 1):
        output = finished.get(call_tokens.proof_of(token))
        if its_part == part - 1 and output is not None:
            yield OutputItem(id=f"item_{number}", call_id=token, output=output.content)
