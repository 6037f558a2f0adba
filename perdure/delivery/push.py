"""Push notifications about a task of A2A: what its client asked for, and what is sent. Pure.

A message has the state of the task, without its content: a receiver that may read the content asks
the gateway for it.
"""

from __future__ import annotations

from datetime import datetime

from pydantic_core import to_json

from perdure import errors
from perdure.base import Wire
from perdure.values.reports import Outcome

ASKS = "TASK_STATE_INPUT_REQUIRED"
"""The state of a task that needs a person, as A2A spells it."""

_REJECTED = frozenset(
    cls.code
    for cls in (errors.GuardrailError, errors.InvalidRequestError, errors.UnknownAgentError)
)
"""The errors with which an agent refuses a task, other than failing at it."""


class PushCall(Wire):
    """Input of the workflow that notifies one receiver about one task.

    Attributes:
        id: The id of the configuration, as its client knows it.
        url: The address of the receiver.
        token: What the receiver recognizes a message by; None if the receiver needs nothing.
        turn_id: The turn of the task; empty if only the address is to be checked.
        task: The id of the task, as its client knows it.
        context: The id of its context.
        told: The place of the change that was sent last; empty before the first.
    """

    id: str
    url: str
    token: str | None = None
    turn_id: str = ""
    task: str = ""
    context: str = ""
    told: str = ""

    def is_same(self, other: PushCall) -> bool:
        """Return whether both ask for the same messages to the same receiver."""
        return (self.url, self.token) == (other.url, other.token)


class PushMessage(Wire):
    """A change of a task.

    Attributes:
        task: The id of the task.
        context: The id of its context.
        state: Its state since then, as A2A spells it.
        timestamp: The time of the change.
    """

    task: str
    context: str
    state: str
    timestamp: datetime

    def body(self) -> bytes:
        """Return the body of the request: a `StreamResponse` of A2A as JSON."""
        status = {"state": self.state, "timestamp": self.timestamp}
        update = {"taskId": self.task, "contextId": self.context, "status": status}
        return to_json({"statusUpdate": update})


class ChangeCall(Wire):
    """Input of the activity that reads the last change of a task.

    `is_ending` says that the turn is about to end, which is waited for.
    """

    push: PushCall
    is_ending: bool = False


class TaskChange(Wire):
    """The last change of a task that its client is told of.

    Attributes:
        message: What to send; None if nothing has changed since `PushCall.told`.
        place: The place of the change in the history of the turn.
        is_last: Whether the task is over.
    """

    message: PushMessage | None = None
    place: str = ""
    is_last: bool = False


class Follow(Wire):
    """Asks a turn to send its news to this workflow."""

    follower: str


class TurnNews(Wire):
    """Tells a follower that a turn needs a person, or that it is about to end."""

    is_ending: bool = False


def end_of_task(outcome: Outcome | None, code: str | None) -> str:
    """Return the state of a task that is over, as A2A spells it.

    Args:
        outcome: The outcome of its turn.
        code: The code of the error of the turn; None for a turn with an answer.
    """
    if outcome is Outcome.CANCELLED:
        return "TASK_STATE_CANCELED"
    if code is None:
        return "TASK_STATE_COMPLETED"
    return "TASK_STATE_REJECTED" if code in _REJECTED else "TASK_STATE_FAILED"
