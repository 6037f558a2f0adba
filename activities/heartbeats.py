"""Heartbeats for Perdure's own activities.

They reveal a dead worker within seconds, and deliver a cancellation. Temporal Cloud bills each, so
there are few: a heartbeat every few seconds, and some at once when a turn of this process cancels
its activity (docs/decisions/archive/0093). This is an interceptor, because only there the event
loop is available for sync activities too. The user's own activities are not affected, and local
activities have none: they take a second at most.

It also refuses attempts that the workflow has not scheduled. An activity of a turn has one attempt,
but the server dispatches it again after an operator has paused, unpaused or reset it, and after a
reset of the turn while it ran. The previous attempt may have had its effect, so this attempt counts
as lost: the workflow decides what that means, as it does for a worker that died
(docs/decisions/archive/0030). An activity that only reads, or that does the same when it is
repeated, as the one with which a session records a turn, may have any number of attempts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Container
from contextvars import ContextVar, copy_context
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, CancelledError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

from perdure.temporal.liveness import TOLERANCE, interval_for
from perdure.temporal.names import WORKER_SHUTDOWN

_AFTER_A_CANCEL_S = (0.05, 0.5, 1.0)
"""The pauses before the heartbeats that deliver a cancel.

The server has the cancel a few milliseconds after the workflow decided it. The next ones are for a
busy server.
"""

Beat = Callable[..., None]
Prepare = Callable[[ExecuteActivityInput], Awaitable[None]]

_STOPPED = "the worker was stopped while it ran this"
_BY_OPERATOR = "an operator paused or reset this while it ran"
_AGAIN = "Temporal handed this out a second time; it may have run before, so it was not run"

_beat: ContextVar[Beat] = ContextVar("perdure_beat")


def beat_of_this_activity() -> Beat:
    """Return a function that heartbeats with details for this activity, from any thread."""
    return _beat.get()


def beat_with(beat: Beat) -> None:
    """Let the activity of this context heartbeat with a function."""
    _beat.set(beat)


class HeartbeatInterceptor(Interceptor):
    """Heartbeats for the activities named in `ours`. `prepare` runs first, on the worker's loop.

    `tolerance` is how late they may be on this machine.
    """

    def __init__(
        self, ours: Container[str], prepare: Prepare, tolerance: timedelta = TOLERANCE
    ) -> None:
        self._ours = ours
        self._tolerance = tolerance
        self._prepare = prepare
        self._running: dict[tuple[str, str], Callable[[], None]] = {}

    def beat_soon(self, run_id: str, activity_id: str) -> None:
        """Let an activity send heartbeats now if it runs in this process, from any thread."""
        beat = self._running.get((run_id, activity_id))
        if beat is not None:
            with contextlib.suppress(RuntimeError):  # the process is ending
                beat()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Wrap every activity of the worker."""
        return _Heartbeats(next, self._ours, self._prepare, self._tolerance, self._running)


class _Heartbeats(ActivityInboundInterceptor):
    def __init__(
        self,
        inner: ActivityInboundInterceptor,
        ours: Container[str],
        prepare: Prepare,
        tolerance: timedelta,
        running: dict[tuple[str, str], Callable[[], None]],
    ) -> None:
        super().__init__(inner)
        self._ours = ours
        self._prepare = prepare
        self._tolerance = tolerance
        self._running = running
        self._timer: asyncio.TimerHandle | None = None
        self._details: tuple[Any, ...] = ()

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._outbound = outbound
        super().init(outbound)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        if info.activity_type not in self._ours:
            return await super().execute_activity(input)
        refuse_second_attempt(info)
        self._loop = asyncio.get_running_loop()
        beat_with(_unheard if info.is_local else self._beat_from_anywhere)
        key = (info.workflow_run_id or "", info.activity_id)
        if not info.is_local:
            self._context = copy_context()
            self._interval_s = self._interval(info).total_seconds()
            self._beat_in(self._interval_s)
            self._running[key] = self._cancelled_from_anywhere
        try:
            await self._prepare(input)
            return await super().execute_activity(input)
        except (asyncio.CancelledError, CancelledError) as error:
            details = activity.cancellation_details()
            if details is not None and details.cancel_requested:
                raise
            raise ended_by(details) from error
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self._running.pop(key, None)

    def _interval(self, info: activity.Info) -> timedelta:
        return interval_for(info.heartbeat_timeout, info.start_to_close_timeout, self._tolerance)

    def _beat_from_anywhere(self, *details: Any) -> None:
        self._loop.call_soon_threadsafe(self._note, details)

    def _note(self, details: tuple[Any, ...]) -> None:
        self._details = details
        self._outbound.heartbeat(*details)

    def _cancelled_from_anywhere(self) -> None:
        self._loop.call_soon_threadsafe(self._beat_after_a_cancel)

    def _beat_in(self, *pauses_s: float) -> None:
        """Heartbeat after each of these pauses, and then in every interval.

        A timer costs a short activity less than a task of its own.
        """
        pause_s, *others_s = pauses_s
        self._timer = self._loop.call_later(pause_s, self._tick, *others_s, context=self._context)

    def _tick(self, *pauses_s: float) -> None:
        self._outbound.heartbeat(*self._details)
        self._beat_in(*(pauses_s or (self._interval_s,)))

    def _beat_after_a_cancel(self) -> None:
        if self._timer is not None:  # else the activity has ended
            self._timer.cancel()
            self._beat_in(*_AFTER_A_CANCEL_S)


def _unheard(*_details: Any) -> None:
    """Ignore a heartbeat of a local activity, which has none."""


def refuse_second_attempt(info: activity.Info) -> None:
    """Refuse any attempt after the first, unless the workflow lets the server repeat them.

    A reset restarts the count, but keeps the time at which the workflow scheduled the activity.

    Raises:
        ApplicationError: It may have run before, so it counts as lost.
    """
    if info.retry_policy is None or info.retry_policy.maximum_attempts != 1:
        return
    if info.attempt > 1 or info.current_attempt_scheduled_time != info.scheduled_time:
        raise _lost(_AGAIN)


def ended_by(details: activity.ActivityCancellationDetails | None) -> ApplicationError:
    """Return the failure of an attempt that was stopped without a cancellation by the turn."""
    if details is not None and details.worker_shutdown:
        return _lost(_STOPPED)
    if details is not None and (details.paused or details.reset):
        return _lost(_BY_OPERATOR)
    return ApplicationError(
        "the attempt was over while it still ran",
        type="PERDURE_ATTEMPT_OVER",
        category=ApplicationErrorCategory.BENIGN,
    )


def _lost(why: str) -> ApplicationError:
    return ApplicationError(why, type=WORKER_SHUTDOWN, category=ApplicationErrorCategory.BENIGN)
