"""The effects of a turn's calls, over HTTP: list them, and take one back."""

from __future__ import annotations

from urllib.parse import quote

from perdure.base import Value
from perdure.clients.gateway.inputs import Body
from perdure.clients.gateway.operations import Accepted, Call, operation
from perdure.clients.gateway.rest.turns import TurnReference
from perdure.values.effects import EffectRecord


class EffectList(Value):
    """What is known of the effects of a turn's calls and its delegates' calls, in their order."""

    effects: tuple[EffectRecord, ...]


class UndoCall(Body):
    """A call whose effect is to be taken back.

    Attributes:
        call_id: The call's id; in the `effects` of the turn, `undo` of the call is not empty.
    """

    call_id: str


@operation("GET", "/v1/turns/{id:path}/effects", may="read")
async def list_effects(call: Call) -> EffectList:
    """List what is known of the effects of a turn, also what was taken back since its end."""
    return EffectList(effects=await call.client.turn(call.id).effects())


@operation("POST", "/v1/turns/{id:path}/undo", may="decide")
async def undo_call(call: Call, body: UndoCall) -> Accepted[TurnReference]:
    """Start the turn that takes back the effect of a call of a turn that is over, or find it."""
    turn = await call.client.turn(call.id).undo(body.call_id, by=call.caller.subject)
    call.locate(f"/v1/turns/{quote(turn.id)}")
    return TurnReference(id=turn.id, run_id=await turn.first_run())
