"""Conversations of many turns, as a caller sees them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, Generic, Literal, overload
from uuid import uuid4

from pydantic import ValidationError
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
)
from temporalio.common import (
    RawValue,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from perdure import errors, limits, validation
from perdure.agents.agent import Agent
from perdure.base import T, Value
from perdure.clients.reading import cursors
from perdure.clients.reading.cursors import Cursor
from perdure.clients.reading.timeouts import Timeout, at_most
from perdure.clients.sessions.ends import with_end
from perdure.clients.sessions.receipts import closed_before
from perdure.clients.turns import cancelling, updates
from perdure.clients.turns.handle import Turn
from perdure.schemas import output_type
from perdure.session.facts import SessionFact
from perdure.session.state import SessionState, apply
from perdure.session.wire import (
    Disposition,
    Done,
    IfBusy,
    Left,
    Queued,
    Reason,
    Receipt,
    Say,
    SessionRequest,
    SessionSnapshot,
    SessionTurn,
    Unqueue,
)
from perdure.temporal import access
from perdure.temporal.follow import Follower
from perdure.temporal.names import (
    ADD_BUDGET,
    CLOSE,
    INTERRUPT,
    MEMO,
    RESUME,
    SAY,
    SESSION,
    UNQUEUE,
)
from perdure.temporal.payloads import pack, unpack
from perdure.temporal.priorities import priority_of
from perdure.temporal.runs import describe
from perdure.temporal.search_marks import Marks
from perdure.temporal.session_history import SessionReader, read_session
from perdure.text import one_line
from perdure.turn.ledger import Ledger
from perdure.turn.wire import Resume
from perdure.values.budgets import ABudget, Budget, BudgetUpdate, Spending
from perdure.values.messages import Message
from perdure.values.reports import AgentReport

_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_BUSY_TRIES = 20
_SAY = {
    "text": validation.Message,
    "id": validation.NewMessageId | None,
    "if_busy": Annotated[
        IfBusy,
        validation.Must("'queue', 'steer', 'interrupt' or 'reject'"),
    ],
    "by": validation.By | None,
    "agent": validation.Unicode | None,
}
_FORK = {"at_turn": validation.CountOrZero | None, "id": validation.Text}

State = Literal["idle", "running", "closed"]


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
        turns: The number of turns that were started.
        spent: What its turns were charged with.
        budget: What they may spend together; None without a limit.
    """

    id: str
    agent: str
    last_agent: str
    state: State
    turn: str | None = None
    queue: tuple[Queued, ...] = ()
    turns: int = 0
    spent: Spending = Spending()
    budget: Budget | None = None


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


class Sent(Generic[T]):
    """A message that a session has accepted.

    Attributes:
        id: The id of the message.
        disposition: What the session does with it: `started`, `queued`, `steered` or
            `interrupting`.
        turn_id: The id of the turn that reads it. For a message that is queued, or that waits for
            an interrupted turn to end, that turn begins later. If a turn that is not of the session
            has that id, the session chooses another one, and `turn()` returns its turn.
    """

    def __init__(
        self, session: Session[Any], message_id: str, receipt: Receipt, output: Any
    ) -> None:
        self.id = message_id
        self.disposition: Disposition = receipt.disposition
        self.turn_id = receipt.turn_id
        self._session = session
        self._output = output

    def __repr__(self) -> str:
        return f"Sent({self.id!r}, {self.disposition}, turn_id={self.turn_id!r})"

    async def turn(self) -> Turn[T]:
        """Return the turn that reads the message, as soon as it has begun.

        Raises:
            SessionClosedError: The session was closed before, or the message was taken out of the
                queue.
        """
        return (await self._session.turn_of(self.id)).typed(self._output)

    async def result(self) -> AgentReport[T]:
        """Wait for the end of that turn and return its report, as `Turn.result` does."""
        return await (await self.turn()).result()


class Session(Generic[T]):
    """A conversation with an agent, which may go on for weeks.

    Attributes:
        id: The session's id, which is also the id of its workflow.
    """

    def __init__(
        self,
        client: Client,
        task_queue: str,
        marks: Marks,
        session_id: str,
        request: SessionRequest | None,
        turn: Callable[[str], Turn[Any]],
        fairness: str | None = None,
        output: Any = None,
    ) -> None:
        self.id = session_id
        self._output = output
        self._fairness = fairness
        self._client = client
        self._task_queue = task_queue
        self._marks = marks
        self._request = request
        self._turn = turn

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    @overload
    async def say(
        self,
        text: str,
        *,
        id: str | None = None,
        if_busy: IfBusy = "queue",
        by: str | None = None,
        agent: None = None,
    ) -> Sent[T]: ...
    @overload
    async def say(
        self,
        text: str,
        *,
        id: str | None = None,
        if_busy: IfBusy = "queue",
        by: str | None = None,
        agent: str,
    ) -> Sent[Any]: ...
    async def say(
        self,
        text: str,
        *,
        id: str | None = None,
        if_busy: IfBusy = "queue",
        by: str | None = None,
        agent: str | None = None,
    ) -> Sent[Any]:
        """Send a message of the user. The first one begins the session.

        Once this returns, the message is recorded, and a turn reads it, in the order of sending.
        One that is steered goes before those that wait. Needs a worker.

        Args:
            text: The message, at most 256 KiB with those that wait.
            id: The message's id: one line, at most 100 characters. The same id is the same message,
                so a call that was interrupted can be repeated. Without it, a random one.
            if_busy: What happens if a turn runs. `queue`: the next turn reads it, together with
                the others that wait. `steer`: it is sent to the running turn, as by `Turn.steer`;
                if that turn ends without an answer to it, the next one reads it. `interrupt`: the
                running turn is cancelled, and the next one reads it. `reject`: it is refused.
            by: The person or program that sends it: one line, at most 200 characters.
            agent: The agent that answers this message and those after it. Without it, the one that
                answered last: the session's own, or the one that it handed over to. It does not go
                with `steer`. Its answer has the type of the session only if that was given as
                `output`; otherwise it is text or JSON values.

        Raises:
            SessionBusyError: A turn runs and `if_busy` is `reject`, or too many messages wait.
            SessionClosedError: The session is closed.
            SessionNotFoundError: There is no such session, and no agent was given to begin it.
            TurnConflictError: The session belongs to another agent.
            TurnBudgetExceededError: The budget of the session is spent.
            TooLargeError: The message is too large.
            InvalidRequestError: An argument is not valid.
            ServerUnreachableError: No worker accepted it within 30 s; one may still do so later.
        """
        given = {"text": text, "id": id, "if_busy": if_busy, "by": by, "agent": agent}
        validation.check("the message", given, _SAY, errors.InvalidRequestError)
        expects = self._request.agent if self._request else None
        said = Say(text=text, if_busy=if_busy, by=by, agent=agent, expects=expects)
        return await self.deliver(said, id or uuid4().hex)

    async def deliver(self, said: Say, message_id: str) -> Sent[Any]:
        """Send a message that was validated before, such as one of a schedule.

        Raises:
            PerdureError: As `say` does.
        """
        message = pack(said, "the message")
        receipt = await self._say(message, message_id, may_wait=said.if_busy == "reject")
        receipt = await self._after_turns(message_id, receipt)
        return Sent(self, message_id, receipt, self._type_of_answer(said.agent))

    def _type_of_answer(self, agent: str | None) -> Any:
        """Return the type of the answer of a named agent; None if only that agent knows it."""
        own = self._request
        is_held = own is None or own.output_schema is not None or agent in (None, own.agent)
        return self._output if is_held else None

    async def _after_turns(self, message_id: str, receipt: Receipt) -> Receipt:
        """Return the receipt of a message; `started` if it came after the turn that it waits for.

        The session may have taken it in before it was told of the end. It then parks the message if
        that turn was cancelled, as it does with those that were sent before the end.
        """
        try:
            closed = await closed_before(self._client, self.id, message_id, receipt)
        except RPCError:
            return receipt  # the message is accepted
        if closed is None:
            return receipt
        if closed.is_cancelled:
            with contextlib.suppress(errors.SessionClosedError):
                await self.resume()
        return receipt.model_copy(update={"disposition": Disposition.STARTED})

    async def _say(self, message: RawValue, message_id: str, *, may_wait: bool) -> Receipt:
        for _ in range(_BUSY_TRIES):
            try:
                return unpack(await self._ask_or_start(message, message_id), Receipt)
            except errors.SessionBusyError as error:
                # the caller may know the end of a turn before the session does
                turn_id = error.context.get("turn_id")
                if not (may_wait and isinstance(turn_id, str) and await self._is_over(turn_id)):
                    raise
            await asyncio.sleep(_PAUSE_S)
        raise errors.SessionBusyError(f"session {self.id!r} does not learn that its turn is over")

    async def _is_over(self, turn_id: str) -> bool:
        describing = describe(self._client, turn_id, retry=True)
        found = await access.TURN.asked(turn_id, describing)
        return bool(found.workflow_execution_info.HasField("close_time"))

    async def _ask_or_start(self, message: RawValue, message_id: str) -> RawValue:
        try:
            return await self._ask(SAY, message, message_id)
        except errors.SessionNotFoundError:
            if self._request is None:
                raise
        return await self._begin_with(self._request, message, message_id)

    async def _begin_with(
        self, request: SessionRequest, message: RawValue, message_id: str
    ) -> RawValue:
        """Start the session with its first message, unless another caller just did."""
        what = f"the first message of session {self.id!r}"
        given = pack(request, "the input of the session")

        async def begun(attributes: TypedSearchAttributes | None) -> RawValue:
            operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
                SESSION,
                given,
                id=self.id,
                search_attributes=attributes,
                **self._start_options(request),
            )
            return await updates.ask_and_start(
                self._client, operation, SAY, message, what, message_id
            )

        try:
            with access.SESSION.asking(self.id):
                return await self._marks.applied(request, begun)
        except WorkflowAlreadyStartedError:
            raise self._closed() from None

    def _start_options(self, request: SessionRequest) -> dict[str, Any]:
        return {
            "task_queue": self._task_queue,
            "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
            "id_reuse_policy": WorkflowIDReusePolicy.REJECT_DUPLICATE,
            "priority": priority_of(fairness=self._fairness),
            "memo": {MEMO: {"agent": request.agent}},
            "task_timeout": limits.TASK_TIMEOUT,
            "static_summary": f"session with {one_line(request.agent, limits.NAME_CHARACTERS)}",
        }

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
            queue=state.queue,
            turns=state.count,
            spent=state.ledger.spent,
            budget=state.ledger.budget,
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
                if is_now and state.running is None and _state_of(state) != "running":
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
        given, types = {"after": after}, {"after": validation.Text | None}
        validation.check("the events", given, types, errors.InvalidRequestError)
        position = None if after is None else cursors.read(after, "a session")
        run, last = await self._last_run(), 0
        if position is not None:
            await self._check_run(position.run, run)
            run, last = position.run, position.event
        async for event in self._events(run, last):
            yield event

    async def _events(self, run: str, last: int = 0) -> AsyncIterator[SessionEvent]:
        """Yield the events of a run after its event of the number `last`, and of later runs."""
        follower = self._follower(run)
        async with contextlib.aclosing(follower.events()) as reading:
            async for read in reading:
                run, event = follower.runs[read.run], read.event
                if read.run == 0 and event.event_id <= last:
                    continue
                for fact in read.facts:
                    cursor = str(Cursor(run, run, event.event_id))
                    at = event.event_time.ToDatetime(tzinfo=UTC)
                    yield SessionEvent(cursor, at, fact, self.id)

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

    async def interrupt(self, reason: str = "", *, by: str | None = None) -> bool:
        """Cancel the running turn. Messages that wait go on waiting, until the next one comes.

        Args:
            reason: The reason, for people.
            by: The person or program that interrupts it: one line, at most 200 characters.

        Returns:
            Whether there was a turn to cancel.
        """
        cancelling.check(reason, by)
        return await self._done(INTERRUPT, Reason(reason=reason, by=by))

    async def cancel(self, reason: str = "", *, by: str | None = None) -> bool:
        """Cancel the running turn, and close the session: it takes no more messages.

        Messages that no turn has read stay in its queue, as does one that comes before a worker has
        taken the request.

        Args:
            reason: The reason, for people; it is not encrypted.
            by: The person or program that cancels it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked, and not encrypted.

        Returns:
            Whether there was something to cancel: False for a session that is over.

        Raises:
            SessionNotFoundError: Temporal does not have the session.
            InvalidRequestError: The reason is not a string, or `by` is not valid.
        """
        cancelling.check(reason, by)
        info = await self._info()
        return await cancelling.cancel(self._client, access.SESSION, info, reason, by)

    async def unqueue(self, id: str) -> bool:
        """Take a message out of the queue.

        Returns:
            Whether it was there: False for one that a turn has been given.
        """
        return await self._done(UNQUEUE, Unqueue(id=id))

    async def resume(self, *, by: str | None = None) -> bool:
        """Let the next turn read the messages that wait, after a turn was cancelled.

        Args:
            by: The person or program that resumes it: one line, at most 200 characters.

        Returns:
            Whether there were any.
        """
        validation.check_by("the resume", by)
        return await self._done(RESUME, Resume(by=by))

    async def add_budget(self, more: Budget, *, by: str | None = None) -> None:
        """Add to the budget of the session. Messages that wait for that are read.

        Args:
            more: The amounts to add to its limits.
            by: The person or program that adds it: one line, at most 200 characters.

        Raises:
            InvalidRequestError: The session has no such limit, or `more` or `by` is not valid.
        """
        validation.check(
            "what is added", {"more": more}, {"more": ABudget}, errors.InvalidRequestError
        )
        validation.check_by("what is added", by)
        await self._done(ADD_BUDGET, BudgetUpdate(**dict(more), by=by))

    async def close(self, reason: str = "", *, by: str | None = None) -> tuple[Queued, ...]:
        """Close the session: it takes no more messages. A running turn goes on to its end.

        Args:
            reason: The reason, for people.
            by: The person or program that closes it: one line, at most 200 characters.

        Returns:
            The messages that no turn has read.
        """
        cancelling.check(reason, by)
        return unpack(await self._ask(CLOSE, pack(Reason(reason=reason, by=by))), Left).unread

    async def fork(
        self,
        at_turn: int | None = None,
        *,
        id: str,
    ) -> Session[T]:
        """Start another session with the messages of this one, which is not changed.

        It has the same agent and options, and a budget of its own.

        Args:
            at_turn: The number of the last turn whose messages are taken over; None for all.
            id: The new session's id; the same id is the same session.

        Raises:
            InvalidRequestError: The session has no such turn that is over, or no longer has its
                messages.
            SessionNotFoundError: Temporal does not have the session, or no longer has it.
        """
        given = {"at_turn": at_turn, "id": id}
        validation.check("the fork", given, _FORK, errors.InvalidRequestError)
        state = await self._current()
        request = state.request or SessionRequest(agent="")
        snapshot = _until(state, at_turn, request)
        started = await access.start(
            self._client,
            access.SESSION,
            SESSION,
            pack(snapshot, "the input of the session"),
            id=access.SESSION.new_id(id),
            marks=(self._marks, request),
            **self._start_options(request),
        )
        if started is None:
            raise self._closed()
        return Session(
            self._client,
            self._task_queue,
            self._marks,
            id,
            request,
            self._turn,
            self._fairness,
            self._output,
        )

    async def find(self, message_id: str) -> MessageStatus | None:
        """Return the status of a message; None for one that the session does not know.

        It knows those of its last 50 turns, and those that wait. Needs no worker.

        Raises:
            SessionNotFoundError: Temporal does not have the session, or no longer has it.
        """
        state = await self._state()
        for turn in reversed(state.turns):
            if message_id in turn.messages:
                return MessageStatus(id=message_id, turn_id=turn.turn_id)
        if state.running is not None and message_id in {one.id for one in state.given}:
            return MessageStatus(id=message_id, turn_id=state.running.turn_id)
        is_queued = message_id in {one.id for one in state.queue}
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
            given = {one.id for one in state.given}
            if state.running is not None and message_id in given:
                begun = await self.begun(state.running.turn_id)
                if begun is not None:
                    return begun
        raise errors.SessionClosedError(
            f"session {self.id!r} was closed before a turn read the message {message_id!r}"
        )

    async def begun(self, turn_id: str) -> Turn[Any] | None:
        """Return the turn of a `TurnBegan`, as soon as it exists.

        Returns:
            The turn; None if a turn that is not of this session has the id. The session then starts
            its turn with another one.

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

    async def _done(self, update: str, given: Any) -> bool:
        return unpack(await self._ask(update, pack(given)), Done).done

    async def _ask(self, update: str, given: RawValue, update_id: str | None = None) -> RawValue:
        """Send an update.

        Raises:
            PerdureError: The session refused it, there is no such session, or it is closed.
        """
        if update != SAY:  # a turn has updates of the same names; only sessions take messages
            await self._last_run()
        try:
            return await updates.ask(
                self._client, access.SESSION, [""], self.id, update, given, update_id
            )
        except errors.TurnOverError:
            await self._last_run()  # a message to what is no session, which is over
            raise self._closed() from None
        except errors.PerdureError as error:
            if type(error) is errors.PerdureError:  # no such update
                await self._last_run()
            raise

    async def _current(self) -> SessionState:
        """Return the state, with the end of a turn that the session has not recorded yet."""
        state = await self._state()
        return await access.SESSION.asked(self.id, with_end(self._client, self.id, state))

    async def _state(self, run_id: str = "") -> SessionState:
        """Return the state of a run; by default, of the last one."""
        run_id = run_id or await self._last_run()
        return await access.SESSION.asked(self.id, read_session(self._client, self.id, run_id))

    async def _last_run(self) -> str:
        return (await self._info()).execution.run_id

    async def _info(self) -> WorkflowExecutionInfo:
        """Return the latest workflow of the session.

        Raises:
            SessionNotFoundError: There is none, or it is no session.
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


def session_request(agent: Agent[Any] | str, **given: Any) -> SessionRequest:
    """Return the input of a session.

    Raises:
        InvalidRequestError: An option is not valid.
        ConfigurationError: The output type cannot be enforced on a model.
    """
    if given.get("output") is not None:
        given["output_schema"] = output_type.schema_of(given["output"])
    given.pop("output", None)
    name = agent.name if isinstance(agent, Agent) else agent
    idle, time = {"idle": given.get("idle")}, {"idle": validation.Time | None}
    validation.check("the session", idle, time, errors.InvalidRequestError)
    try:
        request = SessionRequest.model_validate({"agent": name, **given})
    except ValidationError as error:
        raise errors.InvalidRequestError(
            f"the session cannot be started: "
            f"{validation.in_words(error, SessionRequest.model_fields)}"
        ) from None
    if request.budget is not None and request.budget.time is not None:
        raise errors.InvalidRequestError(
            "the budget of a session has no time: give it to the agent, for each turn"
        )
    return request


def _state_of(state: SessionState) -> State:
    if state.closed is not None:
        return "closed"
    return "running" if state.running is not None or state.may_start else "idle"


def _turns_of(state: SessionState) -> tuple[SessionTurn, ...]:
    """Return the last turns that are over and the running one, with the messages that it has."""
    if state.running is None:
        return state.turns
    given = tuple(one.id for one in state.given)
    return (*state.turns, state.running.model_copy(update={"messages": given}))


def _until(state: SessionState, at_turn: int | None, request: SessionRequest) -> SessionSnapshot:
    """Return the input of a fork with the messages up to a turn.

    Raises:
        InvalidRequestError: There is no such turn, or its messages are left out.
    """
    known = len(state.starts)
    last = state.dropped + known
    number = last if at_turn is None else at_turn
    if not state.dropped <= number <= last:
        raise errors.InvalidRequestError(
            f"the session has the messages of its turns {state.dropped + 1} to {last} that are"
            f" over, and not up to turn {number}",
            context={"at_turn": number, "last": last},
        )
    kept = number - state.dropped
    end = state.starts[kept] if kept < known else len(state.messages)
    return SessionSnapshot(
        session=request,
        count=0,
        agent=state.agent,
        named=state.named,
        messages=state.messages[:end],
        starts=state.starts[:kept],
        ledger=Ledger(request.budget),
    )
