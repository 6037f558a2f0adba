"""A session: a workflow without a model, whose turns are its children, one at a time.

Its state is the fold of its facts (`perdure.session.state`). It waits for messages, starts a turn
with those that came, and records the messages of each turn in its own history, which the next turn
begins with. When no turn runs, it may continue in a new run of its workflow.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import (
    ApplicationError,
    ChildWorkflowError,
)

from perdure import errors, limits, validation
from perdure.errors import PerdureError
from perdure.session import reminders
from perdure.session.facts import (
    MessageSteered,
    MessageUnqueued,
    ReminderForgotten,
    SessionBudgetAdded,
    SessionClosed,
    SessionContinued,
    SessionResumed,
    SteeringFailed,
    TurnInterrupted,
    TurnOver,
)
from perdure.session.state import SessionState
from perdure.session.wire import (
    Disposition,
    ForgetReminder,
    Left,
    Receipt,
    Say,
    SessionReason,
    Unqueue,
    UpdateResult,
)
from perdure.temporal import failures, outcomes
from perdure.temporal.histories import session_history
from perdure.temporal.names import (
    ADD_BUDGET,
    CLOSE,
    FORGET_REMINDER,
    INTERRUPT,
    MOVE_ON,
    REMIND,
    RESUME,
    SAY,
    SESSION,
    STEER,
    UNQUEUE,
)
from perdure.temporal.payloads import NOTHING, pack, unpack
from perdure.turn.wire import Steer
from perdure.values.budgets import BudgetUpdate
from perdure.values.content import check_message
from perdure.workflows import child_handles, child_starts, moving, storage
from perdure.workflows.ends import has_ended
from perdure.workflows.session import beginning, checks, next_run, patches, recording
from perdure.workflows.session.details import card
from perdure.workflows.session.notes import Notes
from perdure.workflows.session.reminders import Reminders
from perdure.workflows.session.starting import Handle, start_turn
from perdure.workflows.update_answers import UpdateAnswers, update_id


@workflow.defn(name=SESSION, sandboxed=False, failure_exception_types=[PerdureError])
class AgentSession:
    """The workflow of a session. It is not sandboxed, for the reasons of `AgentTurn`."""

    @workflow.init
    def __init__(self, start: RawValue = NOTHING) -> None:
        self._start = beginning.read(start)
        self._is_continued = isinstance(self._start, SessionContinued)
        self._notes = Notes()
        self._turn: Handle | None = None
        self._steering = 0
        self._update_answers = UpdateAnswers(self._look)
        self._early = 0
        self._is_stopped = False
        self._turns_of_run = 0
        self._moves_on = self._is_known_full = False
        self._idle_since: datetime | None = None
        self._answered: dict[str, Receipt] = {}
        self._reminders = Reminders(self._notes)

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> RawValue:
        """Run the session until it is closed, idle for too long, or cancelled."""
        child_starts.ignore_unawaited()
        self._begin()
        if not (self._early or self._state.queue or self._is_continued):
            workflow.patched(patches.MARKS_FIRST_TASK)
        if self._early and self._state.may_start and workflow.patched(patches.EARLY_FIRST):
            await workflow.wait_condition(lambda: not self._early)
        try:
            while not self._is_closed:
                self._moves_on = moving.is_due()
                if self._state.may_start and not self._goes_on_first:
                    await self._run_turn()
                elif self._is_full:
                    await self._continue()
                elif not await self._until_there_is_work():
                    break
        except asyncio.CancelledError:
            self._reminders.stop()
            reason = workflow.cancellation_reason() or ""
            self._notes.note(session_history.cancelled(reason))
            await self._stop_turn(reason or "the session was cancelled")
            await self._answer_updates()
            raise
        await workflow.wait_condition(workflow.all_handlers_finished)
        return pack(self._left)

    @property
    def details(self) -> str:
        """The details in Temporal's web UI."""
        return card(self._state)

    @property
    def _left(self) -> Left:
        return Left(unread=tuple(queued.brief for queued in self._state.queue))

    def _begin(self) -> None:
        """Note the input of the run, unless an update has done so."""
        if self._state.request is not None:
            return
        with failures.typed():
            fact = beginning.noted(self._notes, self._start)
        if isinstance(fact, SessionContinued):
            self._answered = {answered.id: answered.receipt for answered in fact.snapshot.answered}
            self._idle_since = fact.snapshot.idle_since
        self._reminders.resume()

    @property
    def _state(self) -> SessionState:
        return self._notes.state

    @property
    def _has_results_due(self) -> bool:
        """Whether the session is about to know what has become of messages that it has given."""
        return self._steering > 0 or self._state.is_over

    @property
    def _is_starting(self) -> bool:
        """Whether a turn is being started, which Temporal may refuse."""
        return self._state.is_busy and self._turn is None

    @property
    def _is_closed(self) -> bool:
        return self._state.closed is not None

    @property
    def _is_full(self) -> bool:
        """Whether the session has to go on in a new run, which can take over its state."""
        if not (self._moves_on or next_run.is_due(self._turns_of_run)):
            return False
        return self._state.running is not None or self._next_input is not None

    def _look(self) -> None:
        """See whether the run is full: not while an update is checked, which a replay may lack."""
        self._is_known_full = self._state.request is not None and self._is_full

    @property
    def _next_input(self) -> RawValue | None:
        return next_run.input_of(self._state, self._answered, self._idle_since)

    @property
    def _goes_on_first(self) -> bool:
        """Whether messages that wait are left to the next run, once this one has had a turn.

        A run that moves on has none. A session of an earlier release never left any.
        """
        if self._moves_on:
            return self._is_full
        return self._turns_of_run > 0 and self._is_full and workflow.patched(patches.CONTINUE_FIRST)

    async def _until_there_is_work(self) -> bool:
        """Wait for a message, or for the end. Returns False when the session was idle too long."""
        assert self._state.request is not None
        idle, open_reminders = self._state.request.idle, self._state.reminders
        now = workflow.now()
        self._idle_since = self._idle_since or now
        self._look()
        if idle is not None:  # less what the run before has waited
            idle = max(idle - (now - self._idle_since), timedelta())
        try:
            await workflow.wait_condition(
                lambda: (
                    self._state.may_start
                    or self._is_closed
                    or self._is_known_full
                    or self._state.reminders != open_reminders
                ),
                timeout=None if self._state.queue or open_reminders else idle,
                timeout_summary="the session is closed if no message comes",
            )
        except TimeoutError:
            return bool(self._state.queue or self._state.reminders)
        if not self._moves_on:  # the next run goes on waiting
            self._idle_since = None
        return True

    async def _continue(self) -> None:
        """Go on in a new run, once every update has its answer."""
        await self._update_answers.before_next_run(moves=self._moves_on)
        if self._is_closed:
            return  # meanwhile; the session ends
        if (given := self._next_input) is not None:  # no large message has come meanwhile
            workflow.continue_as_new(given, **moving.options())

    async def _run_turn(self) -> None:
        """Run a turn to its end, and record its messages."""
        number = self._state.count + 1
        self._turns_of_run += 1
        self._idle_since = None
        self._turn = await start_turn(self._notes, number)
        if self._turn is None:
            return
        with contextlib.suppress(ChildWorkflowError):
            await asyncio.shield(self._turn)
        self._notes.note_end(TurnOver(number))
        await workflow.wait_condition(lambda: not self._steering)
        await recording.record(self._notes, number, self._turn.first_execution_run_id or "")
        self._turn = None

    async def _stop_turn(self, reason: str) -> None:
        """Cancel the running turn, and wait for its end."""
        turn = self._turn
        if turn is None or await has_ended(turn):
            return
        child_handles.cancel(turn, reason)
        with contextlib.suppress(ChildWorkflowError):
            await workflow.wait([turn])

    async def _answer_updates(self) -> None:
        """Answer the updates that wait for what a cancelled session does not do any more."""
        if not workflow.all_handlers_finished() and workflow.patched(patches.ANSWERS_AT_CANCEL):
            self._is_stopped = True
            await workflow.wait_condition(workflow.all_handlers_finished)

    async def _until_started(self) -> None:
        """Wait until the turn begins that is being started: a second attempt has all messages."""
        await workflow.wait_condition(lambda: not self._is_starting or self._is_stopped)

    async def _until_begun(self) -> None:
        """Give the run its input: the SDK runs its first handlers before `run`.

        The first task of a fork, or of a run that continues another one, may do nothing. Then the
        SDK does it once more together with the next task, or apart from it in a replay
        (temporalio/sdk-rust#1146), so that no handler waits for `run` there.
        """
        if self._is_continued and workflow.patched(patches.BEGUN_BY_UPDATES):
            self._begin()
        elif self._state.request is None:
            self._early += 1
            await workflow.wait_condition(lambda: self._state.request is not None)
            self._early -= 1

    @contextlib.asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """Handle an update once the run has its input, and before it ends."""
        await self._until_begun()
        with self._update_answers.answering():
            yield

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        """Refuse an update to a session that is closed, or for any reason that is raised."""
        self._update_answers.check_open()
        with failures.typed():
            if self._is_closed:
                raise checks.closed_error(self._state)
            yield

    @workflow.signal(name=MOVE_ON)
    def move_on(self, payload: RawValue = NOTHING) -> None:
        """See whether another version of the workers goes on with the session, while it waits."""
        self._moves_on = moving.is_due()
        self._look()

    # --- messages

    @workflow.update(name=SAY)
    async def say(self, payload: RawValue = NOTHING) -> RawValue:
        """Take in a message."""
        async with self._answering():
            if update_id() in self._answered:
                return pack(self._answered[update_id()])
            message = session_history.sent(update_id(), payload)
            was_busy = self._state.is_busy
            self._notes.note(message)
            receipt = await self._dispose(message.id, message.if_busy, was_busy=was_busy)
            self._answered[message.id] = receipt
            return pack(receipt)

    async def _dispose(self, message_id: str, if_busy: str, *, was_busy: bool) -> Receipt:
        """Do what the sender wants in case that a turn runs. The message is in the queue."""
        following = f"{workflow.info().workflow_id}/{self._state.count + 1}"
        if not was_busy:
            return Receipt(disposition=Disposition.STARTED, turn_id=following)
        await workflow.wait_condition(
            lambda: self._turn is not None or not self._state.is_busy or self._is_stopped
        )
        if self._is_stopped:
            with failures.typed():
                raise checks.closed_error(self._state)
        turn = self._turn if self._state.is_busy else None
        if turn is not None and if_busy == "steer" and await self._steer(message_id):
            return Receipt(disposition=Disposition.STEERED, turn_id=turn.id)
        if turn is not None and if_busy == "interrupt":
            child_handles.cancel(turn, "a new message of the user")
            return Receipt(disposition=Disposition.INTERRUPTING, turn_id=following)
        return Receipt(disposition=Disposition.QUEUED, turn_id=following)

    async def _steer(self, message_id: str) -> bool:
        """Send a message that waits on to the running turn; returns False if either is gone."""
        assert self._turn is not None
        if (message := next((m for m in self._state.queue if m.id == message_id), None)) is None:
            return False  # it was taken back while the turn began
        text = "" if message.parts else message.text
        steer = Steer(text=text, by=message.by, id=message.id, parts=message.parts)
        self._notes.note(MessageSteered(message_id))
        self._steering += 1
        try:
            # larger than a payload only if the message is, which external storage then holds
            payload = pack(steer, most_bytes=limits.STORED_BYTES)
            await child_handles.signal(self._turn, STEER, payload)
        except ApplicationError:
            self._notes.note_result(SteeringFailed(message_id))
            return False
        finally:
            self._steering -= 1
        return True

    @say.validator
    def check_message(self, payload: RawValue = NOTHING) -> None:
        """Refuse a message that is not valid or does not fit, or that comes too late."""
        self._update_answers.check_open()
        if update_id() in self._answered:
            return
        with self._checked():
            message = session_history.sent(update_id(), payload)
            check_message({"id": message.id, "text": message.text, "by": message.by}, message.parts)
            wish = unpack(payload, Say)
            checks.check_agent(self._state, wish.expects)
            wish.check()
            self._state.check_room(message, storage.most_unread_bytes())
            checks.check_may_come(self._state, message)

    @workflow.update(name=UNQUEUE)
    async def unqueue(self, payload: RawValue = NOTHING) -> RawValue:
        """Take a message out of the queue."""
        async with self._answering():
            message_id = unpack(payload, Unqueue).id
            waits = any(queued.id == message_id for queued in self._state.queue)
            self._notes.note(MessageUnqueued(message_id))
            is_given = any(queued.id == message_id for queued in self._state.given)
            if is_given and self._is_starting and workflow.patched(patches.REFUSED_FIRST):
                await self._until_started()
                waits = self._state.is_taken_back(message_id)
            elif is_given and self._has_results_due and workflow.patched(patches.RESULTS_FIRST):
                await workflow.wait_condition(lambda: not self._has_results_due or self._is_stopped)
                waits = self._state.is_taken_back(message_id)
            return pack(UpdateResult(done=waits))

    @unqueue.validator
    def check_unqueue(self, payload: RawValue = NOTHING) -> None:
        """Refuse an invalid input."""
        with self._checked():
            unpack(payload, Unqueue)

    @workflow.update(name=REMIND)
    async def remind(self, payload: RawValue = NOTHING) -> RawValue:
        """Send a message to the session itself later."""
        async with self._answering():
            self._reminders.set(session_history.reminder_set(update_id(), payload))
            return pack(UpdateResult(done=True))

    @remind.validator
    def check_reminder(self, payload: RawValue = NOTHING) -> None:
        """Refuse a reminder that is not valid or does not fit."""
        with self._checked():
            fact = session_history.reminder_set(update_id(), payload)
            reminders.check(self._state.reminders, fact.reminder, workflow.now())

    @workflow.update(name=FORGET_REMINDER)
    async def forget_reminder(self, payload: RawValue = NOTHING) -> RawValue:
        """Give a reminder up that is not due yet."""
        async with self._answering():
            forgotten = unpack(payload, ForgetReminder)
            fact = ReminderForgotten(forgotten.id, forgotten.by)
            return pack(UpdateResult(done=self._reminders.forget(fact)))

    @forget_reminder.validator
    def check_forgotten(self, payload: RawValue = NOTHING) -> None:
        """Refuse an invalid input."""
        with self._checked():
            validation.check_by("who asks", unpack(payload, ForgetReminder).by)

    @workflow.update(name=INTERRUPT)
    async def interrupt(self, payload: RawValue = NOTHING) -> RawValue:
        """Cancel the running turn. The messages of the queue wait for the next turn."""
        async with self._answering():
            asked = unpack(payload, SessionReason)
            is_running = self._turn is not None and self._state.is_busy
            self._notes.note(TurnInterrupted(asked.reason, asked.by))
            if is_running and self._turn is not None:
                child_handles.cancel(self._turn, asked.reason or "interrupted")
            return pack(UpdateResult(done=is_running))

    @interrupt.validator
    def check_interrupt(self, payload: RawValue = NOTHING) -> None:
        """Refuse an invalid input."""
        with self._checked():
            validation.check_by("the interruption", unpack(payload, SessionReason).by)

    @workflow.update(name=RESUME)
    async def resume(self, payload: RawValue = NOTHING) -> RawValue:
        """Give the messages of the queue to a turn, although none has come since."""
        async with self._answering():
            is_held = self._state.is_parked or self._turn is not None
            waits = bool(self._state.queue) and is_held
            self._notes.note(SessionResumed(outcomes.resumed(payload).by))
            return pack(UpdateResult(done=waits))

    @resume.validator
    def check_resume(self, payload: RawValue = NOTHING) -> None:
        """Refuse the update if the run is about to end, or if it has no valid name."""
        self._update_answers.check_open()
        with failures.typed():
            validation.check_by("the resume", outcomes.resumed(payload).by)

    @workflow.update(name=ADD_BUDGET)
    async def add_budget(self, payload: RawValue = NOTHING) -> RawValue:
        """Add to the budget of the session."""
        async with self._answering():
            added = outcomes.added(payload)
            assert added.more is not None
            self._notes.note(SessionBudgetAdded(added.more, added.by))
            return pack(UpdateResult(done=True))

    @add_budget.validator
    def check_budget(self, payload: RawValue = NOTHING) -> None:
        """Refuse an addition that is not valid."""
        with self._checked():
            update = unpack(payload, BudgetUpdate)
            if update.budget is None or update.iterations is not None:
                raise errors.InvalidRequestError("a session has no limit of iterations")
            validation.check_by("what is added", update.by)
            if self._state.request is not None:
                self._state.ledger.add(update.budget)

    @workflow.update(name=CLOSE)
    async def close(self, payload: RawValue = NOTHING) -> RawValue:
        """Take no more messages. A running turn continues to its end.

        What a turn that is over has left unread is in the queue once the turn is recorded.
        """
        async with self._answering():
            asked = unpack(payload, SessionReason)
            self._notes.note(SessionClosed(asked.reason, asked.by))
            if self._is_starting and workflow.patched(patches.REFUSED_FIRST):
                await self._until_started()
            turn = self._turn
            if turn is not None and await has_ended(turn) and workflow.patched(patches.CLOSE_LAST):
                await workflow.wait_condition(lambda: self._turn is not turn or self._is_stopped)
            return pack(self._left)

    @close.validator
    def check_close(self, payload: RawValue = NOTHING) -> None:
        """Refuse an invalid input."""
        with self._checked():
            validation.check_by("the close", unpack(payload, SessionReason).by)
