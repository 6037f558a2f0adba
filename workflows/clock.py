"""The time of a turn: wall clock by the workflow's own clock, without the waits for people.

One durable timer wakes it at its deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow


class Clock:
    """Counts the time of one turn, and has one timer at most."""

    def __init__(self) -> None:
        self._waited = timedelta()
        self._waits_since: datetime | None = None
        self._deadline: datetime | None = None
        self.alarm: asyncio.Task[None] | None = None

    @property
    def elapsed(self) -> timedelta:
        """Since the start of the turn, waits excluded, that of this moment as well."""
        now = workflow.now()
        return (self._waits_since or now) - workflow.info().workflow_start_time - self._waited

    def left(self, limit: timedelta | None) -> timedelta | None:
        """What is left of `limit`; None where there is none."""
        return None if limit is None else limit - self.elapsed

    def begin_wait(self) -> None:
        """A wait for somebody does not count, and needs no timer."""
        self.stop()
        self._waits_since = workflow.now()

    def end_wait(self) -> None:
        """Time counts again."""
        assert self._waits_since is not None
        self._waited += workflow.now() - self._waits_since
        self._waits_since = None

    def wake_after(self, left: timedelta | None, summary: str) -> None:
        """Have the timer end when `left` is over; none where there is no limit.

        A timer that is right already stays.
        """
        deadline = None if left is None else workflow.now() + left
        if deadline == self._deadline and self.alarm is not None:
            return
        self.stop()
        self._deadline = deadline
        if left is not None:
            self.alarm = asyncio.create_task(
                workflow.sleep(max(left, timedelta()), summary=summary)
            )

    def stop(self) -> None:
        """Need no timer any more."""
        if self.alarm is not None:
            self.alarm.cancel()
        self.alarm = self._deadline = None


async def ended_within(
    tasks: Sequence[asyncio.Future[Any]], limit: timedelta, summary: str
) -> None:
    """Wait until all are over, but no longer than `limit`.

    Its timer says in the web UI what it is for.
    """
    with contextlib.suppress(TimeoutError):
        await workflow.wait_condition(
            lambda: all(task.done() for task in tasks), timeout=limit, timeout_summary=summary
        )
