"""Values that are stored in Temporal.

These are the input of a turn, the inputs and results of its activities, and its summary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from operator import not_
from typing import Any

from pydantic import Field, field_validator
from pydantic_core import to_json

from perdure import errors, limits, validation
from perdure.agents.definitions import ToolDefinition
from perdure.agents.delegates import Lineage
from perdure.base import Wire
from perdure.errors import ErrorInfo
from perdure.text import size
from perdure.turn.context_window import NO_CUT, Cut
from perdure.turn.effect_values import EffectScopes, KnownEffect, Undo
from perdure.turn.option_checks import check_client_tools, check_options
from perdure.turn.schedule_account import ScheduleAccount
from perdure.turn.slot import ScheduledBy
from perdure.values.budgets import Budget, Remaining, Spending
from perdure.values.client_tools import ClientTool
from perdure.values.effects import EffectRecord, EffectStatus
from perdure.values.inquiries import GivenAnswers, Inquiry
from perdure.values.losses import CallLoss
from perdure.values.messages import Media, Message, UserMessage, UserParts, media_weight, weight
from perdure.values.moments import AMoment, absolute, in_words
from perdure.values.reports import ChildReport, ForkedFrom, Outcome, Usage
from perdure.values.shared_state import SharedState, check_shared_state
from perdure.values.tasks import Context, Task, TurnInfo, opening
from perdure.values.turn_options import StoredOptions

_DIGITS = 16
"""The number of digits of the digest in every model call.

64 bits suffice to detect transcripts that differ by mistake; forging one has no benefit.
"""
_CONTENT = (
    *("agent", "task", "context", "history", "allowed_tools", "model", "lineage", "origin", "said"),
    *("session", "schedule", "handed_to", "undo", "instructions", "client_tools", "shared_state"),
    "subject",
)
"""The fields of a request that are part of its digest, in this order."""


class Preceding(Wire):
    """What a turn knows of the messages of its session before it, which it does not have.

    `size_bytes` is their size as canonical JSON, `token_bound` the most tokens that they have and
    `token_estimate` the approximate number. `call_ids` are the ids of all tool calls in them.
    """

    size_bytes: int
    token_bound: int
    token_estimate: int
    call_ids: tuple[str, ...] = ()


class Origin(Wire):
    """The point in the history of a run from which another run goes on.

    This is the point after step number `steps` of the run `run_id` of turn `turn_id`, with 0 for
    the beginning. `digest` is the SHA-256 of what is taken over, in hex (see
    `perdure.turn.carry`): of the messages for a fork, of the whole state for a later run of the
    same turn. `say` is a message of the user that a fork adds to them.

    With `is_session`, it is a point in the history of a session, after its first `steps` messages.
    With `preceding`, the turn begins without them, and readers that need them read them there.
    A fork of a turn whose agent checks answers takes over a mark in the place of each answer before
    the last step; with `withheld`, also in the place of an answer of the last step, because the
    checks had not let it pass when the fork was started. `by` is who forked or resumed it.
    `subject` is the id by which the version of its agent is chosen; empty for `turn_id`.
    """

    turn_id: str
    run_id: str
    steps: int = Field(ge=0)
    digest: str
    say: str = ""
    is_session: bool = False
    preceding: Preceding | None = None
    withheld: bool = False
    by: str | None = None
    subject: str = Field(default="", exclude_if=not_)


class TurnRequest(StoredOptions, Wire):
    """The input of a turn.

    From other languages and the Temporal CLI: `{"agent": "researcher", "task": "…"}`. `model` is
    the model to ask, and overrides the agent's own. `lineage` is set by a turn that delegates.
    `live` streams the text of the model while it is generated. A fork begins with the messages of
    its `origin`, which include the task and the context. `said` has messages of the user that the
    model reads with its first call, after the task. `session` is the id of the session that the
    turn belongs to: the budget is then a limit besides that of the agent. `schedule` is set by a
    schedule that starts turns; with a `session`, it sends messages to that instead. The turn begins
    after `delay`, and ends at its `deadline` at the latest; either is a date, or a time after the
    start. The rules of `agent` hold; `handed_to` is the agent that has the turn at its start
    instead, because a turn before it was handed over: `model` is then for that one. `effects` has
    what is known of effects before the turn, and `effect_scopes` where calls with the same meaning
    are one effect, if that is more than the turn. With `undo`, the turn asks no model: it takes
    back the effect of a call of another turn. The client runs `client_tools`.
    `shared_state` is what its tools begin with.
    """

    agent: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS)
    task: Task
    context: Context | None = None
    history: tuple[Message, ...] = ()
    model: str | None = None
    lineage: Lineage | None = None
    live: bool = False
    origin: Origin | None = None
    said: tuple[UserMessage, ...] | None = None
    session: str | None = None
    schedule: ScheduledBy | None = None
    delay: AMoment | None = None
    deadline: AMoment | None = None
    handed_to: str | None = None
    effects: tuple[EffectRecord, ...] = ()
    effect_scopes: EffectScopes = EffectScopes()
    undo: Undo | None = None
    client_tools: tuple[ClientTool, ...] = Field(default=(), exclude_if=not_)
    shared_state: SharedState = Field(default={}, exclude_if=not_)

    @field_validator("task", mode="before")
    @classmethod
    def _plain_text_is_a_task(cls, value: object) -> object:
        return {"content": value} if isinstance(value, str) else value

    @field_validator("context", mode="before")
    @classmethod
    def _plain_blocks_are_a_context(cls, value: object) -> object:
        return {"blocks": value} if isinstance(value, dict) and "blocks" not in value else value

    def digest(self) -> str:
        """Return the SHA-256 of the request's content, in hex.

        The fields in `_CONTENT` are part of it. The others concern the way in which the turn runs,
        not its task; neither are who resumed a turn, and what its version is chosen by.
        """
        fields = self.model_dump(
            mode="json",
            include=set(_CONTENT),
            exclude={"origin": {"by", "subject"}},
            exclude_none=True,
        )
        content = {name: fields[name] for name in _CONTENT if name in fields}
        return hashlib.sha256(to_json(content)).hexdigest()

    def _sizes(self) -> Iterator[tuple[str, int, int, str]]:
        """Yield each thing whose size is limited: its name, size and limit in bytes, and a hint."""
        message = opening(self.task, self.context)
        schema = b"" if self.output_schema is None else to_json(self.output_schema)
        say = size(self.origin.say) if self.origin else 0
        unread, reads = (
            sum(map(weight, self.said or ())),
            "give the agent a tool that reads the rest",
        )
        task = weight(message) + len(schema)
        yield "task, context and output schema", task, limits.TASK_BYTES, reads
        yield "the message to a fork", say, limits.TASK_BYTES, reads
        yield "the messages to the turn", unread, limits.UNREAD_BYTES, reads
        yield (
            "the images and files of the task",
            media_weight(message),
            limits.MEDIA_BYTES,
            "give addresses that the provider fetches",
        )
        unread_media = sum(map(media_weight, self.said or ()))
        subject = "the images and files of the messages to the turn"
        yield subject, unread_media, limits.MEDIA_BYTES, "give addresses that the provider fetches"

    def check(self) -> None:
        """Refuse a request that is too large, or an output type that no model can be held to.

        Raises:
            TooLargeError: Task, context and output schema together, the labels, the message to a
                fork, the messages to the turn, or the images and files are over their limit.
            InvalidRequestError: The output schema is recursive, or allows any value somewhere.
        """
        for subject, bytes_, limit, hint in self._sizes():
            if bytes_ > limit:
                raise errors.TooLargeError(
                    f"{subject} are {bytes_} bytes, more than {limit}; {hint}",
                    context={"bytes": bytes_, "limit": limit},
                )
        check_options(self)
        check_client_tools(self.client_tools)
        check_shared_state(self.shared_state)

    def check_moments(self, start: datetime) -> None:
        """Refuse a delay or a deadline that makes no sense for a turn that is started at `start`.

        Raises:
            InvalidRequestError: The deadline has passed, is not after the delay, or either is too
                far away.
        """
        begins, ends = self.begins_at(start), self.ends_at(start)
        for name, moment in (("delay", begins), ("deadline", ends)):
            if moment is not None and moment - start > validation.LONGEST:
                raise errors.InvalidRequestError(
                    f"the {name} ends at {in_words(moment)}, more than {validation.LONGEST.days}"
                    " days after the start; name an earlier moment"
                )
        if ends is not None and ends <= start:
            raise errors.InvalidRequestError(
                f"the deadline, {in_words(ends)}, has passed; name a later one",
                context={"deadline": ends.isoformat()},
            )
        if begins is not None and ends is not None and ends <= begins:
            raise errors.InvalidRequestError(
                f"the deadline, {in_words(ends)}, is not after the end of the delay,"
                f" {in_words(begins)}; name a later deadline, or a shorter delay",
                context={"deadline": ends.isoformat(), "begins_at": begins.isoformat()},
            )

    def begins_at(self, start: datetime) -> datetime | None:
        """Return the moment at which a turn that is started at `start` begins; None for at once."""
        return absolute(self.delay, start)

    def ends_at(self, start: datetime) -> datetime | None:
        """Return the deadline of a turn that is started at `start`; None without a deadline."""
        return absolute(self.deadline, start)

    @property
    def forked_from(self) -> ForkedFrom | None:
        """The point in another turn from which the turn continues; None if it is not a fork."""
        if self.origin is None or self.origin.is_session:
            return None
        origin = self.origin
        return ForkedFrom(turn_id=origin.turn_id, step=origin.steps, by=origin.by)

    def subject_of(self, turn_id: str) -> str:
        """Return the id by which the version of the agent of the turn is chosen.

        All delegates of a tree have that of its root, all turns of a session that of the session,
        and a fork that of the turn that it goes on from.
        """
        if self.lineage is not None:
            return self.lineage.ancestors[0].turn_id
        if self.session is not None:
            return self.session
        if self.origin is not None and not self.origin.is_session:
            return self.origin.subject or self.origin.turn_id
        return turn_id

    @property
    def allowed(self) -> tuple[str, ...] | None:
        """The tools that may be called; None for every tool."""
        return self.task.allowed_tools if self.allowed_tools is None else self.allowed_tools

    @property
    def account(self) -> ScheduleAccount | None:
        """The budget of all turns of the schedule that starts the turn; None without a limit."""
        return self.schedule.account if self.schedule else None

    @property
    def given_budget(self) -> Budget | None:
        """The budget set at the start, over the task's."""
        return self.budget.over(self.task.budget) if self.budget else self.task.budget

    def info(self, turn_id: str) -> TurnInfo:
        """Return the information about the turn that is passed to a factory."""
        return TurnInfo(turn_id=turn_id, agent=self.agent, task=self.task, labels=self.labels)


class ModelCall(Wire):
    """Input of a model call: the transcript by reference.

    `digest` is the beginning of the transcript's digest and identifies the messages. `model` is
    empty for the agent's first model. `others` is set if another model is asked when the worker has
    benched this one. `passed` has the models that were passed over, as `model: reason`. `cut` is
    the part that is not sent because the model's window is too small. `round` is the number of
    times that the chain has begun again in this step. `max_output_tokens` is the output limit
    within the budget, and `budget` the rest of the budget. `most_input` is the limit of tokens to
    which the messages are shortened after the cut. `agent` is the agent that asks, after the turn
    was handed over to another one than it was started with.
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
    agent: str = ""

    @classmethod
    def of(cls, digest: str, **fields: Any) -> ModelCall:
        """Return the call for the transcript with this whole digest."""
        return cls(digest=digest[:_DIGITS], **fields)


class Noted(Wire):
    """The result of an activity that has none."""


class ToolRun(Wire):
    """Input of a tool activity.

    `owner` is the agent that owns the tool. `tool` is empty if the activity is named after it.
    `arguments` is JSON text as the model wrote it. `run` is the end of the id of the turn's first
    run, for a tool that has a context and so its idempotency key: after a reset, an activity
    scheduled earlier belongs to another run. `approved` is the digest of the schema under which a
    person approved the call, empty if no person was asked. It is None in a call scheduled by a
    worker of an earlier release, which does not support `asks` in a result. `only_reads` is set if
    the call was allowed by rules for read-only tools, and `repeats` if contact with an earlier
    attempt was lost. `media_bytes` is the most bytes of images and files, in base64, that history
    holds for its result; 0 in a turn whose results are text alone, as in an earlier release.
    `effect_scope` is a part of the key of its effect, and `known` has the known effects of the
    tool; both are empty for a tool without such keys. With `undoes`, it is the tool that takes
    calls of this one back. `sent_at` is the Unix time in seconds at which the workflow sent it; 0
    if it is read-only, or the turn follows rules before 6. `token` is that of a call whose result
    comes later; `handle` is that of its job, for a poll or a cancel. `answers` has what people have
    answered to its server; None if it must ask nobody. A tool with a context has `shared_state`.
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
    media_bytes: int = 0
    effect_scope: str = ""
    known: tuple[KnownEffect, ...] = ()
    undoes: str = Field(default="", exclude_if=not_)
    sent_at: int = Field(default=0, exclude_if=not_)
    token: str = Field(default="", exclude_if=not_, repr=False)
    handle: str = Field(default="", exclude_if=not_)
    answers: GivenAnswers | None = Field(default=None, exclude_if=lambda answers: answers is None)
    shared_state: SharedState = Field(default={}, exclude_if=not_)

    def idempotency_key(self, turn_id: str, step: int, index: int, name: str) -> str:
        """Return the idempotency key of the call.

        It is the same for every attempt, after a reset and after a continue-as-new. A new turn with
        the same id has another run id.
        """
        parts = (turn_id, self.run, str(step), str(index), name, self.arguments)
        return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


class Asking(Wire):
    """The reason why a call is not run before a person approves it.

    `schema_digest` is the digest of the deployed tool.
    """

    reason: str
    schema_digest: str


class ToolOutput(Wire):
    """The result of a tool, as text for the model.

    `media` has its images and files; `content` names each in its place. With `asks`, the tool was
    not called, and a person is asked first. With `is_unknown`, it may have taken effect although it
    failed. `effect_key` is the key of its effect, if the tool has such keys, and `same_as` has the
    places of the known records of the same effect. With `known`, the tool was not called, because
    an earlier call has brought about that effect, or may have. With `is_settled`, a person has said
    so since the record was made, and `content` is the result of the earlier call. `loss` says how
    an answer was lost that is unknown; None from a worker of an earlier release. With `handle`, it
    has started a job, whose result comes by the token with this `proof`; with `inquiry`, its server
    asks people first. `shared_patch` is what it has changed of the shared state. `tools` are
    offered from now on: those of a server at which a person has logged in.
    """

    content: str
    is_error: bool = False
    duration_ms: int = 0
    asks: Asking | None = None
    media: tuple[Media, ...] = Field(default=(), exclude_if=not_)
    is_unknown: bool = Field(default=False, exclude_if=not_)
    effect_key: str = Field(default="", exclude_if=not_)
    same_as: tuple[str, ...] = Field(default=(), exclude_if=not_)
    known: EffectStatus | None = Field(default=None, exclude_if=not_)
    is_settled: bool = Field(default=False, exclude_if=not_)
    loss: CallLoss | None = Field(default=None, exclude_if=not_)
    handle: str | None = Field(default=None, exclude_if=lambda handle: handle is None)
    proof: str = Field(default="", exclude_if=not_)
    inquiry: Inquiry | None = Field(default=None, exclude_if=not_)
    shared_patch: SharedState = Field(default={}, exclude_if=not_)
    tools: tuple[ToolDefinition, ...] = Field(default=(), exclude_if=not_)


class ChildNews(Wire):
    """The signal from a turn to a turn above it.

    It reports that the sender waits for a person (`waits_for`), continues (neither field), or was
    given budget (`added`). `key` is the key of the receiver's child.
    """

    key: str
    waits_for: str = ""
    reason: str = ""
    added: Budget | None = None


class ChildRun(Wire):
    """Input of the activity that reads a run of a delegate's turn.

    With `parent`, the id of a workflow, the turn must have been begun by that workflow, and be
    over; with `only_parent`, nothing else is read.
    """

    turn_id: str
    run_id: str
    parent: str = ""
    only_parent: bool = False


class ParentRead(Wire):
    """Whether a turn has the parent of a `ChildRun`, which an earlier release did not compare."""

    has_parent: bool = False


class Steer(Wire):
    """A message to the running turn. Its id is the id of the update; a signal has it in `id`.

    The fields are as in `perdure.turn.facts.Said`, except `text`: it is empty with `parts`, so that
    a worker of an earlier release refuses the message.
    """

    text: str
    now: bool = False
    deny_pending: bool = False
    by: str | None = None
    id: str = ""
    parts: UserParts = ()


class Resume(Wire):
    """Lets a turn that waits for a provider ask its model again. `by` is who asks."""

    by: str | None = None


class Summary(Wire):
    """The result of a workflow, or a part of its error.

    It is bounded, so that a parent or a list can hold many. Messages are read from history.
    `last_agent` is empty unless the turn was handed over to another agent. `effects` has what is
    known of the effects of its calls, and of those of its delegates; `unsettled` is the number of
    all these calls whose outcome is unknown.
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
    last_agent: str = ""
    effects: tuple[EffectRecord, ...] = Field(default=(), exclude_if=not_)
    unsettled: int = Field(default=0, exclude_if=not_)

    @property
    def duration(self) -> timedelta:
        """The time from the start of the turn to its end, by the workflow's clock."""
        return timedelta(milliseconds=self.duration_ms)


class TurnRead(Wire):
    """The summary of a turn from its history. `is_over` is False for a turn that still runs."""

    summary: Summary
    is_over: bool
