"""Turns as tasks of MCP: the extension `io.modelcontextprotocol/tasks` of the 2026 revision.

To a client that declares the extension, `start_turn` returns a task instead of a result. The task's
id is that of the turn, and its result is what `turn_result` returns at the end. Nothing is stored:
each request reads the turn, so any turn is a task, and any process answers.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.elicitation import render_elicitation_schema
from mcp.server.extension import Extension, MethodBinding
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    ElicitResult,
    RequestParams,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from perdure import errors, limits
from perdure.agents.mcp_tasks import TASKS
from perdure.clients.gateway.mcp.forms import Filled, form_of
from perdure.clients.gateway.mcp.questions import can_ask, question_of, who
from perdure.clients.gateway.mcp.served import Served
from perdure.clients.gateway.mcp.turn_view import view
from perdure.clients.turns.status import TurnStatus
from perdure.temporal.acts.sources import through
from perdure.temporal.payloads import explain
from perdure.values.approvals import PendingApproval, Settlement
from perdure.values.reports import Outcome

TaskState = Literal["working", "input_required", "completed", "cancelled"]
"""The statuses of tasks that are used. A turn that fails is a completed task with an error result:
`failed` is for errors of the protocol."""

Ctx = ServerRequestContext[Served, Any]
Json = dict[str, Any]
Asked = Mapping[str, tuple[str, PendingApproval]]
"""Calls that wait for a person, and their turns, by the keys of the questions."""

_MS = timedelta(milliseconds=1)


class TaskParams(RequestParams):
    """The params of a request about a task."""

    task_id: str


class UpdateParams(TaskParams):
    """Answers to the questions of a task, by their keys."""

    input_responses: dict[str, JsonValue]


class Verdict(BaseModel):
    """The user's decision about a call."""

    model_config = ConfigDict(strict=True)

    approve: bool = Field(title="Let it run", description="Off: the call is denied.")
    reason: str = Field("", description="Why; the agent is told if the call is denied.")


class Account(BaseModel):
    """What the user says of a call whose outcome is unknown."""

    model_config = ConfigDict(strict=True)

    settlement: Settlement = Field(
        title="What became of it",
        description="done: it took effect; absent: it did not; again: make it again.",
    )
    result: str = Field("", description="The result, such as a number; the agent reads it.")


UserAnswer = Verdict | Account | Filled
"""What the user says: about a call that waits for approval, one that was made, or a question."""

_ACCOUNT = render_elicitation_schema(Account)
_VERDICT = render_elicitation_schema(Verdict)


class Tasks(Extension):
    """The extension: `start_turn` returns a task, and the requests about tasks.

    With `approvals`, a call that waits for a person is a question to the client's user.
    """

    identifier = TASKS

    def __init__(self, *, approvals: bool) -> None:
        self._approvals = approvals

    def methods(self) -> Sequence[MethodBinding]:
        """Return the requests, which only clients of the 2026 revision make."""
        versions = frozenset(MODERN_PROTOCOL_VERSIONS)
        return (
            MethodBinding("tasks/get", TaskParams, self._get, versions),
            MethodBinding("tasks/update", UpdateParams, self._update, versions),
            MethodBinding("tasks/cancel", TaskParams, self._cancel, versions),
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: Ctx, call_next: CallNext
    ) -> HandlerResult:
        """Return a task for a turn that was started.

        If its status cannot be read now, the tool's own result is returned, which has its id.
        """
        result = await call_next(ctx)
        if params.name != "start_turn" or not _has_tasks(ctx):
            return result
        if not isinstance(result, CallToolResult) or result.is_error:
            return result
        with contextlib.suppress(errors.PerdureError):
            status = await _status(ctx, result.structured_content["turn"])
            return {"resultType": "task", **await _task(ctx, status, self._asked(ctx, status))}
        return result

    async def _get(self, ctx: Ctx, params: TaskParams) -> Json:
        with _answering(ctx, params) as served:
            served.require("read")
            status = await _status(ctx, params.task_id)
            questions = self._asked(ctx, status)
            return {**await _task(ctx, status, questions), **_details(status, questions)}

    async def _update(self, ctx: Ctx, params: UpdateParams) -> Json:
        """Decide about the calls whose questions are answered.

        Other answers are ignored: the question was answered before, or never asked.
        """
        with _answering(ctx, params) as served:
            served.require("decide")
            questions = self._asked(ctx, await _status(ctx, params.task_id))
            answers = [
                (wait, _answer(key, wait[1], params.input_responses[key]))
                for key, wait in questions.items()
                if key in params.input_responses
            ]
            for wait, answer in answers:
                await _decide(ctx, wait, answer)
        return {}

    async def _cancel(self, ctx: Ctx, params: TaskParams) -> Json:
        with _answering(ctx, params) as served:
            served.require("control")
            turn, _ = await served.turn(params.task_id)
            by = who(served, ctx.session)
            with through("mcp"):
                await turn.cancel(f"by {by}", by=by)
        return {}

    def _asked(self, ctx: Ctx, status: TurnStatus) -> Asked:
        """Return the calls that the user is asked about.

        There are none if the client cannot ask its user, or the caller may not decide.
        """
        can_decide = self._approvals and ctx.lifespan_context.may("decide")
        if not can_decide or not can_ask(ctx.session.client_capabilities):
            return {}
        return {_key(wait.call): (wait.turn_id, wait.call) for wait in status.waits if wait.call}


def _has_tasks(ctx: Ctx) -> bool:
    """Whether the client declares the extension. Before the 2026 revision none can."""
    client = ctx.session.client_capabilities
    is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return is_modern and client is not None and TASKS in (client.extensions or {})


@contextlib.contextmanager
def _answering(ctx: Ctx, params: TaskParams) -> Iterator[Served]:
    """Yield the turns that the caller is offered, and turn errors into those of the protocol."""
    if not _has_tasks(ctx):
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"the request needs the extension {TASKS}, which the client does not declare",
            {"requiredCapabilities": {"extensions": {TASKS: {}}}},
        )
    _check_name(ctx, params.task_id)
    try:
        yield ctx.lifespan_context
    except MCPError:
        raise
    except Exception as error:
        if (message := ctx.lifespan_context.in_words(error)) is None:
            raise
        raise MCPError(_code_of(error), message) from None


def _check_name(ctx: Ctx, task_id: str) -> None:
    """Check the header by which proxies route requests about a task, where there is one."""
    name = ctx.request.headers.get(MCP_NAME_HEADER) if ctx.request is not None else None
    if name is not None and decode_header_value(name) != task_id:
        raise MCPError(HEADER_MISMATCH, "the header Mcp-Name differs from the task's id")


def _code_of(error: Exception) -> int:
    match error:
        case errors.TurnNotFoundError() | errors.InvalidRequestError():
            return INVALID_PARAMS
        case errors.PerdureError():
            return INTERNAL_ERROR
        case _:
            return INVALID_REQUEST


async def _status(ctx: Ctx, task_id: str) -> TurnStatus:
    served = ctx.lifespan_context
    return await served.status(served.client.turn(served.own(task_id)))


async def _task(ctx: Ctx, status: TurnStatus, questions: Asked) -> Json:
    """Return a task without its result and its questions."""
    began, ended = status.started_at, status.ended_at
    assert began is not None
    retention = await _retention(ctx.lifespan_context.client.temporal) if ended else None
    ttl = ended + retention - began if ended and retention else None
    return {
        "taskId": status.id,
        "status": _state(status, questions),
        "statusMessage": status.error.message if status.error else status.doing,
        "createdAt": began.isoformat(),
        "lastUpdatedAt": (ended or status.since or began).isoformat(),
        "ttlMs": ttl and ttl // _MS,
        "pollIntervalMs": limits.MCP_POLL // _MS,
    }


def _state(status: TurnStatus, questions: Asked) -> TaskState:
    match status.outcome:
        case None:
            return "input_required" if questions else "working"
        case Outcome.CANCELLED:
            return "cancelled"
        case _:
            return "completed"


def _details(status: TurnStatus, questions: Asked) -> Json:
    match _state(status, questions):
        case "input_required":
            return {
                "inputRequests": {key: _question(*question) for key, question in questions.items()}
            }
        case "completed":
            return {"result": _result(status)}
        case _:
            return {}


def _result(status: TurnStatus) -> Json:
    """Return the result of the tool call that became the task."""
    seen = view(status)
    result = CallToolResult(
        content=[TextContent(text=seen.model_dump_json(indent=2))],
        structured_content=seen.model_dump(mode="json"),
        is_error=status.error is not None,
    )
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def _retention(client: Client) -> timedelta | None:
    """Return the time for which ended turns are kept; None if Temporal does not say it."""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        description = await client.workflow_service.describe_namespace(request)
    except RPCError:
        return None
    return description.config.workflow_execution_retention_ttl.ToTimedelta() or None


def _key(call: PendingApproval) -> str:
    """Return the key of a question.

    A call that is asked about again, because a deploy has changed its tool, has another one.
    """
    if not call.reason:
        return call.token
    why = hashlib.sha256(call.reason.encode("utf-8", "replace")).hexdigest()
    return f"{call.token}.{why[:8]}"


def _question(turn_id: str, call: PendingApproval) -> Json:
    return {
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": question_of(turn_id, call),
            "requestedSchema": _schema(call),
        },
    }


def _schema(call: PendingApproval) -> Json:
    if call.question is not None:
        return form_of(call).schema
    return _ACCOUNT if call.is_unknown else _VERDICT


def _answer(key: str, call: PendingApproval, response: JsonValue) -> UserAnswer | None:
    """Return the user's decision about a call; None if the question was dismissed.

    Raises:
        MCPError: It is not a response to the question.
    """
    try:
        answer = ElicitResult.model_validate(response)
        match answer.action:
            case "accept" if call.question is not None:
                return Filled.model_validate(answer.content or {})
            case "accept" if call.is_unknown:
                return Account.model_validate(answer.content or {})
            case "accept":
                return Verdict.model_validate(answer.content or {})
            case "decline":
                return Verdict(approve=False, reason="")
            case "cancel":
                return None
    except ValidationError as error:
        reason = explain(error)
        raise MCPError(INVALID_PARAMS, f"the response to {key} is not valid: {reason}") from None


async def _decide(ctx: Ctx, wait: tuple[str, PendingApproval], answer: UserAnswer | None) -> None:
    """Record a decision. One that comes too late is ignored, as the extension asks for."""
    if answer is None:
        return
    turn_id, call = wait
    served = ctx.lifespan_context
    turn, by = served.client.turn(turn_id), who(served, ctx.session)
    too_late = (errors.ApprovalConflictError, errors.TurnOverError)
    with contextlib.suppress(*too_late), through("mcp"):
        if isinstance(answer, Filled):
            await turn.answer(call, form_of(call).answer_in(answer.content), by=by)
        elif isinstance(answer, Account):
            await turn.settle(call, answer.settlement, answer.result, by=by)
        elif answer.approve:
            await turn.approve(call, reason=answer.reason, by=by)
        else:
            await turn.deny(call, answer.reason, by=by)
