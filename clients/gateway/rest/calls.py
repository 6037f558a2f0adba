"""Calls whose result comes later, over HTTP: send the result."""

from __future__ import annotations

from pydantic import JsonValue

from perdure import errors
from perdure.base import Value
from perdure.clients.gateway.ids import check_token
from perdure.clients.gateway.inputs import Body
from perdure.clients.gateway.operations import Call, operation
from perdure.turn import call_tokens


class FinishedCall(Body):
    """The result of a call.

    Attributes:
        result: What the model reads: a text, or another value, which it reads as JSON.
        is_error: Whether the job failed, and the result says why.
    """

    result: JsonValue = None
    is_error: bool = False


class TurnOfCall(Value):
    """The turn whose call has the result: its complete id."""

    turn: str


@operation("POST", "/v1/calls/{token}", may="control")
async def finish_call(call: Call, body: FinishedCall) -> TurnOfCall:
    """Send the result of a call that waits for it, by the token that its tool was given.

    The same result may be sent again: it takes effect once.
    """
    token: str = call.request.path_params["token"]
    check_token(call.caller, token)
    try:
        turn_id = await call.client.finish_call(
            token, body.result, is_error=body.is_error, by=call.caller.subject
        )
    except errors.TurnNotFoundError:  # who has no token does not learn which turns there are
        raise call_tokens.not_open() from None
    return TurnOfCall(turn=turn_id)
