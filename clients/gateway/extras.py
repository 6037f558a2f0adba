"""The protocols whose packages are extras.

Importing one takes half a second, so it is imported with the first request that needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from importlib.util import find_spec

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.clients.gateway.operations import Gateway, Operation, operations_of

_AGUI = "ag_ui"
_MCP = "mcp"


def operations() -> tuple[Operation, ...]:
    """Return the operations of the protocols whose packages are installed. Imports them."""
    return _agui() if find_spec(_AGUI) else ()


def routes(gateway: Gateway) -> Iterator[BaseRoute]:
    """Yield the routes of the protocols whose packages are installed. Imports none of them."""
    if find_spec(_AGUI):
        yield Route("/agui/{agent}", Imported(lambda: _runs(gateway)), methods=["POST"])
    if find_spec(_MCP):
        yield Route("/mcp", Imported(lambda: _endpoint(gateway)), methods=["POST"], name="mcp")


class Imported:
    """An ASGI application that is made with its first request, in a thread."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._making = asyncio.Lock()
        self._made: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        async with self._making:
            if self._made is None:
                self._made = await asyncio.to_thread(self._make)
        await self._made(scope, receive, send)


def _agui() -> tuple[Operation, ...]:
    from perdure.clients.gateway.agui import runs

    return operations_of(runs)


def _runs(gateway: Gateway) -> ASGIApp:
    [operation] = _agui()
    return operation.route(gateway, "agui").app


def _endpoint(gateway: Gateway) -> ASGIApp:
    from perdure.clients.gateway.mcp.http import Endpoint

    return Endpoint(gateway)
