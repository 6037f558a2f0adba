"""Facts: what history has recorded about a turn.

The workflow makes them as they happen, every reader makes the same ones from history.

A fact that belongs to an activity carries its key, which is also the activity's id in Temporal:
`step-3` asks the model for the third time, `step-3.call-2` runs the second tool call of that
answer, `step-3.call-2.try-2` runs it again because the first attempt was lost, or needed an
approval first, and `step-4.last` asks for a last answer because the budget is spent.
`step-3.call-2.policy` asks the agent's policy about that call. `before-1`, `after-1` and
`observe-4` are hooks: middleware, and observers. `step-3.call-1.child-2` is the turn of a delegate:
what it is to its parent, and what is set aside for it; its own id is readable.
`step-3.call-1.child-2.read` reads that turn's history, where it ended without saying what it spent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from perdure.agents.definitions import AgentDefinition
from perdure.errors import ErrorInfo
from perdure.turn.approvals import Ruling
from perdure.turn.wire import ChildNews, ModelCall, Summary, ToolOutput, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision, PendingApproval
from perdure.values.budgets import Budget
from perdure.values.reports import Outcome

_KEY = re.compile(
    r"(?:agent"
    r"|step-(?P<step>\d+)(?:\.(?P<last>last)|\.call-(?P<call>\d+)(?:\.(?P<policy>policy)|\.child-(?P<child>\d+)(?P<read>\.read)?)?)?"
    r"|(?P<hook>before|after|observe)-(?P<place>\d+)"
    r")(?:\.try-(?P<attempt>\d+))?"
)


@dataclass(frozen=True, slots=True)
class Key:
    """Which activity: step 0 resolves the agent; call 0 is the model call of a step.

    Calls and attempts count from 1.

    A `hook` runs code of the agent's beside its steps; then `call` is its place, counted from 1. A
    `child` is a turn that the call started; they count from 1 as well. `is_read` marks the activity
    that reads the history of such a turn.
    """

    step: int
    call: int = 0
    attempt: int = 1
    is_last: bool = False
    is_policy: bool = False
    hook: str = ""
    child: int = 0
    is_read: bool = False

    def __str__(self) -> str:
        base = (
            f"{self.hook}-{self.call}"
            if self.hook
            else f"step-{self.step}"
            if self.step
            else "agent"
        )
        base += f".call-{self.call}" if self.call and not self.hook else ""
        base += (
            ".last"
            if self.is_last
            else ".policy"
            if self.is_policy
            else f".child-{self.child}"
            if self.child
            else ""
        )
        base += ".read" if self.is_read else ""
        return base if self.attempt == 1 else f"{base}.try-{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> Key | None:
        """The key that reads `text`; None for an activity that is not ours."""
        match = _KEY.fullmatch(text)
        if match is None:
            return None
        return cls(
            int(match["step"] or 0),
            int(match["call"] or match["place"] or 0),
            int(match["attempt"] or 1),
            is_last=bool(match["last"]),
            is_policy=bool(match["policy"]),
            hook=match["hook"] or "",
            child=int(match["child"] or 0),
            is_read=bool(match["read"]),
        )

    @property
    def is_tool_call(self) -> bool:
        """Whether it runs a tool."""
        return self.call > 0 and not self.is_policy and not self.hook and not self.child

    @property
    def is_model_call(self) -> bool:
        """Whether it asks the model."""
        return self.step > 0 and self.call == 0


class Loss(StrEnum):
    """Why a tool call has no result of its own."""

    WORKER_LOST = "worker_lost"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    FAILED = "failed"
    BY_OPERATOR = "ended_by_operator"


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The input of the turn."""

    request: TurnRequest


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An activity was handed to the workers.

    Of a model call, `call` says how long its answer may be, and so what was reserved.
    """

    key: Key
    call: ModelCall | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AgentResolved:
    """The definition that the turn is pinned to."""

    key: Key
    agent: AgentDefinition


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A model answered."""

    key: Key
    answer: ModelAnswer


@dataclass(frozen=True, slots=True)
class CallFailed:
    """Resolving the agent or calling the model failed.

    `lost` is set where the worker went away and nobody knows what it did.

    `model` is the one that was asked, as the fold finds out; empty otherwise.
    """

    key: Key
    error: ErrorInfo
    lost: bool = False
    model: str = ""


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A tool returned a result, or an error that the model may read."""

    key: Key
    output: ToolOutput


@dataclass(frozen=True, slots=True)
class ApprovalNeeded:
    """A tool was not called.

    A deploy has changed it, and a person has to approve the call first, or once more.

    `reason` says why. The digest is that of the deployed tool.
    """

    key: Key
    reason: str
    schema_digest: str = ""


@dataclass(frozen=True, slots=True)
class ToolLost:
    """A tool call ended without a result of its own.

    `error` where that is no matter of the model's, so that the turn ends with it.
    """

    key: Key
    loss: Loss
    message: str = ""
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody asked for the turn to stop."""

    reason: str


@dataclass(frozen=True, slots=True)
class PolicyAnswered:
    """The agent's policy ruled on a call."""

    key: Key
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class HookEnded:
    """A hook is over; `error` where it said no or failed, `lost` where its worker went away."""

    key: Key
    error: ErrorInfo | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ChildScheduled:
    """A delegate's turn was started, with this input."""

    key: Key
    turn_id: str
    request: TurnRequest


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """A delegate's turn is over.

    `summary` is None where none came back; then `reason` says why. `began` is False where it could
    not be started.
    """

    key: Key
    summary: Summary | None = None
    reason: str = ""
    began: bool = True


@dataclass(frozen=True, slots=True)
class ChildRead:
    """The history of a delegate's turn that left no summary was read.

    `summary` is None where that failed. `is_over` is False for a turn that still ran, and so may
    have spent more since.
    """

    key: Key
    summary: Summary | None = None
    is_over: bool = True


@dataclass(frozen=True, slots=True)
class ChildTold:
    """A delegate's turn said that it waits, goes on, or was given budget."""

    key: Key
    news: ChildNews


@dataclass(frozen=True, slots=True)
class Decided:
    """A person approved or denied a call."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class BudgetAdded:
    """The budget was added to, or the limit of iterations, or both.

    `more` is None if only `iterations` were added. `by` is who did, as the caller named them; None
    where it named nobody.
    """

    more: Budget | None
    by: str | None = None
    iterations: int | None = None


@dataclass(frozen=True, slots=True)
class WaitBegan:
    """The turn waits: `kind` says for what, `reason` why.

    For a `provider` it waits `until` that moment, to make attempt number `attempt`; the first
    failed at `since`. There is one such fact for each pause.
    """

    kind: str
    reason: str
    pending: tuple[PendingApproval, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Resumed:
    """Somebody had the turn ask its model again at once."""


@dataclass(frozen=True, slots=True)
class WaitEnded:
    """The turn goes on. `expired` are the ids of the calls that nobody approved in time."""

    expired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn is over.

    There is a summary if its code ran to the end, and none after a kill or a cancel.
    """

    outcome: Outcome
    summary: Summary | None = None
    reason: str = ""


Fact = (
    TurnStarted
    | Scheduled
    | AgentResolved
    | ModelAnswered
    | CallFailed
    | ToolReturned
    | ApprovalNeeded
    | ToolLost
    | PolicyAnswered
    | HookEnded
    | ChildScheduled
    | ChildEnded
    | ChildRead
    | ChildTold
    | Decided
    | BudgetAdded
    | Resumed
    | WaitBegan
    | WaitEnded
    | CancelRequested
    | TurnEnded
)
