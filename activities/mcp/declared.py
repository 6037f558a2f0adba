"""What a client declares of itself with a request: that its user fills in forms.

The SDK declares the same with all requests, of each revision, and both kinds of elicitation or
none. Here only those requests declare forms whose questions people are asked durably.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mcp.shared.message import SessionMessage
from mcp_types import CLIENT_CAPABILITIES_META_KEY, JSONRPCRequest

if TYPE_CHECKING:
    from mcp.client import Transport
    from mcp.client._transport import TransportStreams, WriteStream

ASKS = "perdure/asks"
"""The field of a request's `_meta` that says so; it is not sent."""


@contextlib.asynccontextmanager
async def declaring(transport: Transport) -> AsyncIterator[TransportStreams]:
    """Connect, and declare forms with each request that says so in its `_meta`.

    A server of an earlier revision reads no capabilities there, so it is told nothing.
    """
    async with transport as (read, write):
        yield read, _Declaring(write)


class _Declaring:
    """A stream of messages to a server."""

    def __init__(self, write: WriteStream[SessionMessage]) -> None:
        self._write = write

    async def send(self, item: SessionMessage, /) -> None:
        if isinstance(item.message, JSONRPCRequest):
            _declare((item.message.params or {}).get("_meta") or {})
        await self._write.send(item)

    async def aclose(self) -> None:
        await self._write.aclose()

    async def __aenter__(self) -> _Declaring:
        await self._write.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._write.__aexit__(kind, error, traceback)


def _declare(meta: dict[str, Any]) -> None:
    capabilities = meta.get(CLIENT_CAPABILITIES_META_KEY)
    if meta.pop(ASKS, False) and capabilities is not None:
        forms: dict[str, Any] = {"form": {}}
        # the SDK's own value is that of all requests
        meta[CLIENT_CAPABILITIES_META_KEY] = {**capabilities, "elicitation": forms}
