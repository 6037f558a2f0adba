"""Facts: what history has recorded about a turn.

The workflow makes them as they happen, every reader makes the same ones from history.

A fact of an activity, or of the turn of a delegate, has its key (see `perdure.keys`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from perdure.agents.definitions import AgentDefinition
from perdure.errors import ErrorInfo
from perdure.turn.approvals import Ruling
from perdure.turn.keys import (
    AgentKey,
    ChildKey,
    HookKey,
    Key,
    ModelKey,
    PolicyKey,
    ReadKey,
    ToolKey,
)
from perdure.turn.wire import ChildNews, ModelCall, Summary, ToolOutput, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision, PendingApproval
from perdure.values.budgets import Budget
from perdure.values.reports import Outcome


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

    key: AgentKey
    agent: AgentDefinition


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A model answered."""

    key: ModelKey
    answer: ModelAnswer


@dataclass(frozen=True, slots=True)
class CallFailed:
    """Resolving the agent or calling the model failed.

    `lost` is set where the worker went away and nobody knows what it did.

    `model` is the one that was asked, as the fold finds out; empty otherwise.
    """

    key: AgentKey | ModelKey | ToolKey | PolicyKey
    error: ErrorInfo
    lost: bool = False
    model: str = ""


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A tool returned a result, or an error that the model may read."""

    key: ToolKey
    output: ToolOutput


@dataclass(frozen=True, slots=True)
class ApprovalNeeded:
    """A tool was not called.

    A deploy has changed it, and a person has to approve the call first, or once more.

    `reason` says why. The digest is that of the deployed tool.
    """

    key: ToolKey
    reason: str
    schema_digest: str = ""


@dataclass(frozen=True, slots=True)
class ToolLost:
    """A tool call ended without a result of its own.

    `error` where that is no matter of the model's, so that the turn ends with it.
    """

    key: ToolKey
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

    key: PolicyKey
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class HookEnded:
    """A hook is over; `error` where it said no or failed, `lost` where its worker went away."""

    key: HookKey
    error: ErrorInfo | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ChildScheduled:
    """A delegate's turn was started, with this input."""

    key: ChildKey
    turn_id: str
    request: TurnRequest


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """A delegate's turn is over.

    `summary` is None where none came back; then `reason` says why. `began` is False where it could
    not be started.
    """

    key: ChildKey
    summary: Summary | None = None
    reason: str = ""
    began: bool = True


@dataclass(frozen=True, slots=True)
class ChildRead:
    """The history of a delegate's turn that left no summary was read.

    `summary` is None where that failed. `is_over` is False for a turn that still ran, and so may
    have spent more since.
    """

    key: ReadKey
    summary: Summary | None = None
    is_over: bool = True


@dataclass(frozen=True, slots=True)
class ChildTold:
    """A delegate's turn said that it waits, goes on, or was given budget."""

    key: ChildKey
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
