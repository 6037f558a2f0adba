"""The result of a call that comes later, sent by its token."""

from __future__ import annotations

import hashlib

from pydantic import JsonValue
from pydantic_core import to_json
from temporalio.client import Client

from perdure import errors
from perdure.clients.turns import updates
from perdure.temporal import access
from perdure.temporal.names import FINISH_CALL
from perdure.turn import call_tokens
from perdure.turn.job_values import FinishCall


async def finish(
    client: Client, token: str, result: JsonValue, *, is_error: bool, by: str | None
) -> str:
    """Send the result of a call, and return the id of its turn.

    The same result by the same token takes effect once, as long as the turn runs.

    Raises:
        PerdureError: The token is none, or the turn refused the result.
    """
    turn_id = call_tokens.parse(token).turn_id
    finish_call = FinishCall(token=token, content=_text(result), is_error=is_error, by=by)
    payload = updates.packed_message(client, finish_call)
    once = hashlib.sha256(f"{token}\n{is_error}\n{finish_call.content}".encode("utf-8", "replace"))
    await updates.ask(
        client, access.TURN, [""], turn_id, FINISH_CALL, payload, once.hexdigest()[:32]
    )
    return turn_id


def _text(result: JsonValue) -> str:
    """Return a result as the model reads it: a text unchanged, everything else as JSON.

    Raises:
        InvalidRequestError: It is no JSON value.
    """
    if isinstance(result, str):
        return result
    try:
        return to_json(result, inf_nan_mode="constants").decode()
    except (ValueError, RecursionError) as error:
        raise errors.InvalidRequestError(f"the result is no JSON value: {error}") from None
