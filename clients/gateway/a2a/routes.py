"""The routes of agents that are served over A2A: a card, and JSON-RPC."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence

from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from google.protobuf.json_format import MessageToDict
from pydantic_core import from_json, to_json
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perdure import errors, limits
from perdure.clients.gateway.a2a.agents import A2AAgent
from perdure.clients.gateway.a2a.cards import DELEGATES, card
from perdure.clients.gateway.a2a.handler import CALL, HELD, A2ATasks, NotOfProtocolError
from perdure.clients.gateway.auth import caller_of
from perdure.clients.gateway.inputs import bytes_of, replayed
from perdure.clients.gateway.operations import Call, Gateway
from perdure.clients.gateway.problems import response_to
from perdure.clients.gateway.static_answers import static_answer
from perdure.clients.gateway.streams import EventStream
from perdure.temporal.acts.sources import through
from perdure.text import one_line

_LOGGERS = (
    "a2a.server.routes.jsonrpc_dispatcher",
    "a2a.server.request_handlers.response_helpers",
    "a2a.utils.version_validator",
)
_LOGGED = 500


def routes(gateway: Gateway, agents: Sequence[A2AAgent]) -> list[Route]:
    """Return the routes of agents.

    Raises:
        ConfigurationError: Two of them have the same name.
    """
    twice = [name for name, count in Counter(agent.name for agent in agents).items() if count > 1]
    if twice:
        raise errors.ConfigurationError(f"agent {twice[0]!r} is served twice over A2A")
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_in_one_line)
    return [route for agent in agents for route in _routes_of(gateway, agent)]


def _routes_of(gateway: Gateway, agent: A2AAgent) -> list[Route]:
    path = f"/a2a/{agent.name}"
    dispatcher = JsonRpcDispatcher(A2ATasks(agent.name), _Contexts())

    async def tell(request: Request) -> Response:
        url = f"{str(request.base_url).rstrip('/')}{path}"
        document = MessageToDict(card(agent, url))
        return static_answer(request, to_json(document))

    async def answer(request: Request) -> Response:
        try:
            return await _answer(request, gateway, dispatcher)
        except NotOfProtocolError as error:
            return error.response
        except Exception as error:  # noqa: BLE001 - every error is answered
            return response_to(error)

    return [
        Route(f"{path}{AGENT_CARD_WELL_KNOWN_PATH}", tell, methods=["GET"]),
        Route(path, answer, methods=["POST"]),
        Route(f"{path}/", answer, methods=["POST"]),  # clients do not follow a redirect
    ]


async def _answer(request: Request, gateway: Gateway, dispatcher: JsonRpcDispatcher) -> Response:
    caller = await caller_of(request, gateway.auth)
    body = await bytes_of(request, gateway.bodies)
    with contextlib.ExitStack() as held:
        again = Request(request.scope, replayed(body if _is_json(body) else b"", request.receive))
        again.state.call = Call(gateway, caller, request)
        again.state.held = held
        async with asyncio.timeout(limits.HTTP_REQUEST.total_seconds()):
            with through("a2a"):
                response = await dispatcher.handle_requests(again)
        if isinstance(response, EventSourceResponse):
            stream = EventStream(_events(response), held.pop_all())
            if DELEGATES in _extensions(request):
                stream.headers[HTTP_EXTENSION_HEADER] = DELEGATES
            return stream
        return response


async def _events(response: EventSourceResponse) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield the messages of a stream of the SDK, for one with our limits."""
    async for event in response.body_iterator:
        assert isinstance(event, dict)
        yield ServerSentEvent(**event)


def _is_json(body: bytes) -> bool:
    """Whether the body is JSON without anything that its answer could not hold."""
    try:
        from_json(body, allow_inf_nan=False)
    except ValueError:
        return False
    return True


class _Contexts(ServerCallContextBuilder):
    """Gives the methods the caller of their request."""

    def build(self, request: Request) -> ServerCallContext:
        state = {
            "headers": dict(request.headers),
            CALL: request.state.call,
            HELD: request.state.held,
        }
        return ServerCallContext(state=state, requested_extensions=_extensions(request))


def _extensions(request: Request) -> set[str]:
    """Return the URIs of the extensions that a client activates."""
    return get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER))


def _in_one_line(record: logging.LogRecord) -> bool:
    """Keep texts of callers, which the SDK logs, from forging lines of the log.

    A record with a traceback is followed by one without it, and is left out.
    """
    if record.exc_info:
        return False
    record.msg, record.args = one_line(record.getMessage(), _LOGGED), ()
    return True
