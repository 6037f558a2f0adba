"""MCP over streamable HTTP, with the extra `perdure[mcp]`: the tools of `perdure mcp`, and tasks.

The protocol is the SDK's, in its stateless mode: each request has a transport of its own, so any
process answers. Callers, permissions, tenants and limits are the gateway's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateSecurity
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from perdure import errors, limits
from perdure.clients.gateway.auth import Caller, caller_of, origins_of
from perdure.clients.gateway.ids import chosen_id, random_id
from perdure.clients.gateway.inputs import bytes_of, replayed
from perdure.clients.gateway.mcp.served import Permission, Served
from perdure.clients.gateway.mcp.server import define
from perdure.clients.gateway.operations import Gateway
from perdure.clients.gateway.problems import STATUS, RefusedError, response_to
from perdure.clients.gateway.quotas import check_turns
from perdure.clients.gateway.streams import OpenRequests

logger = logging.getLogger("perdure")

_TALKATIVE = logging.getLogger(StreamableHTTPSessionManager.__module__)


@dataclass(frozen=True, kw_only=True)
class ServedToCaller(Served):
    """The turns that the caller of a request is offered.

    Attributes:
        caller: The caller.
        credential: The header that it proved that by: a token, or the cookie of a session.
        open_requests: What counts its calls that wait.
    """

    caller: Caller
    credential: str
    open_requests: OpenRequests

    @property
    def longest_wait(self) -> timedelta:
        """The same as for a long poll."""
        return limits.HTTP_WAIT

    @property
    def id_prefix(self) -> str | None:
        """That of its tenant."""
        return self.caller.prefix or None

    @property
    def fairness(self) -> str | None:
        """Its tenant."""
        return self.caller.tenant

    @property
    def key(self) -> bytes:
        """A key that every process derives from the request, and that is another one for others."""
        parts = (self.caller.subject, self.caller.tenant or "", self.credential)
        return hashlib.sha256("\n".join(parts).encode()).digest()

    def may(self, permission: Permission) -> bool:
        """Whether the caller has a permission."""
        return permission in self.caller.may

    def own(self, turn_id: str) -> str:
        """Return an id of its tenant."""
        return self.caller.own(turn_id)

    def new_id(self, agent: str, own_id: str | None) -> str | None:
        """Return an id of its tenant, under the rules of the gateway."""
        return random_id(self.caller, agent) if own_id is None else chosen_id(self.caller, own_id)

    async def check_turns(self, turn_id: str | None) -> None:
        """Refuse to start another turn if the tenant has too many.

        Raises:
            RefusedError: It has.
        """
        await check_turns(self.client, self.caller, turn_id)

    def name_of(self, program: str) -> str:
        """Return its subject, whatever its client is called."""
        return self.caller.subject

    def stay_open(self) -> AbstractContextManager[None]:
        """Count a call that waits, among the streams and long polls of the caller."""
        return self.open_requests.one_of(self.caller)

    def in_words(self, error: Exception) -> str | None:
        """Return what the caller is told; what only the operator can solve goes to the log."""
        match error:
            case RefusedError():
                return f"{error.code}: {error.detail}"
            case errors.PerdureError() if not isinstance(error, tuple(STATUS)):
                logger.error("a request over MCP failed: %s: %s", error.code, error.message)
                return f"{error.code}: the log of the server has the reason"
            case _:
                return super().in_words(error)


_served: ContextVar[ServedToCaller] = ContextVar("served")
"""What the request that is answered is offered."""


class Endpoint:
    """Answers the requests of MCP, as an ASGI application."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._server = _server()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose caller is known and whose body has arrived."""
        request = Request(scope, receive)
        try:
            caller = await caller_of(request, self._gateway.auth)
            body = await bytes_of(request, self._gateway.bodies)
        except Exception as error:  # noqa: BLE001 - every error is answered
            await response_to(error)(scope, receive, send)
            return
        served = ServedToCaller(
            client=self._gateway.client,
            caller=caller,
            credential=request.headers.get("authorization") or request.headers.get("cookie", ""),
            open_requests=self._gateway.open_requests,
        )
        _served.set(served)
        manager = StreamableHTTPSessionManager(
            self._server, stateless=True, security_settings=_same_origin(request)
        )
        async with manager.run():
            await manager.handle_request(scope, replayed(body, receive), send)


def _server() -> Server[Served]:
    """Return the server of the SDK, for the transport of each request."""
    if _TALKATIVE.level == logging.NOTSET:
        _TALKATIVE.setLevel(logging.WARNING)  # it announces its start, which is each request
    with _logging_left_alone():
        server = define(
            _served.get,
            middleware=[_in_time],
            state=RequestStateSecurity(codec=_Sealed(), bind_principal=None),
        )
    server.streamable_http_app(stateless_http=True)
    return server.session_manager.app


@contextlib.contextmanager
def _logging_left_alone() -> Iterator[None]:
    """Keep the SDK from configuring the root logger, which it does if that has no handler."""
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


async def _in_time(ctx: ServerRequestContext[Served, Any], call_next: CallNext) -> HandlerResult:
    """End a request that takes too long."""
    try:
        async with asyncio.timeout(limits.HTTP_REQUEST.total_seconds()):
            return await call_next(ctx)
    except TimeoutError:
        message = "TIMEOUT: the request took too long; it may still take effect"
        raise MCPError(INTERNAL_ERROR, message) from None


class _Sealed:
    """Seals what a client carries between a question and its answer, with a key of its caller."""

    def seal(self, payload: bytes) -> str:
        return AESGCMRequestStateCodec([_served.get().key]).seal(payload)

    def unseal(self, token: str) -> bytes:
        return AESGCMRequestStateCodec([_served.get().key]).unseal(token)


def _same_origin(request: Request) -> TransportSecuritySettings:
    """Refuse requests from the pages of other sites."""
    host = request.headers.get("host", "")
    return TransportSecuritySettings(
        allowed_hosts=[host], allowed_origins=origins_of(request.headers)
    )
