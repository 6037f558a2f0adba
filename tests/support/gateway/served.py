"""A gateway on loopback for tests: the application behind a real uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import uvicorn
from httpx_sse import aconnect_sse
from starlette.requests import Request

from perdure import limits
from perdure.clients import AgentClient
from perdure.clients.gateway import Auth, Caller, app
from perdure.clients.gateway.application import operations

CALLERS = {
    "anna": Caller("anna@example.com", "acme"),
    "rita": Caller("rita@example.com", "acme", frozenset({"read"})),
    "sam": Caller("sam@example.com", "acme", frozenset({"read", "start"})),
    "otto": Caller("otto@example.com", "other"),
    "tess": Caller("tess@example.com", "third"),
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
    client: AgentClient,
    auth: Auth = by_name,
    *,
    name: str = "anna",
    port: int = 0,
    **options: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client, of the caller with this name, of a gateway that runs during the block."""
    listening = socket.create_server(("127.0.0.1", port))
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
    try:
        async with httpx.AsyncClient(
            base_url=base, headers=as_(name), timeout=90, verify=False
        ) as http:
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


async def until_not(status: int, ask: Callable[[], Awaitable[int]]) -> int:
    """The first other status."""
    async with asyncio.timeout(60):
        while (found := await ask()) == status:  # noqa: ASYNC110 - it is asked over HTTP
            await asyncio.sleep(0.05)
    return found


BODIES: dict[str, dict[str, Any]] = {
    "forget_reminder": {"id": "remind-1"},
    "send_webhook": {"webhook": "on_done-1"},
    "run_agent": {"threadId": "nothing", "runId": "r-1", "messages": []},
    "start_turn": {"agent": "desk", "task": "one"},
    "approve_call": {"call_id": "call_1_1", "token": "000000000000"},
    "deny_call": {"call_id": "call_1_1", "token": "000000000000"},
    "settle_call": {"call_id": "call_1_1", "token": "000000000000", "settlement": "done"},
    "answer_call": {"call_id": "call_1_1", "token": "000000000000", "answer": "yes"},
    "undo_call": {"call_id": "call_1_1"},
    "add_budget": {"iterations": 1},
    "emit_event": {"name": "deployed"},
    "emit_by_key": {"name": "deployed", "key": "4711"},
    "finish_call": {"result": "done"},
    "steer_turn": {"text": "Hello."},
    "fork_turn": {"at_step": 0},
    "send_message": {"text": "Hello."},
    "unqueue_message": {"id": "m-1"},
    "add_to_session": {"budget": {"tokens": 5}},
    "add_to_batch": {"budget": {"tokens": 5}},
    "add_to_schedule": {"budget": {"tokens": 5}},
    "fork_session": {"id": "forked"},
    "change_schedule": {"cron": "1 1 * * *"},
    "backfill_schedule": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
}
"""A valid body for each operation on something that exists, if it needs one."""
A2A = {"A2A-Version": "1.0"}
"""The header of a request over A2A."""
MANY_VALUES = b'{"jsonrpc": "2.0", "id": 1, "params": [' + b"1," * limits.HTTP_BODY_VALUES + b"1]}"
"""A request of JSON-RPC with more values than a body may have."""


def send_message(id: str, **more: str) -> dict[str, Any]:
    """A request of A2A that sends a text. `more` are further fields of the message."""
    message = {"messageId": id, "role": "ROLE_USER", "parts": [{"text": "a"}], **more}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}


async def answers_to_others(http: httpx.AsyncClient, kind: str, id: str) -> set[tuple[int, str]]:
    """The answers that another tenant gets from all operations on a resource."""
    found = set()
    for operation in operations():
        if not operation.path.startswith(f"/v1/{kind}/{{id"):
            continue
        for name in (id, f"@acme/{id}", f"@acme%2F{id}", f"@other/../@acme/{id}"):
            path = operation.path.replace("{id:path}", name)
            body = BODIES.get(operation.name)
            response = await http.request(operation.method, path, json=body, headers=as_("otto"))
            found.add(told(response))
    return found


def told(response: httpx.Response) -> tuple[int, str]:
    """The status and the code of a problem."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem = response.json()
    assert problem["status"] == response.status_code
    assert problem["type"] == f"urn:perdure:problem:{problem['code']}"
    return response.status_code, problem["code"]
