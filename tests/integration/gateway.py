"""A gateway on loopback for tests: the application behind a real uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import uvicorn
from httpx_sse import aconnect_sse
from starlette.requests import Request

from perdure.clients import AgentClient
from perdure.clients.http import Auth, Caller, app

CALLERS = {
    "anna": Caller("anna@example.com", "acme"),
    "rita": Caller("rita@example.com", "acme", frozenset({"read"})),
    "otto": Caller("otto@example.com", "other"),
    "root": Caller("root@example.com", None),
}


def by_name(request: Request) -> Caller | None:
    """The caller whose token is its name."""
    return CALLERS.get(request.headers.get("authorization", "").removeprefix("Bearer "))


def as_(name: str) -> dict[str, str]:
    """The headers of a caller."""
    return {"Authorization": f"Bearer {name}"}


@contextlib.asynccontextmanager
async def served(
    client: AgentClient, auth: Auth | None = by_name, *, name: str = "anna", **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client, of the caller with this name, of a gateway that runs during the block."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app(client, auth, **options),
        log_config=None,
        timeout_graceful_shutdown=1,
        ws="none",
        lifespan="off",
        proxy_headers=False,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listening]))
    base = f"http://127.0.0.1:{listening.getsockname()[1]}"
    headers = as_(name) if auth else {}
    try:
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=90) as http:
            yield http
    finally:
        server.should_exit = True
        await serving


async def messages(
    http: httpx.AsyncClient, path: str, after: str = "", **query: Any
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The messages of a stream: id, empty for those without one, and data."""
    headers = {"Last-Event-ID": after} if after else {}
    async with aconnect_sse(http, "GET", path, headers=headers, params=query) as source:
        last = ""
        async for one in source.aiter_sse():
            if one.data:
                yield (one.id if one.id != last else ""), json.loads(one.data)
            last = one.id


async def until(
    http: httpx.AsyncClient, path: str, kind: str, after: str = ""
) -> list[tuple[str, dict[str, Any]]]:
    """The messages up to the first of this kind; then the client disconnects."""
    seen = []
    async with contextlib.aclosing(messages(http, path, after)) as stream:  # type: ignore[type-var]
        async for one in stream:
            seen.append(one)
            if one[1]["kind"] == kind:
                break
    return seen


def told(response: httpx.Response) -> tuple[int, str]:
    """The status and the code of a problem."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem = response.json()
    assert problem["status"] == response.status_code
    assert problem["type"] == f"urn:perdure:problem:{problem['code']}"
    return response.status_code, problem["code"]
