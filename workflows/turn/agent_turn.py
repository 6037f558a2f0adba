"""The workflow of an agent turn: how the turn begins, what callers may tell it, and how it ends.

What it does in between is in `loop`. The workflow's state is only the fold of its facts: every fact
goes through `fold.apply`, just as for readers of the history.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from temporalio import workflow
from temporalio.common import RawValue

from perdure import errors, validation
from perdure.errors import PerdureError
from perdure.temporal import failures, outcomes
from perdure.temporal.names import (
    ADD_BUDGET,
    CHILD_NEWS,
    DECIDE,
    EMIT,
    FINISH_CALL,
    FOLLOW,
    MOVE_ON,
    RESUME,
    STEER,
    TURN,
)
from perdure.temporal.payloads import NOTHING, pack, unpack
from perdure.text import described
from perdure.turn import additions, call_waits, gates, jobs
from perdure.turn.circuit_breaker import Health
from perdure.turn.facts import (
    BudgetAdded,
    CallFinished,
    CancelRequested,
    Decided,
    Emitted,
    Resumed,
    Said,
    TurnContinued,
    TurnStarted,
)
from perdure.turn.job_values import FinishCall
from perdure.turn.wire import Summary
from perdure.values.approvals import Decision
from perdure.values.reports import Outcome
from perdure.workflows import ancestors, schedule_total, storage
from perdure.workflows.turn import log_events, waits
from perdure.workflows.turn.calls import Calls
from perdure.workflows.turn.children import Children
from perdure.workflows.turn.followers import Followers
from perdure.workflows.turn.later_release import NeedsLaterReleaseError
from perdure.workflows.turn.loop import TurnLoop
from perdure.workflows.turn.middleware import Pipeline
from perdure.workflows.turn.moves import Moves
from perdure.workflows.turn.runs import Runs, started
from perdure.workflows.turn.turn_context import Board
from perdure.workflows.turn.undoing import Undoing
from perdure.workflows.turn.webhooks import OnDone
from perdure.workflows.update_answers import update_id

_REFUSES_WAITING = "refuse-waiting-updates"
"""The patch id of turns that answer the updates that still wait when they end without an answer."""
_CANCELLED_LATE = "cancelled-while-it-fails"
"""The patch id of turns that record their end if they are cancelled while they fail."""
_NOTED = "notes-early-additions"
"""The patch id of delegates and turns of batches that note what is added before they begin."""

_OUTCOMES = {
    errors.TurnBudgetExceededError: Outcome.BUDGET_EXHAUSTED,
    errors.MaxIterationsError: Outcome.MAX_ITERATIONS,
    errors.LoopDetectedError: Outcome.LOOP,
    errors.AutonomyBoundaryError: Outcome.BOUNDARY,
    errors.TurnTimeoutError: Outcome.TIMED_OUT,
}


@workflow.defn(name=TURN, sandboxed=False, failure_exception_types=[PerdureError])
class AgentTurn:
    """The workflow of a turn.

    It is not sandboxed: it contains no user code, and replay tests guard it (docs/decisions/0002).
    """

    def __init__(self) -> None:
        self._board = Board()
        self._calls = Calls(self._board)
        self._pipeline = Pipeline(self._board, self._calls)
        self._children = Children(self._board)
        self._moves = Moves(self._board, self._calls, self._pipeline, self._children)
        self._has_begun = False
        self._waiting_updates = 0
        self._refuses_updates = False
        self._runs = Runs(self._board)
        self._on_done = OnDone()
        self._undoing = Undoing()
        self._followers = Followers(self._board)
        self._loop = TurnLoop(
            self._board,
            self._calls,
            self._pipeline,
            self._moves,
            self._runs,
            self._followers,
            on_start=self._log_start,
        )

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> RawValue:
        """Run the turn. The input is validated here, so an invalid input causes a typed error."""
        try:
            fact = self._open(start)
            agent, done = await self._loop.run(fact)
            await self._moves.stop_jobs()
            await self._pipeline.observe(agent, outcome=done.outcome, risk=done.risk)
            await schedule_total.settle(self._board.state, done.outcome)
            await self._on_done.begin(self._board.state)
            await self._undoing.begin(self._board.state, done.outcome)
            await self._followers.tell_end()
            summary = self._board.summary(done.outcome, done.output, done.risk)
        except asyncio.CancelledError:
            return await self._cancelled_end()
        except NeedsLaterReleaseError:
            raise
        except PerdureError as error:
            return await self._failed(error, error)
        except Exception as error:  # noqa: BLE001 - a bug must not fail the workflow task for ever
            workflow.logger.exception("the turn failed unexpectedly")
            return await self._failed(PerdureError(described(error)), error)
        self._close(summary)
        return pack(summary)

    @property
    def details(self) -> str:
        """The details in Temporal's web UI."""
        return self._board.details

    async def _failed(self, error: PerdureError, cause: Exception) -> RawValue:
        """End with an error; a cancel that comes before the end is the end instead.

        Raises:
            ApplicationError: The turn has failed.
        """
        try:
            failure = await self._failure(error)
        except asyncio.CancelledError:
            if not workflow.patched(_CANCELLED_LATE):
                raise
            return await self._cancelled_end()
        raise failure from cause

    async def _cancelled_end(self) -> RawValue:
        """End a turn that is cancelled.

        Raises:
            CancelledError: It is not a delegate, or a turn of a batch.
        """
        summary = await self._cancelled(workflow.cancellation_reason() or "")
        if workflow.info().parent is None:
            raise asyncio.CancelledError
        return pack(summary)  # the only thing that a parent receives of a cancelled child

    def _open(self, start: RawValue) -> TurnStarted | TurnContinued:
        """Return the input of the run after validation.

        Raises:
            PerdureError: It is not valid.
        """
        fact = started(start)
        self._board.note(fact)
        match fact:
            case TurnStarted(request):
                request.check()
                schedule_total.check(request)
                ancestors.check(request.lineage)
                if request.lineage is None:  # a delegate has the deadline of the turn above it
                    request.check_moments(self._board.clock.began)
            case TurnContinued(continuation):
                ancestors.check_continued("the input")
                self._has_begun = True
                self._moves.health = Health(continuation.health)
                self._runs.resume(continuation, self._pipeline)
                self._followers.resume((*self._followers.ids, *continuation.followers))
        return fact

    @workflow.update(name=ADD_BUDGET, unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def add_budget(self, payload: RawValue = NOTHING) -> RawValue:
        """Raise the budget; a turn that waits for that continues.

        If the turn does not know its limits yet, the update returns once it does.
        """
        await self._until_begun()
        with self._runs.update() as is_new:
            if is_new:
                return await self._add_budget(outcomes.added(payload))
            await self._until_taken_over()
            return self._remaining()

    async def _until_begun(self) -> None:
        """Wait until the run has its input.

        The SDK runs the handlers of the first workflow task before `run`. Readers of the history
        have the input first.
        """
        await self._until(lambda: self._board.state.request is not None)

    @property
    def _is_taking_over(self) -> bool:
        """Whether the run does not have the state of the run before yet."""
        state = self._board.state
        is_later = workflow.info().continued_run_id is not None
        return state.awaits_parts or (state.request is None and is_later)

    async def _until_taken_over(self) -> None:
        """Wait until this run has the state of the run before."""
        await self._until(lambda: not self._board.state.awaits_parts)

    async def _until(self, has_come: Callable[[], bool]) -> None:
        """Wait until the run has what a handler needs.

        Raises:
            ApplicationError: The turn ends without it, so the current update takes no effect.
        """
        if has_come():
            return
        is_update = workflow.current_update_info() is not None
        self._waiting_updates += is_update
        await workflow.wait_condition(lambda: has_come() or (is_update and self._refuses_updates))
        self._waiting_updates -= is_update
        if not has_come():
            with failures.typed():
                raise errors.TurnOverError("the turn is over, so this takes no effect")

    async def _refuse_waiting_updates(self) -> None:
        """Answer the updates that wait for what the turn never got, because it is about to end."""
        if self._waiting_updates and workflow.patched(_REFUSES_WAITING):
            self._refuses_updates = True
            await workflow.wait_condition(lambda: not self._waiting_updates)

    async def _add_budget(self, added: BudgetAdded) -> RawValue:
        is_root = workflow.info().parent is None
        if is_root:
            self._board.note(added)
        if self._board.state.agent is None:
            await workflow.wait_condition(
                lambda: self._board.state.agent is not None or self._board.state.is_delayed
            )
            with failures.typed():
                try:
                    additions.check(self._board.state, added)
                except errors.InvalidRequestError:
                    if not is_root and self._board.state.agent is None and workflow.patched(_NOTED):
                        self._board.note(added)  # as readers do: its agent may have such a limit
                    raise
        if not is_root:
            if added.more:  # those above first: at no moment is more leased than there is
                await ancestors.tell_added(self._board.state, added.more)
            self._board.note(added)
        return self._remaining()

    def _remaining(self) -> RawValue:
        state = self._board.state.foreseen if self._board.state.is_delayed else self._board.state
        remaining = self._board.remaining_of(state)
        return pack(remaining.model_copy(update={"iterations": state.iterations_left}))

    @add_budget.validator
    def check_added(self, payload: RawValue = NOTHING) -> None:
        """Reject an invalid addition before it is recorded in history."""
        self._runs.answers.check_open()
        if self._runs.has_answered():
            return
        with failures.typed():
            added = outcomes.added(payload)
            validation.check_by("what is added", added.by)
            if self._board.state.agent is not None or self._board.state.is_delayed:
                additions.check(self._board.state.foreseen, added)

    @workflow.update(name=RESUME)
    async def resume(self, payload: RawValue = NOTHING) -> None:
        """Retry the model now."""
        await self._until_begun()
        with self._runs.update() as is_new:
            if is_new:
                fact = outcomes.resumed(payload)
                await self._note(fact)
                if self._was_refused(fact):
                    self._refuse_to_resume()

    @resume.validator
    def check_resumed(self, payload: RawValue = NOTHING) -> None:
        """Reject the update if the turn does not wait for a provider or for `resume`."""
        self._runs.answers.check_open()
        if self._runs.has_answered():
            return
        with failures.typed():
            validation.check_by("the resume", outcomes.resumed(payload).by)
        if not self._is_taking_over and not self._board.state.can_be_resumed:
            self._refuse_to_resume()

    def _refuse_to_resume(self) -> None:
        waiting = self._board.state.waiting
        doing = f"it waits for {waiting.kind}" if waiting and waiting.is_told else "it is running"
        with failures.typed():
            raise errors.InvalidRequestError(
                f"the turn does not wait for a provider, so it cannot be resumed: {doing}"
            )

    @workflow.update(name=STEER)
    async def steer(self, payload: RawValue = NOTHING) -> None:
        """Take in a message of the user, which the model reads with its next call."""
        await self._until_begun()
        with self._runs.update() as is_new:
            if is_new:
                await self._say(outcomes.said(update_id(), payload))

    @workflow.signal(name=STEER, unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def take_message(self, payload: RawValue = NOTHING) -> None:
        """Take in a message that the session of the turn has accepted."""
        self._runs.take_signal()
        await self._until_begun()
        if (message := outcomes.said_in_signal([payload])) is not None:
            await self._say(message)

    async def _say(self, message: Said) -> None:
        before = self._board.state
        await self._note(message)
        if before.awaits_parts:
            return
        log_events.answered_without_a_run(before, self._board.state)
        if message.now:
            await self._calls.interrupt()

    @steer.validator
    def check_message(self, payload: RawValue = NOTHING) -> None:
        """Reject a message that is not valid, does not fit, or comes too late."""
        self._runs.answers.check_open()
        if self._runs.has_answered():
            return
        with failures.typed():
            message = outcomes.said(update_id(), payload)
            self._board.state.inbox.check(message, storage.most_unread_bytes())
            self._loop.check_goes_on()

    @workflow.update(name=EMIT)
    async def emit(self, payload: RawValue = NOTHING) -> None:
        """Take in an event, which a call waits for or will wait for."""
        await self._until_begun()
        with self._runs.update() as is_new:
            if is_new:
                await self._note(outcomes.emitted(update_id(), payload))

    @workflow.signal(name=EMIT, unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def take_event(self, payload: RawValue = NOTHING) -> None:
        """Take in an event by key, from the workflow that keeps it."""
        self._runs.take_signal()
        await self._until_begun()
        if (event := outcomes.emitted_in_signal([payload])) is not None:
            await self._note(event)

    @emit.validator
    def check_event(self, payload: RawValue = NOTHING) -> None:
        """Reject an event that is not valid, does not fit, or comes too late."""
        self._runs.answers.check_open()
        if self._runs.has_answered():
            return
        with failures.typed():
            emitted = outcomes.emitted(update_id(), payload)
            call_waits.check_event(self._board.state, emitted.event, emitted.by)
            self._loop.check_goes_on()

    @workflow.update(name=FINISH_CALL)
    async def finish_call(self, payload: RawValue = NOTHING) -> None:
        """Take in the result of a call, by its token."""
        await self._until_begun()
        with self._runs.update() as is_new:
            if is_new:
                fact = outcomes.call_finished(payload)
                await self._note(fact)
                if self._was_refused(fact):
                    with failures.typed():
                        raise jobs.too_late(self._board.state, fact.key)

    @finish_call.validator
    def check_finished(self, payload: RawValue = NOTHING) -> None:
        """Reject a result that nobody waits for, or that is not proven to be that of the call."""
        self._runs.answers.check_open()
        if self._runs.has_answered():
            return
        with failures.typed():
            finish = unpack(payload, FinishCall)
            state = None if self._is_taking_over else self._board.state
            jobs.check(state, finish, workflow.info().first_execution_run_id[-8:])
            self._loop.check_goes_on()

    async def _note(self, fact: Decided | Resumed | Said | Emitted | CallFinished) -> None:
        """Add the fact of an update, and wait until the run has a state that it can apply to."""
        self._board.note(fact)
        await self._until_taken_over()

    def _was_refused(self, fact: Decided | Resumed | CallFinished) -> bool:
        """Return whether an update that came in before the state of the run before was refused."""
        return any(refused is fact for refused in self._board.state.carried.refused)

    @workflow.signal(name=CHILD_NEWS, unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def child_news(self, payload: RawValue = NOTHING) -> None:
        """Handle the news of a delegate's turn: it waits, continues, or was given budget."""
        self._runs.take_signal()
        await self._until_begun()
        fact = outcomes.news_in([payload])
        if fact is not None:
            await self._children.told(fact)

    @workflow.signal(name=FOLLOW)
    def follow(self, payload: RawValue = NOTHING) -> None:
        """Tell the sender from now on when the turn needs a person, and when it ends."""
        self._runs.take_signal()
        self._followers.add(payload)

    @workflow.signal(name=MOVE_ON)
    def move_on(self, payload: RawValue = NOTHING) -> None:
        """See whether another version of the workers goes on with the turn, while it waits."""
        self._runs.move_on()

    @workflow.update(name=DECIDE)
    async def decide(self, payload: RawValue = NOTHING) -> None:
        """Approve or deny a waiting call, say what became of it, or answer it."""
        await self._until_begun()
        with self._runs.update() as is_new:
            if is_new:
                await self._decide(Decided(unpack(payload, Decision)))

    async def _decide(self, fact: Decided) -> None:
        before = self._board.state
        await self._note(fact)
        if self._was_refused(fact):
            with failures.typed():
                raise errors.ApprovalConflictError(
                    f"no approval is pending for the call {fact.decision.call_id!r} with these"
                    " arguments"
                )
        if not before.awaits_parts:
            log_events.answered_without_a_run(before, self._board.state)

    @decide.validator
    def check_decision(self, payload: RawValue = NOTHING) -> None:
        """Reject a decision that is late, repeated, about other arguments, or no answer."""
        self._runs.answers.check_open()
        if self._runs.has_answered() or self._is_taking_over:
            return
        with failures.typed():
            gates.check(self._board.state, unpack(payload, Decision), workflow.now())

    async def _cancelled(self, reason: str) -> Summary:
        self._board.note(CancelRequested(reason))
        return await self._ended_with(
            errors.TurnCancelledError(reason or None), Outcome.CANCELLED, reason
        )

    async def _failure(self, error: PerdureError) -> BaseException:
        return failures.of_turn(
            error, await self._ended_with(error, _OUTCOMES.get(type(error), Outcome.FAILED))
        )

    async def _ended_with(self, error: PerdureError, outcome: Outcome, reason: str = "") -> Summary:
        await self._moves.stop_jobs()
        await self._observe_end(outcome)
        await schedule_total.settle(self._board.state, outcome)
        await self._on_done.begin(self._board.state, error)
        await self._undoing.begin(self._board.state, outcome)
        await self._followers.tell_end()
        await self._refuse_waiting_updates()
        summary = self._board.summary(outcome, self._board.state.output, error=error)
        self._close(summary, error, reason)
        return summary

    def _close(self, summary: Summary, error: PerdureError | None = None, reason: str = "") -> None:
        """Record the end of a turn in the memo, search attributes, details and log."""
        self._log_start()
        waits.end_of_turn(self._board, summary, reason)
        self._board.show_end(summary.outcome)
        log_events.turn_ended(self._board.state, summary, self._board.took_ms, error)

    def _log_start(self) -> None:
        """Log the start once: when the agent is known, or when the turn ends before that."""
        if not self._has_begun:
            self._has_begun = True
            log_events.turn_started(self._board.state)

    async def _observe_end(self, outcome: Outcome) -> None:
        """Notify observers of an unsuccessful end as well.

        A failure to do so does not keep the turn from ending.
        """
        agent = self._board.state.agent
        if agent is not None and agent.observes:
            with contextlib.suppress(PerdureError):
                await asyncio.shield(self._pipeline.observe(agent, outcome=outcome))
