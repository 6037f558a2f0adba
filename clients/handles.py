"""What the handles of turns, sessions, batches and schedules have in common."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol, TypeVar

from perdure.clients.reading.timeouts import Timeout
from perdure.errors import ErrorInfo
from perdure.values.budgets import Budget
from perdure.values.states import State

S_co = TypeVar("S_co", bound="Status", covariant=True)


class AmountsSpent(Protocol):
    """What was spent."""

    @property
    def usd(self) -> Decimal | None:
        """Money; None if a price is unknown."""

    @property
    def tokens(self) -> int:
        """Tokens of model calls."""

    @property
    def model_calls(self) -> int:
        """Model calls that were started."""

    @property
    def tool_calls(self) -> int:
        """Tool calls that were started."""


class Status(Protocol):
    """What every status has."""

    @property
    def id(self) -> str:
        """The id."""

    @property
    def agent(self) -> str:
        """The name of the agent."""

    @property
    def state(self) -> State:
        """The state, in one word."""

    @property
    def spent(self) -> AmountsSpent:
        """What was spent so far, as far as it counts for the budget."""

    @property
    def budget(self) -> Budget | None:
        """The limits; None without a limit, or before they are known."""


class Entry(Protocol):
    """What every entry of a list has."""

    @property
    def id(self) -> str:
        """The id, for a handle."""

    @property
    def agent(self) -> str:
        """The name of the agent; empty if it is not known."""

    @property
    def state(self) -> State | None:
        """The state, in one word; None for what is over if it is not known how."""

    @property
    def started_at(self) -> datetime:
        """The time it was started; of a schedule, the time it was created."""

    @property
    def ended_at(self) -> datetime | None:
        """The time it ended; None before, and for a schedule."""

    @property
    def error(self) -> ErrorInfo | None:
        """Why it ended other than by its own work, or why the entry lacks values; else None.

        A list reads no history: the code says what happened, and the message is that of the code.
        `status` has the whole error of a turn.
        """


class Handle(Protocol[S_co]):
    """A turn, a session, a batch or a schedule.

    A handle asks the server nothing when it is made. Each method raises the error of an id that is
    not there, such as `TurnNotFoundError`, and `ServerUnreachableError` if Temporal does not
    answer. What only some of them have is not here: a turn and a session have `events(after)` and
    `fork`, a batch and a schedule have `results(after)`, a batch has `retry`, and all but a batch
    have `resume`.

    Attributes:
        id: The id.
    """

    id: str

    async def check(self) -> None:
        """Check that Temporal has it, and that it is of this kind."""

    async def status(self) -> S_co:
        """Return the current status. Needs no worker."""

    async def wait(self, timeout: Timeout = None) -> S_co:
        """Wait until nothing of it goes on by itself, and return its status.

        A turn is over then or needs a person, and a batch is over; of a session and of a schedule
        no turn runs.

        Args:
            timeout: The longest wait, as a timedelta or in seconds. Without it, the wait is
                unlimited.
        """

    async def cancel(self, reason: str = "", *, by: str | None = None) -> bool:
        """Cancel the turns that run, and start no more.

        Args:
            reason: The reason, for people.
            by: The person or program that cancels it: one line, at most 200 characters. It is
                recorded, not checked.

        Returns:
            Whether there was something to cancel.
        """

    async def add_budget(self, more: Budget, *, by: str | None = None) -> Any:
        """Add to its limits. What waits for that continues.

        Args:
            more: The amounts to add.
            by: The person or program that adds them, as for `cancel`.

        Raises:
            InvalidRequestError: It has no such limit, or is over.
        """
