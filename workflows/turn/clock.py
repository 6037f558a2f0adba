"""The time of a turn: by the workflow's clock, without the waits for people.

One durable timer wakes the turn at its deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow

from perdure.errors import PerdureError
from perdure.workflows.turn.later_release import NeedsLaterReleaseError

E = TypeVar("E")


class Clock:
    """Measures the time of one turn, with at most one timer.

    Attributes:
        began: The time when the turn began, in its first run.
        waited: The time of the waits that are over.
        waits_since: The beginning of the current wait; None without a wait.
        is_taken_over: Whether an earlier run of the turn began that wait.
        alarm: The timer; None if it is not set.
    """

    def __init__(self) -> None:
        self.began = workflow.info().workflow_start_time
        self.waited = timedelta()
        self.waits_since: datetime | None = None
        self.is_taken_over = False
        self._deadline: datetime | None = None
        self.alarm: asyncio.Task[None] | None = None

    @property
    def elapsed(self) -> timedelta:
        """The time since the start of the turn, without waits, including the current wait."""
        now = workflow.now()
        return (self.waits_since or now) - self.began - self.waited

    def left(self, limit: timedelta | None) -> timedelta | None:
        """Return what is left of `limit`; None if there is no limit."""
        return None if limit is None else limit - self.elapsed

    def begin_wait(self) -> None:
        """Stop the clock for a wait, and cancel the timer."""
        self.stop()
        self.waits_since = workflow.now()

    def end_wait(self) -> None:
        """Resume the clock."""
        assert self.waits_since is not None
        self.waited += workflow.now() - self.waits_since
        self.waits_since = None
        self.is_taken_over = False

    def wake_after(self, delay: timedelta | None, summary: str) -> None:
        """Set the timer to fire after `delay`; without a limit there is no timer.

        A timer that is already correct is kept, unless it has fired too early: the machines of a
        Temporal service do not have the same time, so a timer may fire before its moment.
        """
        deadline = None if delay is None else workflow.now() + delay
        if deadline == self._deadline and self.alarm is not None:
            is_early = delay is not None and delay > timedelta() and self.alarm.done()
            if not is_early:
                return
        self.stop()
        self._deadline = deadline
        if delay is not None:
            self.alarm = asyncio.create_task(
                workflow.sleep(max(delay, timedelta()), summary=summary)
            )

    def stop(self) -> None:
        """Cancel the timer."""
        if self.alarm is not None:
            self.alarm.cancel()
        self.alarm = self._deadline = None


async def run_until(
    moment: datetime,
    inner: Callable[[], Coroutine[Any, Any, E]],
    summary: str,
    error: PerdureError,
) -> E:
    """Run `inner`, and cancel it at a moment; what it has done remains.

    `summary` describes the timer in the web UI.

    Raises:
        PerdureError: `error`, if `inner` had not ended by then.
        NeedsLaterReleaseError: It found this while it stopped: only a later release may end the
            turn.
    """
    task = asyncio.create_task(inner())
    delay = max(moment - workflow.now(), timedelta())
    try:
        await ended_within([task], delay, summary)
    except asyncio.CancelledError:
        await _stop(task)
        raise
    if task.done():
        return task.result()
    await _stop(task)
    raise error


async def _stop(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, which is of no interest."""
    task.cancel()
    await workflow.wait([task])
    if not task.cancelled() and isinstance(failure := task.exception(), NeedsLaterReleaseError):
        raise failure


async def ended_within(
    tasks: Sequence[asyncio.Future[Any]], limit: timedelta, summary: str
) -> None:
    """Wait until all tasks have ended, but no longer than `limit`.

    `summary` describes the timer in the web UI.
    """
    with contextlib.suppress(TimeoutError):
        await workflow.wait_condition(
            lambda: all(task.done() for task in tasks), timeout=limit, timeout_summary=summary
        )
