"""An MCP server over HTTP, in the process of the test, which answers calls with tasks.

The test says what becomes of each task; the SDK has the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import uvicorn
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolRequestParams, RequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from perdure import MCPServer as Declared

from ...conftest import eventually
from .ports import free_port
from .processes import accepts
from .tasks import TASKS

CREATED = {"createdAt": "2026-11-25T10:30:00Z", "lastUpdatedAt": "2026-11-25T10:30:00Z"}

Ctx = ServerRequestContext[Any, Any]


class TaskParams(RequestParams):
    """The params of a request about a task."""

    task_id: str


def done(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """What is said of a task whose tool has returned a text."""
    result = {"content": [{"type": "text", "text": text}], "isError": is_error}
    return {"status": "completed", "result": result}


class TaskServer(Extension):
    """A builder: `build` is a task from its first moment on, and `look` is none.

    Attributes:
        tasks: What is said of each task, by its id.
        built: The arguments of the calls that became tasks.
        asked: Each request about a task: its method, and when it came.
        is_refusing: Whether requests about tasks get an internal error.
        declares: Whether it declares the extension.
        upcoming: What is said of the next new tasks, ...
        new: ... and of all others.
    """

    identifier = TASKS

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.built: list[dict[str, Any]] = []
        self.asked: list[tuple[str, float]] = []
        self.is_refusing = False
        self.declares = True
        self.upcoming: list[dict[str, Any]] = []
        self.new: dict[str, Any] = {"status": "working", "pollIntervalMs": 500}
        self.port = free_port()
        self._ids = (f"build-{number}" for number in itertools.count(1))
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    def box(self, **options: Any) -> Declared:
        """The toolbox of an agent."""
        return Declared.http("works", f"http://127.0.0.1:{self.port}/mcp", **options)

    def methods(self) -> Sequence[MethodBinding]:
        """The requests about tasks."""
        versions = frozenset(MODERN_PROTOCOL_VERSIONS)
        return tuple(
            MethodBinding(f"tasks/{verb}", TaskParams, handler, versions)
            for verb, handler in (("get", self._get), ("cancel", self._cancel))
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: Ctx, call_next: CallNext
    ) -> HandlerResult:
        """Begin a task in place of `build`, for a client that knows tasks."""
        client = ctx.session.client_capabilities
        if params.name != "build" or TASKS not in ((client and client.extensions) or {}):
            return await call_next(ctx)
        task_id = next(self._ids)
        self.built.append(dict(params.arguments or {}))
        self.tasks[task_id] = self.upcoming.pop(0) if self.upcoming else dict(self.new)
        return {"resultType": "task", **self._seen(task_id)}

    async def first(self) -> dict[str, Any]:
        """The first task, when it has begun."""
        await eventually(lambda: bool(self.tasks), "a task has begun")
        return next(iter(self.tasks.values()))

    def times(self, method: str) -> list[float]:
        """When requests of a method came."""
        return [moment for name, moment in self.asked if name == method]

    def _seen(self, task_id: str) -> dict[str, Any]:
        return {"taskId": task_id, "ttlMs": None, **CREATED, **self.tasks[task_id]}

    def _noted(self, method: str, task_id: str) -> None:
        self.asked.append((method, time.monotonic()))
        if self.is_refusing:
            raise MCPError(INTERNAL_ERROR, "the disk is away")
        if task_id not in self.tasks:
            raise MCPError(INVALID_PARAMS, "Task not found")

    async def _get(self, ctx: Ctx, params: TaskParams) -> dict[str, Any]:
        self._noted("tasks/get", params.task_id)
        return self._seen(params.task_id)

    async def _cancel(self, ctx: Ctx, params: TaskParams) -> dict[str, Any]:
        self._noted("tasks/cancel", params.task_id)
        self.tasks[params.task_id] = {"status": "cancelled"}
        return {}

    async def start(self) -> None:
        """Listen."""
        server: MCPServer[Any] = MCPServer(
            "works", extensions=[self] if self.declares else [], log_level="ERROR"
        )
        server.tool()(build)
        server.tool()(look)
        config = uvicorn.Config(
            server.streamable_http_app(),
            port=self.port,
            log_config=None,
            timeout_graceful_shutdown=1,
            ws="none",
        )
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server.serve())
        await accepts(self.port)

    async def stop(self) -> None:
        """Listen no more. The tasks are kept."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
            self._server = self._serving = None


def build(what: str) -> str:
    """Build something, which takes its time."""
    return f"built {what} at once"


def look(what: str) -> str:
    """Look at something."""
    return f"{what} looks good"


@contextlib.asynccontextmanager
async def task_server() -> AsyncIterator[TaskServer]:
    """A server that listens during the block."""
    logging.getLogger("mcp").setLevel(logging.ERROR)
    server = TaskServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
