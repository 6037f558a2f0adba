"""Events by key over HTTP."""

from __future__ import annotations

from pydantic import JsonValue

from perdure.clients.gateway.inputs import Body, key_of
from perdure.clients.gateway.operations import Accepted, Call, operation
from perdure.clients.gateway.options import Reference


class EmitKeyedEvent(Body):
    """An event for all turns that wait for its name and key.

    Attributes:
        name: The name by which models wait for it.
        key: What it is about, such as the number of a build.
        body: What it holds, any JSON value.
        id: Its id; the same id is the same event. The header `Idempotency-Key` can have it
            instead.
    """

    name: str
    key: str
    body: JsonValue = None
    id: str | None = None


@operation("POST", "/v1/events", may="control", takes_key=True)
async def emit_by_key(call: Call, body: EmitKeyedEvent) -> Accepted[Reference]:
    """Send an event to all turns that wait for its name and key, now or within the next hour."""
    event_id = await call.client.emit(
        body.name,
        key=call.caller.own(body.key),
        body=body.body,
        id=body.id if body.id is not None else key_of(call.request),
        by=call.caller.subject,
    )
    return Reference(id=event_id)
