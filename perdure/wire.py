"""Values that cross Temporal: what starts a turn, what goes into its activities and comes out, and what it leaves behind."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from pydantic import Field, field_validator
from pydantic_core import to_json

from perdure import errors, limits
from perdure.errors import ErrorInfo
from perdure.messages import AssistantMessage, Message, weight
from perdure.reports import Outcome, StopReason, Usage
from perdure.tasks import Context, Task, TurnInfo, opening
from perdure.text import size
from perdure.values import Wire


class TurnRequest(Wire):
    """The input of a turn. From other languages and the Temporal CLI: `{"agent": "researcher", "task": "…"}`."""

    agent: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS)
    task: Task
    context: Context | None = None
    history: tuple[Message, ...] = ()
    labels: dict[str, str] = {}

    @field_validator("task", mode="before")
    @classmethod
    def _plain_text_is_a_task(cls, value: object) -> object:
        return Task(content=value) if isinstance(value, str) else value

    @field_validator("context", mode="before")
    @classmethod
    def _plain_blocks_are_a_context(cls, value: object) -> object:
        return {"blocks": value} if isinstance(value, dict) and "blocks" not in value else value

    def digest(self) -> str:
        """What is asked, as SHA-256 in hex. Labels are not part of it: they say nothing about the work."""
        return hashlib.sha256(to_json(self.model_dump(mode="json", exclude={"labels"}, exclude_none=True))).hexdigest()

    def check(self) -> None:
        """Refuse what is too large.

        Raises:
            TooLargeError: Task and context together, or the labels, are over their limit.
        """
        given = weight(opening(self.task, self.context))
        labels = sum(size(name) + size(value) for name, value in self.labels.items())
        if labels > limits.LABELS_BYTES:
            raise errors.TooLargeError(f"the labels are {labels} bytes, more than {limits.LABELS_BYTES}; they go with every tool call")
        if given > limits.TASK_BYTES:
            raise errors.TooLargeError(
                f"task and context are {given} bytes, more than {limits.TASK_BYTES}; give the agent a tool that reads the rest",
                context={"bytes": given, "limit": limits.TASK_BYTES},
            )

    def info(self, turn_id: str) -> TurnInfo:
        """What a factory may know."""
        return TurnInfo(turn_id=turn_id, agent=self.agent, task=self.task, labels=self.labels)


class AgentCall(Wire):
    """Input of resolving an agent. The task stands in history already, and only a factory reads it."""

    agent: str


class ModelCall(Wire):
    """Input of a model call: the transcript by reference. The messages are the first `length` of the turn, and `digest` says exactly which."""

    length: int
    digest: str
    model: str


class ModelAnswer(Wire):
    """What a model answered. `model` is the one that served, as the provider names it; `duration_ms` is the time of the request."""

    message: AssistantMessage
    stop: StopReason
    usage: Usage = Usage()
    model: str
    duration_ms: int = 0


class ToolRun(Wire):
    """Input of a tool activity. `owner` is the agent whose tool it is; `arguments` is JSON text as the model wrote it."""

    owner: str
    tool: str
    call_id: str
    arguments: str
    attempt: int
    idempotency_key: str
    schema_digest: str
    labels: dict[str, str] = {}


class ToolOutput(Wire):
    """What a tool returned, as text for the model."""

    content: str
    is_error: bool = False
    duration_ms: int = 0


class Summary(Wire):
    """What a workflow returns or puts into its error: bounded, so a parent or a list can hold many. Messages are read from history."""

    agent: str
    outcome: Outcome
    output: str = ""
    risk: str | None = None
    steps: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    duration_ms: int = 0
    length: int = 0
    digest: str = ""
    error: ErrorInfo | None = None

    @property
    def duration(self) -> timedelta:
        """From the start of the turn to its end, by the workflow's clock."""
        return timedelta(milliseconds=self.duration_ms)
