"""The states of turns, sessions, batches and schedules."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Literal, get_args


class State(StrEnum):
    """The state of a turn, a session, a batch or a schedule, in one word.

    Each of them has some of these states; no word means two things.

    Attributes:
        RUNNING: A turn or a batch runs, or a turn of a session.
        WAITING: A turn waits for an approval, until a provider is asked again, or for its begin, or
            a call of it waits for a time or for an event.
        PAUSED: A turn waits for budget, for more iterations, or for a person who resumes it. A
            schedule starts nothing until it is resumed.
        ENDED: A turn is over; its outcome says how.
        IDLE: A session waits for a message or for budget.
        OPEN: A session takes messages; a list does not know whether a turn of it runs.
        CLOSED: A session takes no more messages.
        ACTIVE: A schedule starts turns.
        COMPLETED: A batch has tried every task.
        STOPPED: A batch has started no more tasks after a turn without an answer.
        BUDGET_EXHAUSTED: A batch has started no more tasks because its budget was spent.
        CANCELLED: A batch was cancelled.
        TERMINATED: A batch was ended by Temporal.
    """

    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    ENDED = "ended"
    IDLE = "idle"
    OPEN = "open"
    CLOSED = "closed"
    ACTIVE = "active"
    COMPLETED = "completed"
    STOPPED = "stopped"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens by itself or by a request; `retry` runs a batch again."""
        return self in _OVER


_OVER = frozenset(
    {
        State.ENDED,
        State.CLOSED,
        State.COMPLETED,
        State.STOPPED,
        State.BUDGET_EXHAUSTED,
        State.CANCELLED,
        State.TERMINATED,
    }
)

if TYPE_CHECKING:  # one type to a type checker, which lets a state be compared with its word
    OfTurn = State
    OfSession = State
    OfListedSession = State
    OfBatch = State
    OfSchedule = State
else:
    OfTurn = Literal[State.RUNNING, State.WAITING, State.PAUSED, State.ENDED]
    OfSession = Literal[State.IDLE, State.RUNNING, State.CLOSED]
    OfListedSession = Literal[State.OPEN, State.CLOSED]
    OfBatch = Literal[
        State.RUNNING,
        State.COMPLETED,
        State.STOPPED,
        State.BUDGET_EXHAUSTED,
        State.CANCELLED,
        State.TERMINATED,
    ]
    OfSchedule = Literal[State.ACTIVE, State.PAUSED]


def of_turn(name: str) -> OfTurn | None:
    """Return the state of a turn with this name; None if no turn has such a state."""
    return next((state for state in get_args(OfTurn) if state == name), None)
