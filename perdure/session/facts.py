"""The facts about a session that history has recorded.

`by` is the author of a request as named by the caller, None without one.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.session.wire import IfBusy, Reminder, SessionRequest, SessionSnapshot, TurnPart
from perdure.values.budgets import Budget
from perdure.values.client_tools import ClientTool
from perdure.values.messages import UserParts
from perdure.values.shared_state import SharedState

__all__ = [
    "MessageSent",
    "MessageSteered",
    "MessageUnqueued",
    "ReminderDue",
    "ReminderForgotten",
    "ReminderSet",
    "SessionBudgetAdded",
    "SessionClosed",
    "SessionContinued",
    "SessionFact",
    "SessionResumed",
    "SessionStarted",
    "SteeringFailed",
    "TurnBegan",
    "TurnInterrupted",
    "TurnOver",
    "TurnRecorded",
]


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """The input of the session."""

    request: SessionRequest


@dataclass(frozen=True, slots=True)
class SessionContinued:
    """The session continues in a new run of its workflow."""

    snapshot: SessionSnapshot


@dataclass(frozen=True, slots=True)
class MessageSent:
    """A message to the session was accepted.

    `text` has the kind and size of each image and file in its place. `parts` are its texts, images
    and files in order; empty for text alone. The client runs `client_tools` in the turn that reads
    it, and `shared_state` is what that begins with; None for the session's.
    """

    id: str
    text: str
    if_busy: IfBusy = "queue"
    by: str | None = None
    agent: str | None = None
    parts: UserParts = ()
    client_tools: tuple[ClientTool, ...] = ()
    shared_state: SharedState | None = None


@dataclass(frozen=True, slots=True)
class MessageSteered:
    """A message was sent on to the running turn."""

    id: str


@dataclass(frozen=True, slots=True)
class SteeringFailed:
    """The turn that a message was sent on to was over."""

    id: str


@dataclass(frozen=True, slots=True)
class MessageUnqueued:
    """A message was taken out of the queue by its sender."""

    id: str


@dataclass(frozen=True, slots=True)
class ReminderSet:
    """The session will send a message to itself."""

    reminder: Reminder


@dataclass(frozen=True, slots=True)
class ReminderForgotten:
    """A reminder was given up before it was due."""

    id: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class ReminderDue:
    """A reminder is due, and is a message to the session now."""

    id: str


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """A turn was started with all messages of the queue."""

    number: int
    turn_id: str


@dataclass(frozen=True, slots=True)
class TurnOver:
    """A turn is over. `began` is False if it could not be started."""

    number: int
    began: bool = True


@dataclass(frozen=True, slots=True)
class TurnRecorded:
    """A part of the messages of a turn was recorded; None if its history cannot be read."""

    number: int
    part: TurnPart | None


@dataclass(frozen=True, slots=True)
class TurnInterrupted:
    """A person or a program asked the running turn to stop."""

    reason: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class SessionBudgetAdded:
    """The budget of the session was increased."""

    more: Budget
    by: str | None = None


@dataclass(frozen=True, slots=True)
class SessionResumed:
    """The messages of the queue are given to a turn, although none has come since."""

    by: str | None = None


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The session takes no more messages."""

    reason: str = ""
    by: str | None = None


SessionFact = (
    SessionStarted
    | SessionContinued
    | MessageSent
    | MessageSteered
    | SteeringFailed
    | MessageUnqueued
    | ReminderSet
    | ReminderForgotten
    | ReminderDue
    | TurnBegan
    | TurnOver
    | TurnRecorded
    | TurnInterrupted
    | SessionBudgetAdded
    | SessionResumed
    | SessionClosed
)
"""The facts of a session, which are its events."""
