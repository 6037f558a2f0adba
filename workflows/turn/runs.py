"""The runs of a turn: when one ends, what the next run takes over, and which updates it answered.

A history that is too long takes too long to be replayed. A turn therefore continues in a new run of
its workflow, by continue-as-new, at a moment at which nothing of it runs.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from perdure import errors, limits
from perdure.temporal import outcomes
from perdure.temporal.names import CARRY, HAND_OVER, MEMO
from perdure.temporal.payloads import pack
from perdure.temporal.search_attributes import SCHEDULED_FOR
from perdure.turn import carry
from perdure.turn.circuit_breaker import Health
from perdure.turn.continuation import CarryCall, Continuation
from perdure.turn.facts import CallFailed, TurnContinued, TurnStarted
from perdure.turn.history_limits import run_events
from perdure.turn.keys import CarryKey, PollKey
from perdure.turn.wire import Origin
from perdure.workflows import moving
from perdure.workflows.turn.calls import Calls
from perdure.workflows.turn.middleware import Pipeline
from perdure.workflows.turn.turn_context import Board
from perdure.workflows.update_answers import UpdateAnswers

_PATCH = "continue-as-new"
_READS_AFTER_TIME = "carries-without-deadline"
"""The patch id of turns that take over messages also when their time is up."""
_STOPS_BY_EVENT = "stops-by-an-event"
"""The patch since which no pause before a part is read again looks at the clock.

An update that is rejected lets it look before the timer of the deadline, and a replay has no such
update.
"""
_TRIES = 20
_LONGEST_PAUSE_S = 60


class Runs:
    """The runs of one turn.

    Attributes:
        answers: The answers of this run to updates.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._request_digest = self._first_run = ""
        self._answered: frozenset[str] = frozenset()
        self._updates = deque[str](maxlen=limits.UPDATE_IDS)
        self._count = self._signalled_at = 0
        self.answers = UpdateAnswers()
        self._began_events = 0
        self._began_bytes = 0
        self._is_stopped = False

    def resume(self, continuation: Continuation, pipeline: Pipeline) -> None:
        """Go on where the run before has ended."""
        board = self._board
        board.clock.began = continuation.began
        board.clock.waited = continuation.waited
        board.clock.waits_since = continuation.waits_since
        board.clock.is_taken_over = continuation.waits_since is not None
        board.failing_since = continuation.failing_since
        pipeline.observed = continuation.observed
        pipeline.notified = continuation.notified
        pipeline.entered = list(continuation.entered)
        self._request_digest = continuation.request_digest
        self._first_run = continuation.first_run
        self._answered = frozenset(continuation.updates)
        self._updates.extend(continuation.updates)

    async def take_over(self, calls: Calls, origin: Origin, *, whole: bool) -> None:
        """Take over the state or the messages of another run, part by part.

        A part that cannot be read is tried again, but not in a turn that is cancelled.

        Raises:
            PerdureError: The history of that run is gone, or cannot be read.
        """
        board = self._board
        while board.state.awaits_parts or board.state.transcript.absent:
            attempts = board.state.attempts.failures
            failures = [failure for failure in attempts if isinstance(failure.key, CarryKey)]
            if failures:
                await self._pause_after(failures, is_whole=whole)
            part = len(board.state.carried.parts) + 1
            key = CarryKey(part, len(failures) + 1)
            call = CarryCall(origin=origin, part=part, whole=whole)
            where = f"step {origin.steps} of {origin.turn_id}"
            await calls.perform(
                key,
                CARRY,
                call,
                limits.CARRY_CALL,
                f"part {part}, from {where}",
                has_deadline=self._reads_within_time(),
            )
        info = workflow.info()
        self._began_events = info.get_current_history_length()
        self._began_bytes = info.get_current_history_size()

    def _reads_within_time(self) -> bool:
        """Return whether a part is read within the time of the turn, as in an earlier release.

        A turn whose time is up needs the messages before it as well: for its last answer, or to go
        on in a new run while it waits for more time. Without them, it would try again for ever.
        """
        if self._board.state.agent is None or self._board.time_for_calls == timedelta():
            return False
        return not workflow.patched(_READS_AFTER_TIME)

    async def _pause_after(self, failures: Sequence[CallFailed], *, is_whole: bool) -> None:
        """Wait before a part is read again.

        Raises:
            PerdureError: The last failure, if the part is not read again.
        """
        error = errors.from_info(failures[-1].error)
        # a fork can be started again, and has lost nothing
        is_final = isinstance(error, errors.TranscriptMismatchError) and not is_whole
        may_pass = (error.transient or failures[-1].lost) and not is_final
        if not may_pass or len(failures) >= _TRIES:
            raise error
        pause_s = min(2 ** (len(failures) - 1), _LONGEST_PAUSE_S)
        by_event = workflow.patched(_STOPS_BY_EVENT)
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._is_stopped if by_event else self._is_stopping(), timeout=pause_s
            )
        if self._is_stopping():
            raise error

    def stop(self) -> None:
        """Read no part again: the turn is cancelled, or its deadline has passed."""
        self._is_stopped = True

    def _is_stopping(self) -> bool:
        """Return whether the turn is cancelled, or its deadline has passed."""
        return _is_cancelled() or self._board.is_too_late

    def is_full(self) -> bool:
        """Return whether the turn has to continue in a new run, and can."""
        info = workflow.info()
        events = info.get_current_history_length() - self._began_events
        is_due = (
            events >= min(limits.RUN_EVENTS, run_events(info.task_timeout))
            or info.get_current_history_size() - self._began_bytes >= limits.RUN_BYTES
            or self._count >= limits.RUN_UPDATES
            or moving.is_due()
        )
        # a poll only reads, and the next run begins it again
        running = (key for key in self._board.state.in_flight if not isinstance(key, PollKey))
        is_free = not any(running) and not _is_cancelled()
        return is_due and is_free and workflow.patched(_PATCH)

    def take_signal(self) -> None:
        """Note that a signal has come in this workflow task."""
        self._signalled_at = workflow.info().get_current_history_length()

    def move_on(self) -> None:
        """See whether another version of the workers goes on, as a signal asks."""
        self.take_signal()
        self.look()

    def look(self) -> bool:
        """Return whether the turn has to continue in a new run, and end its waits if so."""
        self._board.is_full = self.is_full()
        return self._board.is_full

    async def go_on(
        self, calls: Calls, health: Health, pipeline: Pipeline, followers: tuple[str, ...]
    ) -> None:
        """Go on in a new run, once every update has its answer."""
        is_signalled = self._signalled_at == workflow.info().get_current_history_length()
        await self.answers.before_next_run(moves=moving.is_due(), is_signalled=is_signalled)
        await calls.fold_left()
        if _is_cancelled():
            return  # the next await ends the turn
        # larger than a payload only if the request is, which external storage then holds
        payload = pack(
            self._continuation(health, pipeline).model_copy(update={"followers": followers}),
            "the next run's input",
            most_bytes=limits.STORED_BYTES,
        )
        workflow.continue_as_new(payload, memo=self._memo(), **moving.options())

    def _continuation(self, health: Health, pipeline: Pipeline) -> Continuation:
        board, info = self._board, workflow.info()
        request = board.state.request
        assert request is not None
        carried = carry.state_of(board.state)
        origin = Origin(
            turn_id=info.workflow_id,
            run_id=info.run_id,
            steps=board.state.step_count,
            digest=carried.digest,
        )
        _hand_over(origin, carried)
        return Continuation(
            continues=origin,
            request=request.model_copy(update={"history": ()}),
            request_digest=self._request_digest or request.digest(),
            first_run=self._first_run or info.run_id,
            ledger=board.state.accounts.ledger,
            began=board.clock.began,
            waited=board.clock.waited,
            waits_since=board.clock.waits_since,
            failing_since=board.failing_since,
            health=dict(health.records),
            observed=pipeline.observed,
            notified=pipeline.notified,
            entered=tuple(pipeline.entered),
            updates=tuple(self._updates),
        )

    def _memo(self) -> dict[str, Any]:
        """Return the memo with the time when the turn began: the server knows the last run's.

        The server would take over the memo as it was at the start of this run.
        """
        memo = dict(workflow.memo())
        return {**memo, MEMO: {**memo.get(MEMO, {}), "began": self._board.clock.began.isoformat()}}

    def has_answered(self) -> bool:
        """Return whether an earlier run has answered the current update.

        The server recognizes the id of an update within a run only.
        """
        update = workflow.current_update_info()
        return update is not None and update.id in self._answered

    @contextlib.contextmanager
    def update(self) -> Iterator[bool]:
        """Handle an update. Yields whether it takes effect: an earlier run may have answered it."""
        update = workflow.current_update_info()
        is_new = not self.has_answered()
        self._count += 1
        try:
            with self.answers.answering():
                yield is_new
                if is_new and update is not None:
                    self._updates.append(update.id)
        finally:
            self.look()


def _hand_over(origin: Origin, carried: carry.Carried) -> None:
    """Leave what is carried over in this process, for the next run if it begins here."""
    keep = workflow.extern_functions().get(HAND_OVER)
    if keep is not None and not workflow.unsafe.is_replaying():
        keep(origin, carried)


def _is_cancelled() -> bool:
    return workflow.cancellation_reason() is not None


def started(start: RawValue) -> TurnStarted | TurnContinued:
    """Return the fact of the input, with the slot if a schedule started the turn."""
    at = workflow.info().typed_search_attributes.get(SCHEDULED_FOR)
    has_last = at is not None and workflow.has_last_completion_result()
    last = workflow.get_last_completion_result(RawValue) if has_last else None
    return outcomes.started(start, at, last)
