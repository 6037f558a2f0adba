"""The HTTP client of server connections, with a bounded body, a read timeout and no compression."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import httpx2

from perdure import limits

_CONNECT_S = 10.0


def http_client(
    headers: Mapping[str, str],
    silence: timedelta,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> httpx2.AsyncClient:
    """Return a client for a server. `silence` limits the time between two reads of an answer."""
    limit = httpx2.Timeout(_CONNECT_S, read=silence.total_seconds() + _CONNECT_S)
    return httpx2.AsyncClient(
        headers={"accept-encoding": "identity", **headers},
        timeout=limit,
        transport=transport,
        event_hooks={"response": [_bound]},
    )


async def _bound(response: httpx2.Response) -> None:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    packed = response.headers.get("content-encoding", "identity") != "identity"
    response.stream = _Bounded(response.stream, 0 if packed else limits.PROVIDER_BODY_BYTES)


class _Bounded(httpx2.AsyncByteStream):
    """A body that raises once it is too long."""

    def __init__(self, inner: httpx2.AsyncByteStream, most_bytes: int) -> None:
        self._inner = inner
        self._left = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.ReadError(
                    "the server's answer is too long, or compressed without having been asked to"
                )
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
