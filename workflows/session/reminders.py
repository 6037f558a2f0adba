"""The reminders of a session: messages that it sends to itself at a later time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow

from perdure.session.facts import ReminderDue, ReminderForgotten, ReminderSet
from perdure.session.wire import Reminder
from perdure.temporal.names import MEMO_REMINDER
from perdure.workflows.session.notes import Notes


class Reminders:
    """The reminders of one session, each with a timer."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._timers: dict[str, asyncio.Task[None]] = {}

    def resume(self) -> None:
        """Go on with the reminders of the run before."""
        for reminder in self._notes.state.reminders:
            self._begin(reminder)

    def set(self, fact: ReminderSet) -> None:
        """Keep a reminder until it is due."""
        self._notes.note(fact)
        self._begin(fact.reminder)

    def forget(self, fact: ReminderForgotten) -> bool:
        """Give a reminder up; return whether there was one."""
        self._notes.note(fact)
        timer = self._timers.pop(fact.id, None)
        return timer is not None and timer.cancel()

    def stop(self) -> None:
        """Give all reminders up. The state names them."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _begin(self, reminder: Reminder) -> None:
        if reminder.id not in self._timers:
            self._timers[reminder.id] = asyncio.create_task(self._until_due(reminder))

    async def _until_due(self, reminder: Reminder) -> None:
        delay = max(reminder.at - workflow.now(), timedelta())
        await workflow.sleep(delay, summary=f"the reminder {reminder.id} is due")
        del self._timers[reminder.id]
        if self._notes.state.closed is not None:
            return  # the state names it
        workflow.upsert_memo({MEMO_REMINDER: reminder.id})
        self._notes.note(ReminderDue(reminder.id))
