"""Operations: what a route does, and what its document says of it.

Each operation is declared once, by the decorator `operation` on its handler. The routes of the
application and its OpenAPI document are made from these declarations.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perdure import limits
from perdure.clients.client import AgentClient
from perdure.clients.gateway import inputs
from perdure.clients.gateway.auth import Auth, Caller, Permission, caller_of
from perdure.clients.gateway.problems import response_to
from perdure.clients.gateway.quotas import ScheduleIds
from perdure.clients.gateway.streams import OpenRequests

Method = Literal["GET", "POST", "PATCH", "DELETE"]
EVENTS: Final = "text/event-stream"
"""Stands for a model where an operation answers with a stream."""
Answers = Mapping[int, type[BaseModel] | Literal["text/event-stream"] | None]

B = TypeVar("B", bound=BaseModel)
Q = TypeVar("Q", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Gateway:
    """What all requests of an application share."""

    client: AgentClient
    auth: Auth
    open_requests: OpenRequests
    temporal_ui: str | None = None
    bodies: inputs.Bodies = field(default_factory=inputs.Bodies)
    schedule_ids: ScheduleIds = field(default_factory=ScheduleIds)


@dataclass(frozen=True, slots=True)
class Call(Generic[B, Q]):
    """A request that was admitted, with its body and its query."""

    gateway: Gateway
    caller: Caller
    request: Request
    body: B
    query: Q

    @property
    def client(self) -> AgentClient:
        """The client."""
        return self.gateway.client

    @property
    def id(self) -> str:
        """The complete id of the resource, which is one of the caller's tenant."""
        return self.caller.own(self.request.path_params["id"])

    def stay_open(self) -> contextlib.AbstractContextManager[None]:
        """Count the request as a stream or a long poll during a block.

        Raises:
            RefusedError: Too many are open.
        """
        return self.gateway.open_requests.one_of(self.caller)

    def location(self, path: str) -> dict[str, str]:
        """Return the header that names a resource."""
        return {"Location": f"{self.request.scope.get('root_path', '')}{path}"}


Handler = Callable[[Call[B, Q]], Awaitable[Response]]
Refuse = Callable[[Exception], Response]


@dataclass(frozen=True, slots=True)
class Operation(Generic[B, Q]):
    """A method of a path.

    Attributes:
        method: The HTTP method.
        path: The path, with parameters as Starlette writes them.
        may: The permission that it needs.
        body: The model of the body.
        query: The model of the query.
        answers: The model of the answer for each status of success; None for an empty answer.
        handler: The function that answers.
        takes_key: Whether it takes the header `Idempotency-Key`.
        refuse: Returns the response to a request that failed.
    """

    method: Method
    path: str
    may: Permission
    body: type[B]
    query: type[Q]
    answers: Answers
    handler: Handler[B, Q]
    takes_key: bool = False
    refuse: Refuse = response_to

    @property
    def name(self) -> str:
        """The name of the operation in the document."""
        return self.handler.__name__

    @property
    def text(self) -> str:
        """What it does: a line, and details after an empty one."""
        return inspect.getdoc(self.handler) or ""

    def route(self, gateway: Gateway) -> Route:
        """Return the route of an application."""

        async def endpoint(request: Request) -> Response:
            try:
                return await self._answer(request, gateway)
            except Exception as error:  # noqa: BLE001 - every error is answered
                return self.refuse(error)

        return Route(self.path, endpoint, methods=[self.method], name=self.name)

    async def _answer(self, request: Request, gateway: Gateway) -> Response:
        caller = await caller_of(request, gateway.auth)
        caller.require(self.may)
        query = inputs.query_of(request, self.query)
        body = await inputs.body_of(request, self.body, gateway.bodies)
        async with asyncio.timeout(limits.HTTP_REQUEST.total_seconds()):
            return await self.handler(Call(gateway, caller, request, body, query))


def operation(
    method: Method,
    path: str,
    *,
    may: Permission,
    body: type[B],
    query: type[Q],
    answers: Answers,
    takes_key: bool = False,
    refuse: Refuse = response_to,
) -> Callable[[Handler[B, Q]], Operation[B, Q]]:
    """Declare the operation that a handler implements."""

    def declared(handler: Handler[B, Q]) -> Operation[B, Q]:
        return Operation(method, path, may, body, query, answers, handler, takes_key, refuse)

    return declared


def answer(
    value: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a value as JSON. Numbers that JSON cannot write are null."""
    written = to_json(value, inf_nan_mode="null")
    return Response(written, status, headers, "application/json")


def done() -> Response:
    """Return an empty answer."""
    return Response(status_code=204)


AnyOperation = Operation[Any, Any]
