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
from ..ports import free_port
from .processes import accepts
from .tasks import TASKS

CREATED = {"createdAt": "2026-11-25T10:30:00Z", "lastUpdatedAt": "2026-11-25T10:30:00Z"}

Ctx = ServerRequestContext[Any, Any]


class TaskParams(RequestParams):
    """The params of a request about a task."""

    task_id: str
    input_responses: dict[str, Any] | None = None


def asking(message: str, **fields: Any) -> dict[str, Any]:
    """A request to the user, with the schemas of what is filled in."""
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def needs(**requests: dict[str, Any]) -> dict[str, Any]:
    """What is said of a task that needs answers of the user."""
    return {"status": "input_required", "inputRequests": requests, "pollIntervalMs": 500}


def done(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """What is said of a task whose tool has returned a text."""
    result = {"content": [{"type": "text", "text": text}], "isError": is_error}
    return {"status": "completed", "result": result}


class TaskServer(Extension):
    """A builder: `build` is a task from its first moment on, `look` is none, and `paint` asks its
    user something before it goes on.

    Attributes:
        tasks: What is said of each task, by its id.
        built: The arguments of the calls that became tasks.
        asked: Each request about a task: its method, and when it came.
        is_refusing: Whether requests about tasks get an internal error.
        declares: Whether it declares the extension.
        upcoming: What is said of the next new tasks, ...
        new: ... and of all others.
        then: What is said of a task once it has the answers of the user.
        answers: The answers to questions of tasks, each as it came.
        refuses_answers: Whether it refuses them.
        loses_answers: How many times such answers get lost on their way.
        asks: What `paint` asks in each of its rounds.
        rounds: The answers and the state with which it was called.
        holds: The method of the next request that is held until its client is gone: `tasks/get`
            before it is answered, and `tasks/update` after the answers are taken in.
        is_held: Set once it is.
        forms: The methods with which the client has declared how it asks its user, and how.
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
        self.then: dict[str, Any] = done("a house")
        self.answers: list[dict[str, Any]] = []
        self.loses_answers = 0
        self.refuses_answers = False
        self.asks: list[dict[str, Any]] = []
        self.rounds: list[tuple[dict[str, Any] | None, str | None]] = []
        self.holds = ""
        self.is_held = asyncio.Event()
        self.forms: list[tuple[str, dict[str, Any]]] = []
        self.port = free_port()
        self._ids = (f"build-{number}" for number in itertools.count(1))
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    def box(self, name: str = "works", **options: Any) -> Declared:
        """The toolbox of an agent."""
        return Declared.http(name, f"http://127.0.0.1:{self.port}/mcp", **options)

    def methods(self) -> Sequence[MethodBinding]:
        """The requests about tasks."""
        versions = frozenset(MODERN_PROTOCOL_VERSIONS)
        return tuple(
            MethodBinding(f"tasks/{verb}", TaskParams, handler, versions)
            for verb, handler in (
                ("get", self._get),
                ("cancel", self._cancel),
                ("update", self._update),
            )
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: Ctx, call_next: CallNext
    ) -> HandlerResult:
        """Begin a task in place of `build`, for a client that knows tasks."""
        self._note_forms("tools/call", ctx)
        if params.name == "paint":
            self._note_round(params)
            if len(self.rounds) <= len(self.asks):
                return self._asked()
        client = ctx.session.client_capabilities
        if params.name != "build" or TASKS not in ((client and client.extensions) or {}):
            return await call_next(ctx)
        task_id = next(self._ids)
        self.built.append(dict(params.arguments or {}))
        self.tasks[task_id] = self.upcoming.pop(0) if self.upcoming else dict(self.new)
        return {"resultType": "task", **self._seen(task_id)}

    def _asked(self) -> HandlerResult:
        """Ask the user something, in place of the call."""
        number = len(self.rounds)
        requests = self.asks[number - 1]
        more = {"inputRequests": requests} if requests else {}
        return {"resultType": "input_required", "requestState": f"round {number}", **more}

    def _note_round(self, params: CallToolRequestParams) -> None:
        responses = params.input_responses
        given: dict[str, Any] | None = None
        if responses:
            given = {key: value.model_dump(exclude_none=True) for key, value in responses.items()}
        self.rounds.append((given, params.request_state))

    def _note_forms(self, method: str, ctx: Ctx) -> None:
        client = ctx.session.client_capabilities
        if client is not None and client.elicitation is not None:
            self.forms.append((method, client.elicitation.model_dump(exclude_none=True)))

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
        self._note_forms("tasks/get", ctx)
        self._noted("tasks/get", params.task_id)
        await self._pass("tasks/get")
        return self._seen(params.task_id)

    async def _cancel(self, ctx: Ctx, params: TaskParams) -> dict[str, Any]:
        self._noted("tasks/cancel", params.task_id)
        self.tasks[params.task_id] = {"status": "cancelled"}
        return {}

    async def _update(self, ctx: Ctx, params: TaskParams) -> dict[str, Any]:
        """Take answers in. With the last of them, the task works on."""
        self._note_forms("tasks/update", ctx)
        self._noted("tasks/update", params.task_id)
        responses, task = params.input_responses or {}, self.tasks[params.task_id]
        if self.loses_answers:
            self.loses_answers -= 1
            raise MCPError(INTERNAL_ERROR, "the answers are lost")
        if self.refuses_answers:
            raise MCPError(INVALID_PARAMS, "green is sold out")
        self.answers.append(responses)
        open_ = {key: one for key, one in task["inputRequests"].items() if key not in responses}
        following = needs(**open_) if open_ else dict(self.then)
        self.tasks[params.task_id] = following
        await self._pass("tasks/update")
        return {}

    async def _pass(self, method: str) -> None:
        """Hold a request that is to be held, for ever: its client is killed."""
        if self.holds == method:
            self.holds = ""
            self.is_held.set()
            await asyncio.Event().wait()

    async def start(self) -> None:
        """Listen."""
        server: MCPServer[Any] = MCPServer(
            "works", extensions=[self] if self.declares else [], log_level="ERROR"
        )
        server.tool()(build)
        server.tool()(look)
        server.tool()(paint)
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


def paint(what: str) -> str:
    """Paint something."""
    return f"{what} is painted"


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
