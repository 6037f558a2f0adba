"""The facts about a turn that history has recorded.

The workflow makes them as they happen, and every reader makes the same facts from history.

A fact about an activity or about the turn of a delegate has its key (see `perdure.turn.keys`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from perdure.agents.definitions import AgentDefinition
from perdure.errors import ErrorInfo
from perdure.turn.approvals import Ruling
from perdure.turn.continuation import Continuation
from perdure.turn.effect_values import Verification
from perdure.turn.keys import (
    AgentKey,
    CarryKey,
    ChildKey,
    HandoffKey,
    HookKey,
    Key,
    ModelKey,
    PolicyKey,
    PollKey,
    ReadKey,
    StopKey,
    ToolKey,
    VerifyKey,
)
from perdure.turn.slot import Slot
from perdure.turn.snapshot import CarriedPart
from perdure.turn.wait_values import CallWait, TurnEvent, Woken
from perdure.turn.wire import ChildNews, ModelCall, Summary, ToolOutput, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision, PendingApproval
from perdure.values.budgets import Budget
from perdure.values.losses import CallLoss, Loss
from perdure.values.messages import UserParts
from perdure.values.reports import Outcome


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The input of the turn. `slot` is set if a schedule started it."""

    request: TurnRequest
    slot: Slot | None = None


@dataclass(frozen=True, slots=True)
class TurnContinued:
    """The turn goes on in a new run of its workflow."""

    continuation: Continuation


@dataclass(frozen=True, slots=True)
class PartCarried:
    """A part of another run's state was carried over."""

    key: CarryKey
    part: CarriedPart


@dataclass(frozen=True, slots=True)
class TaskBegan:
    """The next facts are those of another workflow task, up to the next such fact.

    Only readers of a history know it, see `perdure.turn.task_order`.
    """


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An activity was scheduled.

    For a model call, `call` has the limit of its output, from which the reservation follows.
    """

    key: Key
    call: ModelCall | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AgentResolved:
    """The definition that the turn is pinned to."""

    key: AgentKey
    agent: AgentDefinition


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A call handed the turn over to this agent, which goes on from the next step."""

    key: HandoffKey
    agent: AgentDefinition


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A model answered."""

    key: ModelKey
    answer: ModelAnswer


@dataclass(frozen=True, slots=True)
class CallFailed:
    """Resolving an agent or calling the model failed.

    `lost` is set if contact with the worker was lost and the outcome is unknown. `model` is the
    model that was asked, as determined by the fold; empty otherwise.
    """

    key: AgentKey | CarryKey | ModelKey | ToolKey | PolicyKey | HandoffKey
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
    """A tool was not called, because a person has to approve the call first.

    A deploy has changed the tool; the call may have been approved before. `reason` explains it, and
    `schema_digest` is the digest of the deployed tool.
    """

    key: ToolKey
    reason: str
    schema_digest: str = ""


@dataclass(frozen=True, slots=True)
class ToolLost:
    """A tool call ended without a result of its own.

    `error` is set if the loss is not an error for the model to handle; the turn ends with it.
    `sent_at` is when the call was sent, to the second; None where that is not recorded.
    """

    key: ToolKey
    loss: Loss
    message: str = ""
    error: ErrorInfo | None = None
    sent_at: datetime | None = None

    @property
    def how(self) -> CallLoss:
        """How the answer was lost, and when the call was sent."""
        return CallLoss(kind=self.loss, sent_at=self.sent_at)


@dataclass(frozen=True, slots=True)
class Verified:
    """A call whose outcome was unknown was read back.

    The verdict says whether it has taken effect: `found`, `absent` or `unreadable`.
    """

    key: VerifyKey
    verification: Verification


@dataclass(frozen=True, slots=True)
class Polled:
    """The polls for the result of a job ended, with its result or without it."""

    key: PollKey
    output: ToolOutput | None = None


@dataclass(frozen=True, slots=True)
class JobStopped:
    """The cancel of a job was requested. `problem` says why that failed; empty if it did not."""

    key: StopKey
    problem: str = ""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A cancellation of the turn was requested.

    `by` is the author as named by the caller, None without one. It is read from history: the turn
    itself sees the reason alone.
    """

    reason: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyAnswered:
    """The agent's policy ruled on a call."""

    key: PolicyKey
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class HookEnded:
    """A hook ended.

    `error` is set if it refused or failed, and `lost` if contact with its worker was lost.
    """

    key: HookKey
    error: ErrorInfo | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ChildScheduled:
    """A delegate's turn was started with this input."""

    key: ChildKey
    turn_id: str
    request: TurnRequest


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """A delegate's turn ended.

    `summary` is None if the turn returned none; `reason` then has the cause. `began` is False if
    the turn could not be started.
    """

    key: ChildKey
    summary: Summary | None = None
    reason: str = ""
    began: bool = True


@dataclass(frozen=True, slots=True)
class ChildRead:
    """The history of a delegate's turn without a summary was read.

    `summary` is None if that failed. `is_over` is False for a turn that still ran, and so may have
    spent more since.
    """

    key: ReadKey
    summary: Summary | None = None
    is_over: bool = True


@dataclass(frozen=True, slots=True)
class ChildTold:
    """A delegate's turn reported that it waits, continues, or was given budget."""

    key: ChildKey
    news: ChildNews


@dataclass(frozen=True, slots=True)
class Decided:
    """A person approved or denied a call."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class BudgetAdded:
    """The budget, the limit of iterations, or both were increased.

    `more` is None if only `iterations` were added. `by` is the author as named by the caller, None
    without one.
    """

    more: Budget | None
    by: str | None = None
    iterations: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """The user sent a message to the turn, which the model reads with its next call.

    Attributes:
        id: The id of the message.
        text: Its text, with the kind and size of each image and file in its place.
        now: Whether a model call that is running is stopped.
        deny_pending: Whether the calls that wait for a person are denied, with the text as the
            reason.
        by: The sender as named by the caller; None without one.
        parts: Its texts, images and files in order; empty for text alone.
    """

    id: str
    text: str
    now: bool = False
    deny_pending: bool = False
    by: str | None = None
    parts: UserParts = ()


@dataclass(frozen=True, slots=True)
class Emitted:
    """An event was sent to the turn. `by` is the sender as named by the caller, None without one.

    It ends the wait of a call for it, or is kept for a later one.
    """

    event: TurnEvent
    by: str | None = None


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The result of a call came from outside, by its token.

    `proof` is the digest of its token, and `by` the sender as named by the caller, None without
    one.
    """

    key: ToolKey
    output: ToolOutput
    proof: str = ""
    by: str | None = None


@dataclass(frozen=True, slots=True)
class WaitBegan:
    """The turn started to wait: `kind` is the kind of the wait, and `reason` its cause.

    A wait of the kind `provider` lasts `until` that moment, for attempt number `attempt`; the first
    attempt failed at `since`. There is one such fact for each pause. With `limit`, the provider's
    limit is used up until then, and the wait does not count towards the time of the turn. A wait of
    the kind `delay` lasts `until` the turn begins. A wait of the kind `timer`, `event`, `job` or
    `client` is that of `calls`, which have begun to wait.
    """

    kind: str
    reason: str
    pending: tuple[PendingApproval, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    attempt: int = 0
    limit: bool = False
    calls: tuple[CallWait, ...] = ()


@dataclass(frozen=True, slots=True)
class Resumed:
    """A person resumed the turn, so that it asks its model again at once.

    `by` is the author as named by the caller, None without one.
    """

    by: str | None = None


@dataclass(frozen=True, slots=True)
class WaitEnded:
    """The turn continues.

    `expired` has the ids of the calls that were not approved in time. With `woken`, the waits of
    these calls are over, and the waits of others may go on.
    """

    expired: tuple[str, ...] = ()
    woken: tuple[Woken, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn ended.

    There is a summary if its code ran to the end, and none after a kill or a cancel.
    """

    outcome: Outcome
    summary: Summary | None = None
    reason: str = ""


FromOutside = Decided | BudgetAdded | Resumed | Said | Emitted | CallFinished
"""The updates of callers. A run that still takes over a state applies them afterwards."""

Fact = (
    TurnStarted
    | Scheduled
    | AgentResolved
    | HandedOver
    | ModelAnswered
    | CallFailed
    | ToolReturned
    | ApprovalNeeded
    | ToolLost
    | Verified
    | Polled
    | JobStopped
    | PolicyAnswered
    | HookEnded
    | ChildScheduled
    | ChildEnded
    | ChildRead
    | ChildTold
    | Decided
    | BudgetAdded
    | Resumed
    | Said
    | Emitted
    | CallFinished
    | WaitBegan
    | WaitEnded
    | CancelRequested
    | TurnEnded
)
"""The facts of a turn, which are its events."""

Folded = Fact | TurnContinued | PartCarried
"""The facts of a turn, and those of its runs."""

Recorded = Folded | TaskBegan
"""Everything that history records: the facts of a turn, those of its runs, and their tasks."""
