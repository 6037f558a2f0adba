"""What can be read of a session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Generic

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import (
    Client,
)

from perdure import errors, validation
from perdure.base import T, Value
from perdure.clients.reading import cursors
from perdure.clients.reading.cursors import Cursor
from perdure.clients.reading.merged import Merged
from perdure.clients.reading.timeouts import Timeout, at_most
from perdure.clients.reading.tree_text import TurnText
from perdure.clients.sessions.ends import with_end
from perdure.clients.turns.handle import Turn
from perdure.session import facts
from perdure.session.facts import SessionFact
from perdure.session.state import SessionState, apply
from perdure.session.wire import (
    Queued,
    Reminder,
    SessionFork,
    SessionTurn,
)
from perdure.temporal import access
from perdure.temporal.follow import Follower
from perdure.temporal.histories.runs import describe
from perdure.temporal.histories.session_history import SessionReader, read_session
from perdure.temporal.names import (
    SESSION,
)
from perdure.values import states
from perdure.values.budgets import Budget, Spending
from perdure.values.messages import Message
from perdure.values.states import State

_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


class SessionStatus(Value):
    """The status of a session.

    Attributes:
        id: The session's id.
        agent: The name of the agent that it was begun with.
        last_agent: The agent that answers the next message.
        state: `running` while a turn runs or is about to begin, `idle` while it waits for a
            message or for budget, or `closed`.
        turn: The id of the running turn; None if none runs, or before it begins.
        queue: The messages that no turn has read.
        reminders: The reminders that are not due yet; of a closed session, those that never came.
        turns: The number of turns that were started.
        spent: What its turns were charged with.
        budget: What they may spend together; None without a limit.
        forked_from: The point in another session from which it continues; None for other sessions.
    """

    id: str
    agent: str
    last_agent: str
    state: states.OfSession
    turn: str | None = None
    queue: tuple[Queued, ...] = ()
    reminders: tuple[Reminder, ...] = ()
    turns: int = 0
    spent: Spending = Spending()
    budget: Budget | None = None
    forked_from: SessionFork | None = None


class ConversationPart(Value):
    """The messages of a turn that is over, with its number, from 1."""

    number: int
    messages: tuple[Message, ...]


class Conversation(Value):
    """A session as a whole, as it is at one moment.

    Attributes:
        agent: The name of the agent that it was begun with.
        turns: The last 50 turns that are over and the running one, in order.
        parts: The messages of each turn that is over, in order; the oldest turns are left out of a
            session whose messages are more than 800 kB.
    """

    agent: str
    turns: tuple[SessionTurn, ...] = ()
    parts: tuple[ConversationPart, ...] = ()


class MessageStatus(Value):
    """The status of a message that a session has accepted.

    Attributes:
        id: The id of the message.
        turn_id: The id of the turn that was given it; None while it waits.
    """

    id: str
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """A fact of a session, with the time at which it was recorded.

    Attributes:
        cursor: The position of the event: `session.events(after=cursor)` continues after it.
        at: The time at which it was recorded, in UTC.
        fact: The recorded fact, one of `perdure.session.facts`.
        session_id: The session's id.
    """

    cursor: str
    at: datetime
    fact: SessionFact
    session_id: str


class ReadableSession(Generic[T]):
    """The half of `Session` that reads: it changes nothing, and needs no worker.

    Attributes:
        id: The session's id, which is also the id of its workflow.
    """

    def __init__(self, client: Client, session_id: str, turn: Callable[[str], Turn[Any]]) -> None:
        self.id = session_id
        self._client = client
        self._turn = turn

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    async def check(self) -> None:
        """Check that the session has begun. It asks once, and decodes nothing.

        Raises:
            SessionNotFoundError: Temporal does not have the session, or no longer has it.
            ServerUnreachableError: Temporal does not answer.
        """
        await self._last_run()

    async def status(self) -> SessionStatus:
        """Return the current status of the session, from its history. Needs no worker.

        Raises:
            SessionNotFoundError: Temporal does not have the session, or no longer has it.
        """
        state = await self._current()
        running = state.running
        return SessionStatus(
            id=self.id,
            agent=state.request.agent if state.request else "",
            last_agent=state.agent,
            state=_state_of(state),
            turn=running.turn_id if running else None,
            queue=tuple(queued.brief for queued in state.queue),
            reminders=state.reminders,
            turns=state.count,
            spent=state.ledger.spent,
            budget=state.ledger.budget,
            forked_from=state.forked_from,
        )

    async def wait(self, timeout: Timeout = None) -> SessionStatus:
        """Wait until no turn runs or is about to begin, and return the status. Needs no worker.

        `client.turn(status.turn).wait()` waits
        until a running turn needs a person.

        Args:
            timeout: The longest wait, as a timedelta or in seconds. Without it, the wait is
                unlimited.

        Raises:
            SessionNotFoundError: Temporal does not have the session, or no longer has it.
            InvalidRequestError: The timeout is not valid.
        """
        async with at_most(timeout):
            await self._until_idle()
        return await self.status()

    async def _until_idle(self) -> None:
        info = await self._info()
        state, follower = SessionState(), self._follower(info.execution.run_id)
        async with contextlib.aclosing(follower.events()) as reading:
            async for read in reading:
                for fact in read.facts:
                    state = apply(state, fact)
                is_now = read.run > 0 or read.event.event_id >= info.history_length
                if is_now and state.running is None and _state_of(state) is not State.RUNNING:
                    return

    async def messages(self) -> tuple[Message, ...]:
        """Return the messages of the turns that are over, as the next turn begins with them.

        The oldest turns are left out of a session whose messages are more than 800 kB. Needs no
        worker.

        Raises:
            SessionNotFoundError: Temporal does not have the session, or no longer has it.
        """
        return (await self._current()).messages

    async def turns(self) -> tuple[SessionTurn, ...]:
        """Return the last 50 turns that are over and the running one, in order.

        `client.turn(turn.turn_id)` follows a turn. Needs no worker.

        Raises:
            SessionNotFoundError: Temporal does not have the session, or no longer has it.
        """
        return _turns_of(await self._current())

    async def conversation(self) -> Conversation:
        """Return the turns and the messages of the session, by turn. Needs no worker.

        Raises:
            SessionNotFoundError: Temporal does not have the session, or no longer has it.
        """
        state = await self._current()
        bounds = pairwise((*state.starts, len(state.messages)))
        return Conversation(
            agent=state.request.agent if state.request else "",
            turns=_turns_of(state),
            parts=tuple(
                ConversationPart(number=number, messages=state.messages[start:end])
                for number, (start, end) in enumerate(bounds, state.dropped + 1)
            ),
        )

    async def events(self, after: str | None = None) -> AsyncIterator[SessionEvent]:
        """Yield every fact of the session as it is recorded, until it is closed. Needs no worker.

        Args:
            after: The cursor of the last known event; without it, events start from the beginning
                of the current run of its workflow.

        Raises:
            SessionNotFoundError: Temporal does not have the session, or no longer has it.
            StaleCursorError: The cursor belongs to another session, or the retention of its run is
                over.
            InvalidRequestError: The value is not a cursor.
        """
        run, last = await self._place(after)
        async for event in self._events(run, last):
            yield event

    async def live(self, after: str | None = None) -> AsyncGenerator[SessionEvent | TurnText, None]:
        """Yield what `events` yields, and the text of the turns between the events.

        For a session that was begun with `live=True`, the text comes while the models generate it,
        that of delegates too. The text of a turn comes before the event of its end.

        Args:
            after: As of `events`. Text that was recorded before that event is not yielded.

        Raises:
            PerdureError: As `events` does.
        """
        merged = Merged[SessionEvent | TurnText]()
        items = merged.items(self._with_text(merged, *await self._place(after)))
        async with contextlib.aclosing(items):
            async for item in items:
                yield item

    async def _with_text(
        self, merged: Merged[SessionEvent | TurnText], run: str, last: int
    ) -> AsyncGenerator[SessionEvent, None]:
        """Yield the events after a place in a run, and follow the text of the turns."""
        state, reading = SessionState(), self._reads(run)
        async with contextlib.aclosing(reading):
            async for place, events in reading:
                is_old = place.run == run and place.event <= last
                for event in events:
                    before, state = _running(state), apply(state, event.fact)
                    if is_old:
                        continue
                    if isinstance(event.fact, facts.TurnOver) and before is not None:
                        await merged.over(before)
                    yield event
                    running = _running(state)
                    if running is not None and running != before:
                        merged.add(running, self._text(running, None))
                running = _running(state)
                if is_old and place.event == last and running is not None:
                    merged.add(running, self._text(running, events[-1].at))

    async def _text(
        self, turn_id: str, since: datetime | None
    ) -> AsyncGenerator[SessionEvent | TurnText, None]:
        turn = await self.begun(turn_id)
        if turn is None:
            return
        async with contextlib.aclosing(turn.text_since(since)) as items:
            async for item in items:
                yield item

    async def _place(self, after: str | None) -> tuple[str, int]:
        """Return the run of a cursor, and the number of its event; without one, the last run.

        Raises:
            PerdureError: As `events` does.
        """
        values, types = {"after": after}, {"after": validation.Text | None}
        validation.check("the events", values, types, errors.InvalidRequestError)
        last_run = await self._last_run()
        if after is None:
            return last_run, 0
        position = cursors.read(after, "a session")
        await self._check_run(position.run, last_run)
        return position.run, position.event

    async def _events(self, run: str, last: int = 0) -> AsyncIterator[SessionEvent]:
        """Yield the events of a run after its event of the number `last`, and of later runs."""
        async with contextlib.aclosing(self._reads(run)) as reading:
            async for place, events in reading:
                if place.run == run and place.event <= last:
                    continue
                for event in events:
                    yield event

    async def _reads(self, run: str) -> AsyncGenerator[tuple[Cursor, list[SessionEvent]], None]:
        """Yield the places of a run and of later runs, with the events there."""
        follower = self._follower(run)
        async with contextlib.aclosing(follower.events()) as reading:
            async for read in reading:
                if not read.facts:
                    continue
                own_run = follower.runs[read.run]
                place = Cursor(own_run, own_run, read.event.event_id)
                at = read.event.event_time.ToDatetime(tzinfo=UTC)
                yield place, [SessionEvent(str(place), at, fact, self.id) for fact in read.facts]

    def _follower(self, run: str) -> Follower[SessionFact]:
        converter = self._client.data_converter
        return Follower(
            self._client, access.SESSION, self.id, [run], lambda: SessionReader(converter).facts
        )

    async def _check_run(self, run_id: str, last: str) -> None:
        """Refuse the run of a cursor, unless it is a run of this session that Temporal has.

        Raises:
            StaleCursorError: It is not.
        """
        if run_id == last:
            return
        describing = describe(self._client, self.id, run_id, retry=True)
        if await access.SESSION.asked_if_known(self.id, describing) is None:
            raise errors.StaleCursorError(
                f"the cursor belongs to another session than {self.id!r}, or to a run of it whose"
                " retention is over; read the events from the beginning",
                context={"session_id": self.id},
            )

    async def find(self, message_id: str) -> MessageStatus | None:
        """Return the status of a message; None if the session does not know it.

        It knows the messages of its last 50 turns, and messages that wait. Needs no worker.

        Raises:
            SessionNotFoundError: Temporal does not have the session, or no longer has it.
        """
        state = await self._state()
        for turn in reversed(state.turns):
            if message_id in turn.messages:
                return MessageStatus(id=message_id, turn_id=turn.turn_id)
        if state.running is not None and message_id in {message.id for message in state.given}:
            return MessageStatus(id=message_id, turn_id=state.running.turn_id)
        is_queued = message_id in {message.id for message in state.queue}
        return MessageStatus(id=message_id) if is_queued else None

    async def turn_of(self, message_id: str) -> Turn[Any]:
        """Return the turn that was given a message, as soon as it has begun.

        Raises:
            SessionClosedError: The session was closed before.
            SessionNotFoundError: Temporal does not have the session, or no longer has it.
        """
        run_id = await self._last_run()
        for turn in reversed((await self._state(run_id)).turns):
            if message_id in turn.messages:
                return self._turn(turn.turn_id)
        state = SessionState()
        async for event in self._events(run_id):
            state = apply(state, event.fact)
            message_ids = {message.id for message in state.given}
            if state.running is not None and message_id in message_ids:
                begun = await self.begun(state.running.turn_id)
                if begun is not None:
                    return begun
        raise errors.SessionClosedError(
            f"session {self.id!r} was closed before a turn read the message {message_id!r}"
        )

    async def begun(self, turn_id: str) -> Turn[Any] | None:
        """Return the turn of a `TurnBegan`, as soon as it exists.

        Returns: The turn; None if a turn that is not of this session has the id. The session then
            starts its turn with another id.

        Raises:
            TurnNotFoundError: It does not exist after some seconds.
        """
        pause = _PAUSE_S / 4
        while True:
            try:
                describing = describe(self._client, turn_id, retry=True)
                info = (await access.TURN.asked(turn_id, describing)).workflow_execution_info
                is_own = info.parent_execution.workflow_id == self.id
                return self._turn(turn_id) if is_own else None
            except errors.TurnNotFoundError:
                if pause > _LONGEST_PAUSE_S:
                    raise
            await asyncio.sleep(pause)
            pause *= 2

    async def _current(self) -> SessionState:
        """Return the state, with the end of a turn that the session has not recorded yet."""
        state = await self._state()
        return await access.SESSION.asked(self.id, with_end(self._client, self.id, state))

    async def _state(self, run_id: str = "") -> SessionState:
        """Return the state of a run; by default, of the last run."""
        run_id = run_id or await self._last_run()
        return await access.SESSION.asked(self.id, read_session(self._client, self.id, run_id))

    async def _last_run(self) -> str:
        return (await self._info()).execution.run_id

    async def _info(self) -> WorkflowExecutionInfo:
        """Return the latest workflow of the session.

        Raises:
            SessionNotFoundError: There is none, or it is not a session.
        """
        describing = describe(self._client, self.id, retry=True)
        info = (await access.SESSION.asked(self.id, describing)).workflow_execution_info
        if info.type.name != SESSION:
            raise errors.SessionNotFoundError(
                f"{self.id!r} is a workflow of type {info.type.name}, not a session",
                context={"session_id": self.id},
            )
        return info

    def _closed(self) -> errors.SessionClosedError:
        return errors.SessionClosedError(
            f"session {self.id!r} is closed; begin another one, or fork it with session.fork(id=…)",
            context={"session_id": self.id},
        )


def _running(state: SessionState) -> str | None:
    """Return the id of the running turn, if one runs."""
    return None if state.running is None else state.running.turn_id


def _state_of(state: SessionState) -> states.OfSession:
    if state.closed is not None:
        return State.CLOSED
    return State.RUNNING if state.running is not None or state.may_start else State.IDLE


def _turns_of(state: SessionState) -> tuple[SessionTurn, ...]:
    """Return the last turns that are over and the running turn, with the messages that it has."""
    if state.running is None:
        return state.turns
    message_ids = tuple(message.id for message in state.given)
    return (*state.turns, state.running.model_copy(update={"messages": message_ids}))
