"""What the client of MCP declares with its requests."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from mcp.shared.message import SessionMessage
from mcp_types import CLIENT_CAPABILITIES_META_KEY, JSONRPCNotification, JSONRPCRequest

from perdure.activities.mcp.declared import ASKS, declaring

CAPABILITIES: dict[str, Any] = {"extensions": {"some": {}}}


class Transport:
    """A connection whose other end is kept."""

    async def __aenter__(self) -> Any:
        self.write, self.sent = anyio.create_memory_object_stream[SessionMessage](9)
        self._there, self._read = anyio.create_memory_object_stream[Any](1)
        return self._read, self.write

    async def __aexit__(self, *_: object) -> None:
        for stream in (self.write, self.sent, self._there, self._read):
            await stream.aclose()


async def sent_with(meta: dict[str, Any] | None) -> Any:
    """The params of a request as they are sent."""
    transport = Transport()
    params = {"name": "build"} if meta is None else {"name": "build", "_meta": meta}
    async with declaring(transport) as (_, write):
        request = JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params=params)
        await write.send(SessionMessage(request))
        await write.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="ping")))
        sent = [transport.sent.receive_nowait().message for _ in range(2)]
    assert isinstance(sent[0], JSONRPCRequest)
    return sent[0].params


@pytest.mark.accepts("T77")
async def test_forms_are_declared_with_the_requests_that_say_so() -> None:
    """Beside what the SDK declares, whose value of all requests stays as it is."""
    mine = {CLIENT_CAPABILITIES_META_KEY: CAPABILITIES, ASKS: True}
    params = await sent_with(mine)

    declared = {**CAPABILITIES, "elicitation": {"form": {}}}
    assert params["_meta"] == {CLIENT_CAPABILITIES_META_KEY: declared}
    assert CAPABILITIES == {"extensions": {"some": {}}}


@pytest.mark.accepts("T77")
async def test_other_requests_and_servers_of_earlier_revisions_are_told_nothing() -> None:
    """In those revisions, a request has no capabilities."""
    others = {CLIENT_CAPABILITIES_META_KEY: CAPABILITIES}

    assert (await sent_with(dict(others)))["_meta"] == others
    assert (await sent_with({ASKS: True}))["_meta"] == {}
    assert await sent_with(None) == {"name": "build"}
