"""The application: routes for all operations, the document, and the health of the process."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from perdure import errors, limits
from perdure.clients.client import AgentClient
from perdure.clients.gateway import connect, extras, openapi, static_page
from perdure.clients.gateway.a2a.agents import A2AAgent
from perdure.clients.gateway.auth import Auth
from perdure.clients.gateway.hooks.definitions import Hook
from perdure.clients.gateway.hooks.serving import ServedHook
from perdure.clients.gateway.middleware import PathLimit, SecurityHeaders
from perdure.clients.gateway.operations import Gateway, Operation, operations_of
from perdure.clients.gateway.problems import of_http
from perdure.clients.gateway.rates import Rate, limited
from perdure.clients.gateway.responses import routes as openai
from perdure.clients.gateway.rest import (
    about,
    approvals,
    audit,
    batches,
    calls,
    effects,
    hooks,
    keyed_events,
    schedules,
    session_events,
    sessions,
    turn_events,
    turns,
    webhooks,
)
from perdure.clients.gateway.static_answers import static_answer
from perdure.clients.gateway.streams import OpenRequests

if TYPE_CHECKING:  # it imports pyjwt, which a gateway without a provider does not need
    from perdure.clients.gateway.oidc.provider import IdentityProvider

OPERATIONS = operations_of(
    turn_events,
    effects,
    webhooks,
    turns,
    approvals,
    calls,
    session_events,
    sessions,
    schedules,
    batches,
    keyed_events,
    hooks,
    audit,
    about,
)
"""Every operation but those of the protocols of others, in the order in which paths are matched."""


def operations() -> tuple[Operation, ...]:
    """Return every operation that the document describes.

    Those of a protocol are left out if its extra is not installed.
    """
    return (*OPERATIONS, *extras.operations())


def app(
    client: AgentClient,
    auth: Auth,
    *,
    agents: Sequence[str] = (),
    a2a_agents: Sequence[A2AAgent] = (),
    hooks: Sequence[Hook] = (),
    max_streams: int = limits.HTTP_STREAMS,
    max_streams_of_caller: int = limits.HTTP_STREAMS_OF_CALLER,
    temporal_ui: str | None = None,
    identity: IdentityProvider | None = None,
    rate: Rate | None = None,
    url: str | None = None,
) -> Starlette:
    """Create an application that serves turns over HTTP, to mount or to run.

    It stores nothing that another process would need, so any number of processes can serve the same
    turns. Each counts the requests that are open in it, and keeps small caches.

    Args:
        client: The client that starts and finds the turns.
        auth: Returns the caller of a request, or None if it is not known; may be async.
            `tokens_from` makes one from a file, and `one_token` from a token.
        agents: The names of agents that OpenAI's API lists as models, besides those over A2A and
            those of recent turns. Others can be asked, too.
        a2a_agents: The agents that are served over A2A as well, which needs `perdure[a2a]`.
        hooks: What `hooks_from` returns: signed requests of other systems that start turns. They
            need no caller.
        max_streams: The largest number of streams and long polls that are open in this process.
        max_streams_of_caller: The largest number of them for one caller.
        temporal_ui: The address of Temporal's web UI, such as `http://localhost:8233`, to which the
            page links.
        identity: An identity provider whose tokens are taken besides those that `auth` knows, and
            that people log in with.
        rate: The rate of requests of each caller in this process; without one, there is no limit.
        url: The address of the application for browsers, where people come back to after a login
            at an MCP server; not needed on this machine.

    Raises:
        ConfigurationError: There are agents for A2A, and its packages are missing or two agents
            have the same name; or the address of the web UI is not one of the web.
    """
    if identity is not None:
        auth = identity.beside(auth)
    if identity is not None or rate is not None:
        auth = limited(auth, rate)
    gateway = Gateway(
        client,
        auth,
        OpenRequests(max_streams, max_streams_of_caller),
        about.workflows_in(temporal_ui, client.temporal.namespace) if temporal_ui else None,
        hooks=tuple(ServedHook(client, hook) for hook in hooks),
        agents=(*agents, *(agent.name for agent in a2a_agents)),
        url=None if url is None else url.rstrip("/"),
    )
    return Starlette(
        routes=[
            Route("/healthz", _health, name="health"),
            Route("/openapi.json", _document, name="document"),
            *(operation.route(gateway) for operation in OPERATIONS),
            *openai.routes(gateway),
            *extras.routes(gateway),
            *_a2a(gateway, a2a_agents),
            *(hook.route() for hook in gateway.hooks),
            *connect.routes(gateway),
            *(identity.routes() if identity is not None else []),
            *static_page.routes(),
        ],
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(PathLimit, refusals={openai.BASE: openai.refused}),
        ],
        exception_handlers={HTTPException: of_http},
    )


def _a2a(gateway: Gateway, agents: Sequence[A2AAgent]) -> list[Route]:
    """Return the routes of agents that are served over A2A."""
    if not agents:
        return []
    try:
        from perdure.clients.gateway.a2a.routes import routes
    except ImportError:
        raise errors.ConfigurationError(
            "agents over A2A need more packages: pip install 'perdure[a2a]'"
        ) from None
    return routes(gateway, agents)


async def _health(_: Request) -> Response:
    """Answer while the process serves requests, whatever Temporal does."""
    return JSONResponse({"status": "ok"})


async def _document(request: Request) -> Response:
    return static_answer(request, document_bytes())


@functools.cache
def document_bytes() -> bytes:
    """Return the document, which takes 0.1 s to make and does not change in a process."""
    return to_json(openapi.document(operations()))
