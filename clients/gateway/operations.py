"""Operations: what a route does, and what its document says of it.

Each operation is declared once. The decorator `operation` has its method, path and permission, and
the signature of its handler has the rest: the parameters `body` and `query` are validated, and the
type that is returned says the statuses and models of the answers. The routes of the application and
its OpenAPI document are made from these declarations.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import ModuleType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perdure import limits
from perdure.clients.client import AgentClient
from perdure.clients.gateway import inputs
from perdure.clients.gateway.auth import Auth, Caller, caller_of
from perdure.clients.gateway.permissions import Permission
from perdure.clients.gateway.problems import response_to
from perdure.clients.gateway.quotas import ScheduleIds
from perdure.clients.gateway.streams import EventStream, OpenRequests
from perdure.temporal.acts.sources import Via, through

if TYPE_CHECKING:
    from perdure.clients.gateway.hooks.serving import ServedHook

Method = Literal["GET", "POST", "PATCH", "DELETE"]
EVENTS: Final = "text/event-stream"
"""Stands for a model where an operation answers with a stream."""
Answers = Mapping[int, type[BaseModel] | Literal["text/event-stream"] | None]

_OF_PAGE = "Perdure-Page"
"""The header by which the gateway's page says that a request is its own."""

V = TypeVar("V")
Accepted = Annotated[V, HTTPStatus.ACCEPTED]
"""The answer of a request whose effect is not over."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """What all requests of an application share."""

    client: AgentClient
    auth: Auth
    open_requests: OpenRequests
    temporal_ui: str | None = None
    hooks: tuple[ServedHook, ...] = ()
    agents: tuple[str, ...] = ()
    url: str | None = None
    bodies: inputs.Bodies = field(default_factory=inputs.Bodies)
    schedule_ids: ScheduleIds = field(default_factory=ScheduleIds)


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was admitted.

    Attributes:
        gateway: What it shares with all others.
        caller: Who makes it.
        request: The request.
        headers: Headers of the answer, which the handler adds.
    """

    gateway: Gateway
    caller: Caller
    request: Request
    headers: dict[str, str] = field(default_factory=dict)

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

    def locate(self, path: str) -> None:
        """Name a resource in a header of the answer."""
        self.headers["Location"] = f"{self.request.scope.get('root_path', '')}{path}"


Handler = Callable[..., Awaitable[BaseModel | Response | None]]
Refuse = Callable[[Exception], Response]


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path.

    Attributes:
        method: The HTTP method.
        path: The path, with parameters as Starlette writes them.
        may: The permission that it needs.
        handler: The function that answers.
        models: The models of the parameters `body` and `query` of the handler, as far as it has
            them.
        answers: The model of the answer for each status of success; None for an empty answer.
        takes_key: Whether it takes the header `Idempotency-Key`.
        refuse: Returns the response to a request that failed.
    """

    method: Method
    path: str
    may: Permission
    handler: Handler
    models: Mapping[str, type[BaseModel]]
    answers: Answers
    takes_key: bool = False
    refuse: Refuse = response_to

    @property
    def body(self) -> type[BaseModel]:
        """The model of the body."""
        return self.models.get("body", inputs.Nothing)

    @property
    def query(self) -> type[BaseModel]:
        """The model of the query."""
        return self.models.get("query", inputs.Nothing)

    @property
    def name(self) -> str:
        """The name of the operation in the document."""
        return self.handler.__name__

    @property
    def text(self) -> str:
        """What it does: a line, and details after an empty one."""
        return inspect.getdoc(self.handler) or ""

    def route(self, gateway: Gateway, via: Via = "rest") -> Route:
        """Return the route of an application; `via` is the protocol that it is a part of."""

        async def endpoint(request: Request) -> Response:
            is_of_page = via == "rest" and _OF_PAGE in request.headers
            try:
                with through("page" if is_of_page else via):
                    return await self._answer(request, gateway)
            except Exception as error:  # noqa: BLE001 - every error is answered
                return self.refuse(error)

        return Route(self.path, endpoint, methods=[self.method], name=self.name)

    async def _answer(self, request: Request, gateway: Gateway) -> Response:
        caller = await caller_of(request, gateway.auth)
        caller.require(self.may)
        values = {
            "query": inputs.query_of(request, self.query),
            "body": await inputs.body_of(request, self.body, gateway.bodies),
        }
        call = Call(gateway, caller, request)
        async with asyncio.timeout(limits.HTTP_REQUEST.total_seconds()):
            answer = await self.handler(call, **{name: values[name] for name in self.models})
        return answer if isinstance(answer, Response) else self._response(answer, call.headers)

    def _response(self, answer: BaseModel | None, headers: Mapping[str, str]) -> Response:
        """Return an answer as JSON. Numbers that JSON cannot write are null."""
        if answer is None:
            return Response(status_code=HTTPStatus.NO_CONTENT.value)
        status = next(
            status
            for status, model in self.answers.items()
            if isinstance(model, type) and isinstance(answer, model)
        )
        written = to_json(answer, inf_nan_mode="null")
        return Response(written, status, headers, "application/json")


def operation(
    method: Method,
    path: str,
    *,
    may: Permission,
    takes_key: bool = False,
    refuse: Refuse = response_to,
) -> Callable[[Handler], Operation]:
    """Declare the operation that a handler implements.

    The parameters of the handler are `call` and, if it has them, `body` and `query`. It returns a
    model, or nothing for an empty answer; a model in `Accepted` has the status 202, and others 200.
    A response is sent as it is; only an `EventStream` is part of the document.
    """

    def declared(handler: Handler) -> Operation:
        models = get_type_hints(handler, include_extras=True)
        answers = dict(_answers(models.pop("return")))
        del models["call"]
        return Operation(method, path, may, handler, models, answers, takes_key, refuse)

    return declared


def _answers(returned: Any) -> Iterator[tuple[int, Any]]:
    """Yield the statuses and models of the answers of a handler, by the type that it returns."""
    is_union = get_origin(returned) in (Union, UnionType)
    for answer in get_args(returned) if is_union else (returned,):
        if answer is NoneType:
            yield HTTPStatus.NO_CONTENT.value, None
        elif answer is EventStream:
            yield HTTPStatus.OK.value, EVENTS
        elif get_origin(answer) is Annotated:
            model, status = get_args(answer)
            yield status.value, model
        elif not issubclass(answer, Response):
            yield HTTPStatus.OK.value, answer


def operations_of(*modules: ModuleType) -> tuple[Operation, ...]:
    """Return the operations of modules, in their order there."""
    return tuple(
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Operation)
    )
