"""Tells whether a tool that raised may have taken effect nevertheless.

A request whose answer is lost may have been carried out, and a request that was never sent has not.
Which of both an exception means is known from its class, in any library that a tool may use.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.agents.tool_context import OutcomeUnknown
from perdure.agents.tools import Tool

_NEVER_SENT = frozenset(
    {
        "builtins.ConnectionRefusedError",
        "socket.gaierror",
        "httpx.ConnectError",
        "httpx.ConnectTimeout",
        "httpx.PoolTimeout",
        "httpx.UnsupportedProtocol",
        "httpcore.ConnectError",
        "httpcore.ConnectTimeout",
        "httpcore.PoolTimeout",
        "requests.exceptions.ConnectTimeout",
        "urllib3.exceptions.ConnectTimeoutError",
        "urllib3.exceptions.NewConnectionError",
        "aiohttp.client_exceptions.ClientConnectorError",
        "aiohttp.client_exceptions.ConnectionTimeoutError",
        "botocore.exceptions.ConnectTimeoutError",
        "botocore.exceptions.EndpointConnectionError",
    }
)
_ANSWER_LOST = frozenset(
    {
        "builtins.TimeoutError",
        "builtins.ConnectionResetError",
        "builtins.ConnectionAbortedError",
        "builtins.BrokenPipeError",
        "asyncio.exceptions.IncompleteReadError",
        "http.client.IncompleteRead",
        "http.client.RemoteDisconnected",
        "httpx.ReadTimeout",
        "httpx.WriteTimeout",
        "httpx.ReadError",
        "httpx.WriteError",
        "httpx.CloseError",
        "httpx.RemoteProtocolError",
        "requests.exceptions.ReadTimeout",
        "requests.exceptions.ChunkedEncodingError",
        "urllib3.exceptions.IncompleteRead",
        "urllib3.exceptions.ProtocolError",
        "urllib3.exceptions.ReadTimeoutError",
        "aiohttp.client_exceptions.ClientPayloadError",
        "aiohttp.client_exceptions.ServerDisconnectedError",
        "aiohttp.client_exceptions.ServerTimeoutError",
        "botocore.exceptions.ConnectionClosedError",
        "botocore.exceptions.ReadTimeoutError",
        "botocore.exceptions.ResponseStreamingError",
    }
)


def may_have_taken_effect(item: Tool, error: BaseException) -> bool:
    """Return whether a call that ended with this exception may have changed something.

    A tool that is read-only changes nothing. Otherwise the first exception that is known decides:
    the one that was raised, or one that caused it.
    """
    if item.read_only:
        return False
    for cause in _causes(error):
        if isinstance(cause, OutcomeUnknown):
            return True
        names = {_name(kind) for kind in type(cause).__mro__}
        if names & _NEVER_SENT:
            return False
        if names & _ANSWER_LOST:
            return not any(_is_never_sent(below) for below in _causes(cause))
    return False


def _is_never_sent(error: BaseException) -> bool:
    return any(_name(kind) in _NEVER_SENT for kind in type(error).__mro__)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what caused it, the last first."""
    known: set[int] = set()
    below: BaseException | None = error
    while below is not None and id(below) not in known:
        known.add(id(below))
        yield below
        below = below.__cause__ or (None if below.__suppress_context__ else below.__context__)
