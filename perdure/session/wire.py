"""Values of a session that are stored in Temporal."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from operator import not_
from typing import Literal

from pydantic import Field

from perdure import limits
from perdure.base import Wire
from perdure.errors import InvalidRequestError
from perdure.turn.ledger import Ledger
from perdure.turn.option_checks import check_client_tools
from perdure.values.budgets import Spending
from perdure.values.client_tools import ClientTool
from perdure.values.effects import EffectRecord
from perdure.values.messages import Message, UserMessage, UserParts
from perdure.values.moments import in_words
from perdure.values.reports import Outcome
from perdure.values.shared_state import SharedState, check_shared_state
from perdure.values.turn_options import StoredOptions

IfBusy = Literal["queue", "steer", "interrupt", "reject"]
"""What happens to a message that comes while a turn of the session runs."""

NO_TIME = "the budget of a session has no time: give it to the agent, for each turn"


class Disposition(StrEnum):
    """What the session does with a message that it has accepted.

    `started`: a turn begins with it. `queued`: the next turn reads it. `steered`: it was sent to
    the running turn. `interrupting`: the running turn is cancelled, and the next one reads it.
    """

    STARTED = "started"
    QUEUED = "queued"
    STEERED = "steered"
    INTERRUPTING = "interrupting"


class SessionRequest(StoredOptions, Wire):
    """The input of a session.

    `budget` is what all of its turns may spend together. `idle` is the time after which a session
    without a turn and without a message is closed; None for never. The other fields are about its
    turns.
    """

    agent: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS)
    idle: timedelta | None = None
    live: bool = False

    def check_budget(self) -> None:
        """Refuse a budget whose only limit is a time, which no turn could be given a rest of.

        The client refuses every time in the budget of a session.

        Raises:
            InvalidRequestError: The budget has no other limit.
        """
        if self.budget is not None and self.budget.model_dump(exclude_none=True).keys() <= {"time"}:
            raise InvalidRequestError(NO_TIME)


class Say(Wire):
    """A message to a session. Its id is the update's.

    `agent` answers it, and the messages after it; None for the agent that answered last. `expects`
    is the agent that the sender thinks the session was begun with; None for any. `parts` are the
    texts, images and files of a message that is not only text; `text` is then empty, so that a
    worker of an earlier release refuses the message. The client runs `client_tools` in the turn
    that reads the message, and `shared_state` is what that begins with; None for the session's.
    """

    text: str
    if_busy: IfBusy = "queue"
    by: str | None = None
    agent: str | None = None
    expects: str | None = None
    parts: UserParts = ()
    client_tools: tuple[ClientTool, ...] = Field(default=(), exclude_if=not_)
    shared_state: SharedState | None = Field(default=None, exclude_if=lambda shared: shared is None)

    def check(self) -> None:
        """Refuse what does not go with a message.

        Raises:
            InvalidRequestError: It is steered, with an agent, tools or a shared state of its own;
                or these are not valid.
            TooLargeError: The tools are too many, or too large, or the shared state is.
        """
        own = {
            "an agent": self.agent is not None,
            "tools": bool(self.client_tools),
            "a shared state": self.shared_state is not None,
        }
        its_own = next((name for name, is_given in own.items() if is_given), "")
        if its_own and self.if_busy == "steer":
            raise InvalidRequestError(
                f"a message with {its_own} of its own cannot be steered into a running turn"
            )
        check_client_tools(self.client_tools)
        check_shared_state(self.shared_state)


class Receipt(Wire):
    """The answer to an accepted message: what happens to it, and the turn that reads it."""

    disposition: Disposition
    turn_id: str


class Queued(Wire):
    """A message that no turn has read yet.

    `text` has the kind and size of each image and file in its place. `parts` are the texts, images
    and files of a message that is not only text; a status and the answer to a close leave them out,
    and the `client_tools` and the `shared_state` that it brings.
    """

    id: str
    text: str
    by: str | None = None
    agent: str | None = None
    parts: UserParts = Field(default=(), exclude_if=not_)
    client_tools: tuple[ClientTool, ...] = Field(default=(), exclude_if=not_)
    shared_state: SharedState | None = Field(default=None, exclude_if=lambda shared: shared is None)

    @property
    def message(self) -> UserMessage:
        """The message as a turn gets it."""
        return UserMessage.of(self.text, id=self.id, parts=self.parts)

    @property
    def brief(self) -> Queued:
        """The same without `parts`, `client_tools` and `shared_state`, to print."""
        return self.model_copy(update={"parts": (), "client_tools": (), "shared_state": None})


class Unqueue(Wire):
    """Takes a message out of the queue. `by` is who asks."""

    id: str
    by: str | None = None


class Reminder(Wire):
    """A message that a session sends to itself at a later time.

    Attributes:
        id: Its id.
        at: When it is due.
        text: Its text.
    """

    id: str
    at: datetime
    text: str

    @property
    def message(self) -> str:
        """The text of the message to the session."""
        return f"[A reminder, which was set for {in_words(self.at)}]\n{self.text}"


class Remind(Wire):
    """Has a session send a message to itself later. The id is in that of the update."""

    at: datetime
    text: str


class ForgetReminder(Wire):
    """Gives a reminder up, and who asks for that."""

    id: str
    by: str | None = None


class SessionReason(Wire):
    """The reason for an interruption or for the end of a session, and who asks for that."""

    reason: str = ""
    by: str | None = None


class UpdateResult(Wire):
    """Whether a request to a session changed anything."""

    done: bool


class Left(Wire):
    """The messages that a closed session has not read."""

    unread: tuple[Queued, ...] = ()


class SessionTurn(Wire):
    """A turn of a session.

    Attributes:
        number: Its number, from 1.
        turn_id: Its id.
        messages: The ids of the messages that it was given, in order.
        unread: The ids of those that it has left to the next turn, once its history is read. The
            first message is never among them: it is the task of the turn, whose end is its answer.
        outcome: Its outcome; None while it runs, and until the session has read its history.
        spent: What it was charged with.
        cost: The money of `spent`; None if the price is unknown.
    """

    number: int
    turn_id: str
    messages: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    outcome: Outcome | None = None
    spent: Spending = Spending()
    cost: Decimal | None = None


class RecordCall(Wire):
    """Input of the activity that records the messages of a turn that is over: part `part`."""

    turn_id: str
    run_id: str
    part: int


class TurnEnd(Wire):
    """The end of a turn, from its history.

    `unread` are the ids of messages that it has not answered; `is_unread` is whether it was
    over before its agent was known, and has read none at all. `agent` is the agent that had
    the turn at its end; empty if that is unknown. `effects` has what it has learned of effects.
    `shared_state` is that at its end; None if it had none, or if that is unknown.
    """

    outcome: Outcome
    spent: Spending = Spending()
    is_priced: bool = False
    unread: tuple[str, ...] = ()
    is_unread: bool = Field(default=False, exclude_if=not_)
    agent: str = ""
    effects: tuple[EffectRecord, ...] = ()
    shared_state: SharedState | None = Field(default=None, exclude_if=lambda shared: shared is None)


class TurnPart(Wire):
    """A part of the messages of a turn; the last part has its end."""

    number: int
    count: int
    messages: tuple[Message, ...] = ()
    end: TurnEnd | None = None


class Answered(Wire):
    """A message that an earlier run of the session has answered, with the answer."""

    id: str
    receipt: Receipt


class SessionFork(Wire):
    """The point in another session from which a session goes on.

    Attributes:
        session_id: The id of the other session.
        at_turn: The number of its last turn whose messages were taken over.
        by: Who forked the other session; None without a name.
    """

    session_id: str
    at_turn: int
    by: str | None = None


class SessionSnapshot(Wire):
    """The input of a later run of a session: everything that it takes over from the run before.

    A fork of a session begins with a conversation as well, of which it has a part.

    Attributes:
        session: The input of the session.
        count: The number of turns so far.
        turns: The last turns.
        agent: The agent that answers the next message.
        named: The agent that a caller named last, whose rules hold; empty in a snapshot of an
            earlier release, for the session's own.
        queue: The messages that wait.
        is_parked: Whether they wait for the next message, after a turn was cancelled.
        messages: The messages that the next turn begins with.
        starts: The places in them where a turn begins.
        dropped: The number of turns whose messages are not among them any more.
        ledger: The budget and what was spent of it.
        answered: The last messages, which the server may repeat.
        forked_from: The point in another session from which the session goes on; None for other
            sessions, and for one that an earlier release has forked.
        effects: What is known of the effects of its turns.
        effect_scope: The scope of these effects, for a fork: that of the other session.
        reminders: The reminders that are not due yet.
        shared_state: The shared state that the next turn begins with.
        idle_since: Since when the session has waited for a message, if it goes on waiting.
    """

    session: SessionRequest
    count: int
    turns: tuple[SessionTurn, ...] = ()
    agent: str = ""
    named: str = ""
    queue: tuple[Queued, ...] = ()
    is_parked: bool = False
    messages: tuple[Message, ...] = ()
    starts: tuple[int, ...] = ()
    dropped: int = 0
    ledger: Ledger = Ledger()
    answered: tuple[Answered, ...] = ()
    forked_from: SessionFork | None = None
    effects: tuple[EffectRecord, ...] = ()
    effect_scope: str = ""
    reminders: tuple[Reminder, ...] = ()
    shared_state: SharedState = Field(default={}, exclude_if=not_)
    idle_since: datetime | None = None

    @classmethod
    def of_fork(
        cls,
        session: SessionRequest,
        agent: str,
        named: str,
        messages: tuple[Message, ...],
        starts: tuple[int, ...],
        forked_from: SessionFork | None,
    ) -> SessionSnapshot:
        """Return the input of a fork, which takes over messages, and who answers next."""
        return cls(
            session=session,
            count=0,
            agent=agent,
            named=named,
            messages=messages,
            starts=starts,
            ledger=Ledger(session.budget),
            forked_from=forked_from,
        )

    @property
    def is_of_a_fork(self) -> bool:
        """Whether it has only what a fork takes over."""
        only = SessionSnapshot.of_fork(
            self.session, self.agent, self.named, self.messages, self.starts, self.forked_from
        )
        beside: dict[str, object] = {"effects": (), "effect_scope": "", "shared_state": {}}
        return self.model_copy(update=beside) == only
