"""The activities of a turn, each with a key, one attempt, a deadline, and an end that is a fact."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError

from perdure.temporal import failures, outcomes
from perdure.temporal.payloads import pack
from perdure.text import one_line
from perdure.turn.facts import Recorded, Scheduled
from perdure.turn.keys import (
    ActivityKey,
    AgentKey,
    HandoffKey,
    ModelKey,
    PolicyKey,
    ToolKey,
    VerifyKey,
)
from perdure.turn.wire import ModelCall, ToolRun
from perdure.workflows import heartbeats
from perdure.workflows.ends import Ends, has_ended
from perdure.workflows.turn import log_events
from perdure.workflows.turn.clock import ended_within
from perdure.workflows.turn.turn_context import Board

ONCE = RetryPolicy(maximum_attempts=1)
UNTIL_READ = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(minutes=1),
    non_retryable_error_types=[failures.NOT_REGISTERED],  # by a worker of an earlier release
)
CANCEL_GRACE = timedelta(seconds=10)
DEADLINE_GRACE = timedelta(seconds=1)

Handle = workflow.ActivityHandle[RawValue]


def _cancel(key: ActivityKey, handle: Handle) -> bool:
    """Request the cancellation of an activity, which soon learns of it. Like `Task.cancel`."""
    is_requested = handle.cancel()
    heartbeats.beat_soon(str(key))
    return is_requested


def _is_last(key: ActivityKey) -> bool:
    """Return whether this is the model call for the last answer."""
    return isinstance(key, ModelKey) and key.is_last


class Calls:
    """Runs the activities of one turn."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._left: list[asyncio.Task[None]] = []
        self._asking: tuple[ModelKey, Handle] | None = None
        self._runs: dict[ActivityKey, ToolRun] = {}
        self._ends = Ends()
        self._folded: dict[ActivityKey, Recorded] = {}

    async def perform(
        self,
        key: ActivityKey,
        activity: str,
        arg: BaseModel,
        timeout: timedelta,
        summary: str,
        *,
        has_deadline: bool = True,
        queue: str = "",
        within: timedelta | None = None,
        retries: RetryPolicy = UNTIL_READ,
    ) -> Recorded | None:
        """Run one activity, fold its result and return it.

        It is repeated as `retries` says, `within` a time, if any.

        Returns None for an activity that was abandoned, or came too late to be started. A
        cancellation is passed on, and an abandoned activity's end is still folded. Resolving the
        agent and notifying about the end have no deadline.
        """
        has_deadline = has_deadline and self._board.state.agent is not None
        # for the last answer there is time that is kept
        time_left = self._board.time_left if _is_last(key) else self._board.time_for_calls
        if has_deadline and time_left is not None and time_left <= timedelta():
            return None
        raw = pack(arg, f"the input of {activity}")
        is_named = isinstance(key, AgentKey | HandoffKey | ModelKey)
        scheduled = self._note(key, arg, summary if is_named else f"{activity}: {summary}")
        handle = workflow.start_activity(
            activity,
            raw,
            task_queue=queue or None,
            result_type=RawValue,
            activity_id=str(key),
            start_to_close_timeout=timeout,
            heartbeat_timeout=heartbeats.timeout(),
            schedule_to_close_timeout=within,
            retry_policy=ONCE if within is None else retries,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=one_line(summary, 200),
        )
        self._ends.watch(key, handle)
        if isinstance(key, ModelKey) and not key.is_last:
            self._asking = key, handle
        try:
            await self._until(key, handle, has_deadline)
        except asyncio.CancelledError:
            if not await has_ended(handle):
                _cancel(key, handle)
                if self._board.is_new(scheduled):
                    self._board.withdraw(scheduled)
                    self._ends.forget(key)
                    raise
            await self._stopped(key, handle)
            raise
        return self._fold_end(key, handle) if handle.done() else None

    def _note(self, key: ActivityKey, arg: BaseModel, action: str) -> Scheduled:
        """Fold the start of an activity, and show it as the action of the turn."""
        scheduled = Scheduled(key, arg if isinstance(arg, ModelCall) else None)
        if isinstance(key, ToolKey) and isinstance(arg, ToolRun):
            self._runs[key] = arg
        before = self._board.state
        self._board.note(scheduled)
        if _is_last(key):
            log_events.answered_without_a_run(before, self._board.state)
        self._board.show(action)
        return scheduled

    async def interrupt(self) -> None:
        """Stop the model call that is running, so that the model is asked again."""
        if self._asking is not None and not await has_ended(self._asking[1]):
            _cancel(*self._asking)

    async def fold_left(self) -> None:
        """Fold the ends of abandoned activities that have come in this very moment.

        Readers of the history know of them, and so has the next run.
        """
        for task in self._left:
            await has_ended(task)

    async def _stopped(self, key: ActivityKey, handle: Handle) -> None:
        """Wait for a cancelled activity for a while, which is shorter after the deadline."""
        if self._board.is_too_late:
            await ended_within([handle], DEADLINE_GRACE, f"{key} may end after the deadline")
        else:
            await ended_within([handle], CANCEL_GRACE, f"{key} may end after the cancel")
        if handle.done():
            self._fold_end(key, handle)
        else:  # the turn may still tell of its end, which takes further workflow tasks
            self._left.append(asyncio.create_task(self._fold_later(key, handle)))

    async def _until(self, key: ActivityKey, handle: Handle, has_deadline: bool) -> None:
        """Wait for an activity, and stop it at the deadline.

        If it does not stop, it is abandoned, unless the turn continues with its call.
        """
        board, is_stopping = self._board, False
        while not handle.done():
            time_left = board.time_for_calls if has_deadline else None
            if time_left == timedelta() and not await has_ended(handle):
                is_stopping = is_stopping or _cancel(key, handle)
                pauses = board.state.agent is not None and board.state.agent.on_exhausted == "pause"
                await (
                    workflow.wait([handle])
                    if pauses
                    else ended_within([handle], DEADLINE_GRACE, f"{key} may end after the deadline")
                )
                if handle.done() or board.time_for_calls != timedelta():
                    continue  # time was added: the turn continues with this call's end
                self._left.append(asyncio.create_task(self._fold_later(key, handle)))
                return
            board.clock.wake_after(time_left, "the deadline of the turn")
            alarm = [board.clock.alarm] if board.clock.alarm else []
            await workflow.wait([handle, *alarm], return_when=asyncio.FIRST_COMPLETED)

    async def _fold_later(self, key: ActivityKey, handle: Handle) -> None:
        """Fold the end of an abandoned activity, which readers of the history see too."""
        await workflow.wait([handle])
        self._fold_end(key, handle)

    def _fold_end(self, key: ActivityKey, handle: Handle) -> Recorded:
        """Fold the end of an activity, and before it the ends that came before it."""
        for earlier, its_handle in self._ends.before(key):
            self._folded[earlier] = self._fold(earlier, its_handle)
        folded = self._folded.pop(key, None)
        return self._fold(key, handle) if folded is None else folded

    def _fold(self, key: ActivityKey, handle: Handle) -> Recorded:
        self._ends.forget(key)
        run = self._runs.pop(key, None)
        try:
            fact = outcomes.completed(key, handle.result())
        except ActivityError as error:
            fact = outcomes.failed(key, error.cause or error, run)
        except asyncio.CancelledError as error:
            fact = outcomes.failed(key, error, run)
        before = self._board.state
        self._board.note(fact)
        if isinstance(key, ModelKey | ToolKey | PolicyKey | VerifyKey):
            log_events.call_ended(before, self._board.state, fact, self._board.took_ms(key))
        elif isinstance(key, HandoffKey):
            log_events.handed_over(before, self._board.state, key)
        return fact
