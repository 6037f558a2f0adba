"""The hooks of a gateway over HTTP: which there are, and what became of their deliveries."""

from __future__ import annotations

from perdure.base import Value
from perdure.clients.gateway.operations import Call, operation


class HookEntry(Value):
    """A hook, and the number of its deliveries since this process of the gateway began.

    Attributes:
        path: Where deliveries are sent.
        verify: How they are signed.
        agent: The agent that gets them; null for a hook that sends events.
        event: The name of the event that is sent to a turn.
        started: The number of those that have started something, repetitions included.
        ignored: The number of those that start nothing: left out by the filter, or a test.
        refused: The number of those that were refused.
    """

    path: str
    verify: str
    agent: str | None
    event: str | None
    started: int
    ignored: int
    refused: int


class HookList(Value):
    """The hooks of the tenant of the caller, or all of them for a caller without a tenant."""

    hooks: tuple[HookEntry, ...]


@operation("GET", "/v1/hooks", may="read")
async def list_hooks(call: Call) -> HookList:
    """List the hooks of the gateway, and count their deliveries in this process."""
    tenant = call.caller.tenant
    served = (
        each for each in call.gateway.hooks if tenant is None or each.hook.caller.tenant == tenant
    )
    return HookList(
        hooks=tuple(
            HookEntry(
                path=each.hook.table.path,
                verify=each.hook.table.verify,
                agent=each.hook.table.agent,
                event=each.hook.table.event,
                started=each.tally.started,
                ignored=each.tally.ignored,
                refused=each.tally.refused,
            )
            for each in served
        )
    )
