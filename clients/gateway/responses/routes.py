"""The paths of OpenAI's API. Every answer below them has an id, and every error OpenAI's form."""

from __future__ import annotations

import logging
import secrets
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.clients.gateway.operations import Gateway, operations_of
from perdure.clients.gateway.responses import chat, conversations, models, operations
from perdure.clients.gateway.responses.refusals import refusal, unsupported

logger = logging.getLogger("perdure")

BASE: Final = "/openai/v1"
_ABOVE: Final = "/openai"
OPERATIONS = operations_of(chat, conversations, models, operations)
"""The operations, in the order in which paths are matched."""


def routes(gateway: Gateway) -> list[Mount]:
    """Return the routes of an application."""
    served = Starlette(
        routes=[operation.route(gateway, "responses") for operation in OPERATIONS],
        exception_handlers={HTTPException: _unsupported},
    )
    others = Starlette(exception_handlers={HTTPException: _unsupported})
    return [Mount(BASE, _with_ids(served)), Mount(_ABOVE, _with_ids(others))]


def refused(error: Exception) -> ASGIApp:
    """Return the application that answers a request that is refused before its route is known."""
    return _with_ids(refusal(error))


async def _unsupported(request: Request, error: Exception) -> Response:
    """Return the response to a request that no route takes."""
    assert isinstance(error, HTTPException)
    return refusal(unsupported(request, error.status_code, error.headers))


def _with_ids(app: ASGIApp) -> ASGIApp:
    """Return the application with an id in each answer, which the log has if the server failed."""

    async def numbered(scope: Scope, receive: Receive, send: Send) -> None:
        request_id = f"req_{secrets.token_hex(16)}"

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
                if message["status"] >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    logger.error("request %s failed: %d", request_id, message["status"])
            await send(message)

        await app(scope, receive, sent)

    return numbered
