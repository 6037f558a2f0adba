"""The SDK's client of MCP on a gateway, and the extension for tasks, which the SDK has not."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Literal

import httpx
import httpx2
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession, ElicitationFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    Request,
    RequestParams,
    Result,
)
from pydantic import ConfigDict, JsonValue

TASKS = "io.modelcontextprotocol/tasks"


class Created(Result):
    """The result of a call that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    status_message: str
    created_at: datetime
    last_updated_at: datetime
    ttl_ms: int | None
    poll_interval_ms: int


class TaskParams(RequestParams):
    """The params of a request about a task."""

    task_id: str
    input_responses: dict[str, JsonValue] | None = None


class TaskRequest(Request[TaskParams, str]):
    """A request about a task, whose id is in the header `Mcp-Name` as well."""

    name_param = "taskId"


class Answered(Result):
    """The result of a request about a task, as it is."""

    model_config = ConfigDict(extra="allow")


class WithTasks(ClientExtension):
    """A client that knows tasks: `call_tool` drives them to their end."""

    identifier = TASKS

    def __init__(self, user: ElicitationFnT | None = None) -> None:
        self.user = user
        self.created: list[Created] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self._drive)]

    async def _drive(self, created: Created, context: ClaimContext) -> CallToolResult:
        self.created.append(created)
        task = await over(context.session, created.task_id, self.user)
        return CallToolResult.model_validate(task["result"])


class User:
    """The user of a client, who answers every question in the same way."""

    def __init__(self, action: Any = "accept", **content: Any) -> None:
        self.asked: list[str] = []
        self.answer = ElicitResult(action=action, content=content or None)

    async def __call__(self, context: object, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        return self.answer


async def ask(
    session: ClientSession, method: str, task: str, responses: dict[str, JsonValue] | None = None
) -> dict[str, Any]:
    """The result of a request about a task."""
    params = TaskParams(task_id=task, input_responses=responses)
    found = await session.send_request(TaskRequest(method=method, params=params), Answered)
    return found.model_extra or {}


async def until(session: ClientSession, task: str, *statuses: str) -> dict[str, Any]:
    """The task when it has one of these statuses."""
    async with asyncio.timeout(60):
        while (found := await ask(session, "tasks/get", task))["status"] not in statuses:  # noqa: ASYNC110 - it is asked over HTTP
            await asyncio.sleep(0.05)
    return found


async def over(session: ClientSession, task: str, user: ElicitationFnT | None) -> dict[str, Any]:
    """The task at its end. The user answers each question once."""
    answered: set[str] = set()
    nothing: Any = None
    while True:
        found = await until(session, task, "input_required", "completed", "cancelled")
        if found["status"] != "input_required":
            return found
        asked = {key: one for key, one in found["inputRequests"].items() if key not in answered}
        for key, one in asked.items():
            assert user is not None
            answer = await user(nothing, ElicitRequest.model_validate(one).params)
            written = answer.model_dump(mode="json", exclude_none=True)
            await ask(session, "tasks/update", task, {key: written})
            answered.add(key)


@contextlib.asynccontextmanager
async def assistant(
    *gateways: httpx.AsyncClient,
    name: str = "anna",
    user: ElicitationFnT | None = None,
    extensions: Sequence[ClientExtension] = (),
    mode: str = "auto",
) -> AsyncIterator[Client]:
    """A client of MCP. With several gateways, each of its requests goes to the next one."""
    ports = itertools.cycle([one.base_url.port for one in gateways])

    async def send_to_next(request: httpx2.Request) -> None:
        request.url = request.url.copy_with(port=next(ports))

    async with (
        httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {name}"},
            event_hooks={"request": [send_to_next]},
            timeout=60,
        ) as web,
        Client(
            streamable_http_client(f"{str(gateways[0].base_url).rstrip('/')}/mcp", http_client=web),
            mode=mode,
            elicitation_callback=user,
            extensions=extensions,
        ) as client,
    ):
        yield client


async def use(client: Client, name: str, **arguments: Any) -> Any:
    """The result of a tool; an error as `{"refused": its text}`."""
    result: Any = await client.call_tool(name, arguments)
    if result.is_error:
        return {"refused": result.content[0].text.removeprefix(f"Error executing tool {name}: ")}
    return result.structured_content


async def refusal(session: ClientSession, method: str, task: str, **more: Any) -> tuple[int, str]:
    """The code and the message of the error that a request about a task gets."""
    try:
        await ask(session, method, task, **more)
    except MCPError as error:
        return error.error.code, error.error.message
    raise AssertionError(f"{method} of {task} was not refused")
