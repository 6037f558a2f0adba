"""Tasks of MCP servers: calls whose results come later, for which the turn asks the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from perdure import limits, validation
from perdure.agents.jobs import ANSWERS, HANDLE, JobOptions
from perdure.agents.tools import Tool
from perdure.schemas import tool_arguments
from perdure.validation import Must
from perdure.values.inquiries import GivenAnswers

TASKS = "io.modelcontextprotocol/tasks"
"""The extension of the protocol, which client and server declare."""


def _is_longest_task(value: object) -> bool:
    return value is None or isinstance(value, bool) or validation.accepts(validation.Time, value)


LONGEST_TASK = Annotated[object, Must("True, False or a time longer than zero", _is_longest_task)]
"""The type of the option that says whether a server may answer with tasks, or for how long."""


@dataclass(frozen=True, kw_only=True)
class TaskCalls:
    """The requests about the tasks of one tool, each by the id of the task.

    Attributes:
        poll: Asks for the result. It returns the result, what the server asks people, or
            `PendingJob`; it is given what people have answered, None if they cannot be asked.
        cancel: Cancels a task.
    """

    poll: Callable[[str, GivenAnswers | None], Awaitable[object]]
    cancel: Callable[[str], Awaitable[None]]

    def options(self, later: bool | timedelta, timeout: timedelta) -> JobOptions:
        """Return the options of the tool. `timeout` is the time limit of each request."""
        if later is False:
            return JobOptions()
        return JobOptions(
            later=later,
            poll=PollTool(self.poll, name="poll", read_only=True, timeout=timeout),
            poll_every=limits.MCP_POLL,
            cancel=TaskTool(self.cancel, name="cancel", timeout=timeout),
        )


class TaskTool(Tool):
    """A request about a task, which takes nothing but its id."""

    @property
    def context_parameter(self) -> str | None:
        """None: it needs no context."""
        return None

    @property
    def arguments(self) -> tool_arguments.Arguments:
        """The id of the task, as the handle of the job."""
        return tool_arguments.GivenArguments({"type": "object", "required": [HANDLE]})

    def accepted(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the id of the task."""
        return {"task_id": values[HANDLE]}


class PollTool(TaskTool):
    """The request for the result of a task, which takes the answers of people as well."""

    def accepted(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the id of the task, and the answers."""
        return {"task_id": values[HANDLE], "answers": values[ANSWERS]}
