"""Tasks of MCP servers: the extension as a client declares it, and the results of tasks.

A server that knows the extension may answer any call with a task. What is known of a task is asked
for with its id alone, so any worker can ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Literal

from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic.alias_generators import to_camel

from perdure import limits
from perdure.activities.mcp.declared import ASKS
from perdure.activities.mcp.results import output_of
from perdure.activities.tool_compatibility import error_result, unknown_result
from perdure.agents.jobs import PendingJob
from perdure.agents.mcp_tasks import TASKS
from perdure.temporal.payloads import explain
from perdure.text import one_line
from perdure.turn.wire import ToolOutput

_CHARACTERS = 2_000
_UNKNOWN = "whether it took effect is unknown"


class CreatedTask(Result):
    """The answer to a call that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str


class TaskSupport(ClientExtension):
    """The extension, which lets a server answer a call with a task."""

    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return how such an answer is read."""
        return (ResultClaim(result_type="task", model=CreatedTask, resolve=_created),)


async def _created(task: CreatedTask, _: ClaimContext) -> CallToolResult:
    raise AssertionError("a created task is the answer to the call")


class TaskIdParams(RequestParams):
    """The params of a request about a task; with the answers of people, by their keys."""

    task_id: str
    input_responses: dict[str, JsonValue] | None = None


class TaskRequest(Request[TaskIdParams, str]):
    """A request about a task. Over HTTP, proxies route it by the id, which is in a header too."""

    name_param = "taskId"

    @classmethod
    def about(
        cls,
        method: str,
        task_id: str,
        *,
        may_ask: bool = False,
        responses: dict[str, JsonValue] | None = None,
    ) -> TaskRequest:
        """Return the request of a method. With `may_ask`, the task may ask people something."""
        fields = {"taskId": task_id, "inputResponses": responses}
        meta = {"_meta": {ASKS: True}} if may_ask else {}
        return cls(method=method, params=TaskIdParams.model_validate({**fields, **meta}))


class TaskAnswer(Result):
    """The answer to a request about a task, as the server sent it."""

    model_config = ConfigDict(extra="allow")


class _SeenTask(BaseModel):
    """A task, as far as it is used."""

    model_config = ConfigDict(alias_generator=to_camel)

    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    poll_interval_ms: float | None = None
    result: CallToolResult | None = None
    error: dict[str, Any] | None = None


def result_of(
    answer: TaskAnswer, tool: str, server: str, without_secrets: Callable[[str], str]
) -> ToolOutput | PendingJob:
    """Return the result of a task, or when to ask again.

    Args:
        answer: What the server says of the task.
        tool: The name of the tool for models.
        server: The name of the server.
        without_secrets: Removes secrets from the server's texts.
    """
    of_server = f"the MCP server {server!r}"
    try:
        task = _SeenTask.model_validate(answer.model_extra, by_name=False)
    except ValidationError as error:
        reason = without_secrets(explain(error))
        return unknown_result(
            f"{tool}: what {of_server} says of its task is not valid: {reason}; {_UNKNOWN}"
        )
    said = one_line(without_secrets(task.status_message or ""), _CHARACTERS)
    because = f": {said}" if said else ""
    match task.status:
        case "working":
            return PendingJob(f"the task is working{because}", _pause(task.poll_interval_ms))
        case "input_required":
            return cancelled(
                tool, server, f"it asks its user something, which it cannot here{because}"
            )
        case "cancelled":
            return unknown_result(
                f"{tool}: {of_server} has cancelled its task{because}; {_UNKNOWN}"
            )
        case "failed":
            message = one_line(without_secrets(_message(task.error)), _CHARACTERS)
            return error_result(f"{tool} failed: {of_server} refused: {message or said}")
        case "completed" if task.result is not None:
            output = output_of(task.result)
            return output.model_copy(update={"content": without_secrets(output.content)})
        case "completed":
            return unknown_result(
                f"{tool}: {of_server} has completed its task without a result; {_UNKNOWN}"
            )


def asks_user(answer: TaskAnswer) -> bool:
    """Return whether a task waits for an answer of the client's user."""
    return (answer.model_extra or {}).get("status") == "input_required"


def requests_in(answer: TaskAnswer) -> dict[str, Any]:
    """Return what a task asks its user, by key."""
    requests = (answer.model_extra or {}).get("inputRequests")
    return requests if isinstance(requests, dict) else {}


def pause_of(answer: TaskAnswer) -> timedelta | None:
    """Return the pause that a server asks for; None without one."""
    interval_ms = (answer.model_extra or {}).get("pollIntervalMs")
    return _pause(interval_ms) if isinstance(interval_ms, int | float) else None


def cancelled(tool: str, server: str, why: str) -> ToolOutput:
    """Return the result of a task that was cancelled because it asks what people are not asked."""
    return unknown_result(
        f"{tool}: the task of the MCP server {server!r} was cancelled, because {why}; {_UNKNOWN}"
    )


def forgotten(tool: str, server: str, message: str) -> ToolOutput:
    """Return the result of a task that its server does not know, because it expired or was lost."""
    return unknown_result(
        f"{tool}: the MCP server {server!r} does not know its task any more: {message}; {_UNKNOWN}"
    )


def _message(error: dict[str, Any] | None) -> str:
    return str((error or {}).get("message", ""))


def _pause(interval_ms: float | None) -> timedelta | None:
    """Return the pause that a server asks for, within limits; None without one."""
    if interval_ms is None or interval_ms != interval_ms:
        return None
    shortest, longest = limits.SHORTEST_POLL, limits.LONGEST_POLL
    return timedelta(
        seconds=min(max(interval_ms / 1000, shortest.total_seconds()), longest.total_seconds())
    )
