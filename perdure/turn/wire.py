"""Values that cross Temporal.

What starts a turn, what goes into its activities and comes out, and what it leaves behind.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any, Literal

from pydantic import Field, JsonValue, field_validator
from pydantic_core import to_json

from perdure import errors, limits
from perdure.agents.delegates import InheritedTool, Lineage
from perdure.base import Wire
from perdure.errors import ErrorInfo
from perdure.schemas.strict_schema import Schema, strict
from perdure.text import one_line, size
from perdure.turn.context_window import NO_CUT, Cut
from perdure.values.budgets import Budget, Iterations, Remaining, Spending
from perdure.values.messages import Message, media_weight, weight
from perdure.values.options import RequestOptions
from perdure.values.reports import ChildReport, Outcome, Usage
from perdure.values.tasks import Context, Task, TurnInfo, opening

_DIGITS = 16
"""Of a digest, in every model call.

64 bits tell transcripts apart that mistakes made different; nobody gains by forging one.
"""


class TurnRequest(Wire):
    """The input of a turn.

    From other languages and the Temporal CLI: `{"agent": "researcher", "task": "…"}`.

    `output_schema` is that of the answer, `model` the one that is asked; both go before the agent's
    own. `lineage` is set by a turn that delegates. `max_iterations` overrides the limit of the
    agent. `live` has what the model says told while it speaks.
    """

    agent: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS)
    task: Task
    context: Context | None = None
    history: tuple[Message, ...] = ()
    labels: dict[str, str] = {}
    budget: Budget | None = None
    max_iterations: Iterations | None = None
    options: RequestOptions | None = None
    allowed_tools: tuple[str, ...] | None = None
    output_schema: Schema | None = None
    model: str | None = None
    lineage: Lineage | None = None
    live: bool = False

    @field_validator("task", mode="before")
    @classmethod
    def _plain_text_is_a_task(cls, value: object) -> object:
        return {"content": value} if isinstance(value, str) else value

    @field_validator("context", mode="before")
    @classmethod
    def _plain_blocks_are_a_context(cls, value: object) -> object:
        return {"blocks": value} if isinstance(value, dict) and "blocks" not in value else value

    def digest(self) -> str:
        """What is asked, as SHA-256 in hex.

        Labels, limits, options, the type of the answer and `live` are not part of it: they say how,
        not what.
        """
        how = {"labels", "budget", "max_iterations", "options", "output_schema", "live"}
        asked = self.model_dump(mode="json", exclude=how, exclude_none=True)
        return hashlib.sha256(to_json(asked)).hexdigest()

    def check(self) -> None:
        """Refuse what is too large, and a type that no model can be held to.

        Raises:
            TooLargeError: Task, context and output schema together, the labels, or the images and
                files are over their limit.
            InvalidRequestError: The output schema is recursive, or any value may stand in it.
        """
        asked = opening(self.task, self.context)
        given = weight(asked) + (
            len(to_json(self.output_schema)) if self.output_schema is not None else 0
        )
        labels = sum(size(name) + size(value) for name, value in self.labels.items())
        for what, bytes_, most, hint in (
            ("the labels", labels, limits.LABELS_BYTES, "they go with every tool call"),
            (
                "task, context and output schema",
                given,
                limits.TASK_BYTES,
                "give the agent a tool that reads the rest",
            ),
            (
                "the images and files of the task",
                media_weight(asked),
                limits.MEDIA_BYTES,
                "give addresses that the provider fetches",
            ),
        ):
            if bytes_ > most:
                raise errors.TooLargeError(
                    f"{what} are {bytes_} bytes, more than {most}; {hint}",
                    context={"bytes": bytes_, "limit": most},
                )
        try:
            strict({"type": "string"} if self.output_schema is None else self.output_schema)
        except ValueError as error:
            raise errors.InvalidRequestError(
                f"the output schema: {one_line(str(error), 300)}"
            ) from None

    @property
    def allowed(self) -> tuple[str, ...] | None:
        """The tools that may be called; None for every tool."""
        return self.task.allowed_tools if self.allowed_tools is None else self.allowed_tools

    @property
    def given_budget(self) -> Budget | None:
        """What may be spent, by the start and by the task."""
        return self.budget.over(self.task.budget) if self.budget else self.task.budget

    def info(self, turn_id: str) -> TurnInfo:
        """What a factory may know."""
        return TurnInfo(turn_id=turn_id, agent=self.agent, task=self.task, labels=self.labels)


class AgentCall(Wire):
    """Input of resolving an agent. The task stands in history already, and only a factory reads it.

    `extra` are the further fields of the turn's requests, for some of which vendors charge more.
    `inherited` are tools of the turns above it.
    """

    agent: str
    allowed: tuple[str, ...] | None = None
    extra: dict[str, JsonValue] = {}
    model: str | None = None
    inherited: tuple[InheritedTool, ...] = ()


class ModelCall(Wire):
    """Input of a model call: the transcript by reference.

    `digest`, the beginning of the transcript's, says which messages. `model` is empty where it is
    the agent's first. `others` says that another is asked where the worker knows this one to be
    benched, `passed` which models were passed over, as `model: reason`. `cut` is what is not sent
    because the model's window is too small. `round` counts how often the chain has begun again in
    this step. `max_output_tokens` is what the budget allows, `budget` what is left of it.
    `most_input` shortens what is left after the cut until it has at most so many tokens.
    """

    digest: str = Field(min_length=_DIGITS)
    model: str = ""
    others: bool = False
    passed: tuple[str, ...] = ()
    cut: Cut = NO_CUT
    round: int = 0
    max_output_tokens: int | None = None
    most_input: int | None = None
    budget: Remaining | None = None

    @classmethod
    def of(cls, digest: str, **fields: Any) -> ModelCall:
        """The call that names a transcript by the whole digest."""
        return cls(digest=digest[:_DIGITS], **fields)


class LiveText(Wire):
    """The end of what a model has said so far, as the heartbeats of its activity hold it.

    `offset` characters stand before it.
    """

    offset: int = 0
    text: str = ""


class HookCall(Wire):
    """Input of a middleware's activity: which of the agent's, from 0, and when.

    After a turn, how it went.
    """

    agent: str
    place: int
    moment: Literal["before", "after"]
    outcome: Outcome | None = None
    risk: str | None = None


class ObserverCall(Wire):
    """Input of the observers' activity.

    The steps after `seen` up to `steps`, then a wait or the end, if there is one.
    """

    agent: str
    seen: int
    steps: int
    waits_for: str = ""
    reason: str = ""
    outcome: Outcome | None = None
    risk: str | None = None


class Noted(Wire):
    """The result of an activity that has none."""


class ToolRun(Wire):
    """Input of a tool activity.

    `owner` is the agent whose tool it is; `tool` is empty where the activity is named after it;
    `arguments` is JSON text as the model wrote it. `run` is the end of the id of the turn's first
    run, for a tool that has a context and so sees its idempotency key: after a reset, an activity
    that was scheduled before has another run around it. `approved` is the digest of the schema that
    a person looked at who approved the call, empty where nobody was asked. It is None where a
    worker of an earlier release hands the call out: it does not know `asks` of a result.
    `only_reads` says that the call was let run by rules for tools that change nothing; `repeats`,
    that contact with an earlier attempt was lost.
    """

    owner: str
    tool: str = ""
    call_id: str
    arguments: str
    schema_digest: str
    run: str = ""
    labels: dict[str, str] = {}
    approved: str | None = None
    only_reads: bool = False
    repeats: bool = False

    def idempotency_key(self, turn_id: str, step: int, place: int, name: str) -> str:
        """The same for every attempt, after a reset and a continue-as-new.

        Another one when the turn's id is started anew.
        """
        parts = (turn_id, self.run, str(step), str(place), name, self.arguments)
        return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


class Asking(Wire):
    """Why a call is not run before a person approves it.

    The digest is that of the deployed tool.
    """

    reason: str
    schema_digest: str


class ToolOutput(Wire):
    """What a tool returned, as text for the model.

    With `asks` the tool was not called, and a person is asked first.
    """

    content: str
    is_error: bool = False
    duration_ms: int = 0
    asks: Asking | None = None


class ChildNews(Wire):
    """The signal from a turn to one above it.

    That it waits for somebody (`waits_for`), goes on (nothing), or was given budget (`added`).

    `key` is that of the child below the turn that is told.
    """

    key: str
    waits_for: str = ""
    reason: str = ""
    added: Budget | None = None


class ChildRun(Wire):
    """Input of reading a delegate's turn: one run of it."""

    turn_id: str
    run_id: str


class Summary(Wire):
    """What a workflow returns or puts into its error: bounded, so a parent or a list can hold many.

    Messages are read from history.
    """

    agent: str
    outcome: Outcome
    output: str = ""
    risk: str | None = None
    steps: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    spent: Spending = Spending()
    is_priced: bool = False
    duration_ms: int = 0
    length: int = 0
    digest: str = ""
    error: ErrorInfo | None = None
    children: tuple[ChildReport, ...] = ()
    descendants: int = 0

    @property
    def duration(self) -> timedelta:
        """From the start of the turn to its end, by the workflow's clock."""
        return timedelta(milliseconds=self.duration_ms)


class TurnRead(Wire):
    """What the history of a turn says about it. `is_over` is False for one that still runs."""

    summary: Summary
    is_over: bool
