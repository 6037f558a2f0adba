"""Reads the body, the query and the idempotency key of a request."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar, TypeVar, get_origin

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from perdure import limits
from perdure.base import Value
from perdure.clients.gateway.problems import Invalid, RefusedError
from perdure.text import one_line

_SHOWN = 300
_PROBLEMS = 10
_CONTAINERS = (dict, list)
_SMALL_BYTES = 64 * 1024
"""A smaller body is validated at once."""
_DROPPING_S = 0.01
"""The pause after each part of a body that is dropped."""
_PAUSES = 3
"""Large bodies take at most a quarter of the time of a process."""

M = TypeVar("M", bound=BaseModel)


class Body(Value):
    """The body of a request. It rejects unknown fields and does not convert types."""

    model_config = ConfigDict(strict=True)

    most_values: ClassVar[int] = limits.HTTP_BODY_VALUES
    """The largest number of JSON values in it."""


class Query(Value):
    """The query of a request. It rejects unknown names."""


class Nothing(Query):
    """No body, or no query."""


class Bodies:
    """The bodies of a process that are being read: their memory, and the time to validate them."""

    def __init__(self, most_bytes: int = limits.HTTP_BODIES_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._validating = asyncio.Lock()

    def keep(self, size: int) -> bool:
        """Reserve memory, and return whether there is enough."""
        if self._bytes + size > self._most_bytes:
            return False
        self._bytes += size
        return True

    def drop(self, size: int) -> None:
        """Return memory that was reserved."""
        self._bytes -= size

    @contextlib.asynccontextmanager
    async def turn_of(self, size: int) -> AsyncIterator[None]:
        """Wait until a large body may be validated, one at a time, with pauses for all others."""
        if size <= _SMALL_BYTES:
            yield
            return
        async with self._validating:
            began = time.perf_counter()
            try:
                yield
            finally:
                await asyncio.sleep(_PAUSES * (time.perf_counter() - began))


async def body_of(request: Request, model: type[M], bodies: Bodies) -> M:
    """Return the body of a request.

    Raises:
        RefusedError: It is too large, comes too slowly, is not JSON, or is not valid; or bodies of
            other requests take all of the memory for them.
    """
    async with kept(request, bodies) as data, bodies.turn_of(len(data)):
        return _validated(request, data, model)


async def bytes_of(request: Request, bodies: Bodies) -> bytes:
    """Return the bytes of the body of a request, for a protocol that reads it itself.

    Raises:
        RefusedError: It is too large, comes too slowly, or has too many values; or there is no
            memory for it.
    """
    async with kept(request, bodies) as data, bodies.turn_of(len(data)):
        _check_values(data, limits.HTTP_BODY_VALUES)
        return data


def document_of(data: bytes) -> JsonValue:
    """Return the JSON value in a body that somebody else describes.

    Raises:
        RefusedError: It is not JSON, or has too many values.
    """
    _check_values(data, limits.HTTP_BODY_VALUES)
    try:
        document: JsonValue = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise _no_json(str(error)) from None
    return document


def check_media_type(request: Request) -> None:
    """Refuse a body that does not say that it is JSON.

    Raises:
        RefusedError: It does not.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusedError(415, "UNSUPPORTED_MEDIA_TYPE", "the body must be application/json")


def _no_json(reason: str) -> RefusedError:
    return RefusedError(400, "INVALID_JSON", one_line(reason, _SHOWN))


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body that was read, and then what follows."""
    coming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return coming.pop() if coming else await receive()

    return received


@contextlib.asynccontextmanager
async def kept(request: Request, bodies: Bodies) -> AsyncIterator[bytes]:
    """Read the body of a request, with its memory reserved during the block."""
    chunks: list[bytes] = []
    try:
        await _read(request, chunks, bodies)
        yield b"".join(chunks)
    finally:
        bodies.drop(sum(map(len, chunks)))


def _validated(request: Request, data: bytes, model: type[M]) -> M:
    if data:
        check_media_type(request)
    _check_values(data, model.most_values if issubclass(model, Body) else limits.HTTP_BODY_VALUES)
    try:
        return model.model_validate_json(data or b"{}")
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
    if problems[0]["type"] == "json_invalid":
        raise _no_json(problems[0]["msg"])
    raise _invalid("the body", problems, from_json(data or b"{}"))


async def _read(request: Request, chunks: list[bytes], bodies: Bodies) -> None:
    """Read the body into `chunks`. One that is too large is read to its end, and not kept.

    A client that still sends would not get the answer.

    Raises:
        RefusedError: It is too large or comes too slowly, or there is no memory for it.
    """
    size, has_room = 0, True
    try:
        async with asyncio.timeout(limits.HTTP_BODY.total_seconds()):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limits.HTTP_BODY_BYTES:
                    await asyncio.sleep(_DROPPING_S)
                    continue
                has_room = has_room and bodies.keep(len(chunk))
                if has_room:
                    chunks.append(chunk)
    except TimeoutError:
        raise RefusedError(
            408,
            "REQUEST_TIMEOUT",
            f"the body did not come within {limits.HTTP_BODY.total_seconds():g} s",
            headers={"Connection": "close"},
        ) from None
    except ClientDisconnect:
        raise RefusedError(400, "DISCONNECTED", "the client has disconnected") from None
    if size > limits.HTTP_BODY_BYTES:
        raise RefusedError(
            413, "TOO_LARGE", f"the body is larger than {limits.HTTP_BODY_BYTES} bytes"
        )
    if not has_room:
        raise RefusedError(
            503,
            "TOO_MANY_REQUESTS",
            "too many large bodies are being read; try again later",
            headers={"Retry-After": str(limits.HTTP_RETRY.seconds)},
        )


def _check_values(data: bytes, limit: int) -> None:
    """Refuse a body with too many values. To validate and to describe them would take seconds.

    Raises:
        RefusedError: It has too many values, or an object with too many members.
    """
    too_many = RefusedError(413, "TOO_LARGE", f"the body has more than {limit} values")
    if least_values(data) > limit:
        raise too_many
    try:
        document = from_json(data or b"{}", cache_strings="none")
    except ValueError:
        return  # to validate it finds the same error, with its place
    level: list[Any] = [document] if type(document) in _CONTAINERS else []
    count = 0
    while level:
        if any(isinstance(value, dict) and len(value) > limits.HTTP_MEMBERS for value in level):
            raise RefusedError(
                413, "TOO_LARGE", f"an object has more than {limits.HTTP_MEMBERS} members"
            )
        count += sum(map(len, level))
        if count > limit:
            raise too_many
        level = [inner for value in level for inner in _containers_in(value)]


def _containers_in(value: dict[str, Any] | list[Any]) -> list[Any]:
    """Return the objects and arrays that are members of a container."""
    members = value.values() if isinstance(value, dict) else value
    return [member for member in members if type(member) in _CONTAINERS]


def least_values(data: bytes) -> int:
    """Return a number of values that a JSON document has at least, without reading it.

    Quotes that are not escaped begin or end a string, and a value has two strings at most: its name
    and itself. Quotes after a backslash are left out, also if that is escaped itself.
    """
    return (data.count(b'"') - data.count(b'\\"')) // 4


def query_of(request: Request, model: type[M]) -> M:
    """Return the query of a request. A name whose field is a list may be repeated.

    Raises:
        RefusedError: It is not valid.
    """
    fields: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        field = model.model_fields.get(name)
        is_list = field is not None and get_origin(field.annotation) is tuple
        fields[name] = values if is_list or len(values) > 1 else values[0]
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
    raise _invalid("the query", problems, fields)


def key_of(request: Request) -> str | None:
    """Return the idempotency key of a request; None without one."""
    key = request.headers.get("idempotency-key")
    if key is not None and len(key) > 1 and key[0] == key[-1] == '"':
        return key[1:-1]
    return key


def _invalid(part: str, problems: list[ErrorDetails], document: object) -> RefusedError:
    return RefusedError(
        422,
        "INVALID_REQUEST",
        f"{part} is not valid: {_words(problems[0], document)}",
        invalid=[
            Invalid(pointer=_pointer(problem, document), detail=_detail(problem))
            for problem in problems[:_PROBLEMS]
        ],
    )


def _words(problem: ErrorDetails, document: object) -> str:
    pointer = _pointer(problem, document).removeprefix("#/")
    return f"{pointer}: {_detail(problem)}" if pointer != "#" else _detail(problem)


def _detail(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":
        return "there is no such field; /openapi.json has those that there are"
    return one_line(problem["msg"].removeprefix("Value error, "), _SHOWN)


def _pointer(problem: ErrorDetails, document: object) -> str:
    """Return the JSON pointer to a part of a document that is not valid, or is missing."""
    parts = list(_parts(problem["loc"], document, is_missing=problem["type"] == "missing"))
    written = (str(part).replace("~", "~0").replace("/", "~1") for part in parts)
    return one_line("/".join(("#", *written)), _SHOWN)


def _parts(
    location: tuple[int | str, ...], document: object, *, is_missing: bool
) -> Iterator[int | str]:
    """Yield the parts of a place that the document has; pydantic's also name types of a union."""
    for part in location[:-1] if is_missing else location:
        match document:
            case dict() if part in document:
                document = document[part]
                yield part
            case list() if isinstance(part, int) and part < len(document):
                document = document[part]
                yield part
    if is_missing:
        yield location[-1]
