"""The people around a schedule: they pause it, and do what its turns wait for."""

from __future__ import annotations

from temporalio.common import RawValue

from perdure.session.scheduled import message_of
from perdure.temporal.names import ADD_BUDGET, SCHEDULED_MESSAGE
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.people import PATIENCE, People
from perdure.testing.simulation.server.history import attributes
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.schedules import (
    ABOUT_SCHEDULES,
    SimulatedSchedules,
    StoredSchedule,
)
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.turn.slot import IfRunning, Slot
from perdure.turn.wire import TurnRequest
from perdure.values.budgets import BudgetUpdate

_PAUSES_S = (10, 1, 60, 200)
_CANCELS = 40
_PAUSES = 12

PLAN = "plan"
"""The id of the schedule of a simulation."""
CHAT = f"{PLAN}-chat"
"""The id of the session of a schedule of messages."""


class SchedulePeople(People):
    """Everybody who has to do with one schedule and its turns.

    Attributes:
        schedule: The schedule.
        has_resumed: Whether they have let it go on after a pause.
        if_running: What it does at a time at which a turn runs.
        sends_messages: Whether it sends messages to a session.
    """

    adds_to_turns = False
    sees_moments = False

    def __init__(
        self,
        server: SimulatedServer,
        schedules: SimulatedSchedules,
        schedule: StoredSchedule,
        if_running: IfRunning,
    ) -> None:
        self.schedule = schedule
        self.if_running = if_running
        action = schedule.stored.action.start_workflow
        self.sends_messages = action.workflow_type.name == SCHEDULED_MESSAGE
        self.has_resumed = False
        self._schedules = schedules
        super().__init__(server, PLAN)
        server.on_event.append(self._hear)

    def _hear(self, run: SimulatedRun) -> None:
        """Note the text of a message that is about to be sent."""
        if run.begun.type == SCHEDULED_MESSAGE and run.id not in self.texts:
            [payload] = attributes(run.history.events[0]).input.payloads
            slot = Slot(at=self.schedule.begun[run.id])
            self.texts[run.id] = message_of(unpack(RawValue(payload), TurnRequest), slot).text

    def look(self) -> None:
        """Do what the turns wait for, and pause the schedule or let it go on."""
        self._looks += 1
        for one in self.sent:
            self._repeat(one)
        runs = self._runs
        for run in runs:
            if not self._choices.happens(6):
                self._help(run)
            if self._looks > PATIENCE or self._choices.happens(_CANCELS):
                self._server.cancel(run.root, "enough")
        if self._choices.happens(_PAUSES, beside=ABOUT_SCHEDULES):
            self.has_resumed |= self.schedule.is_paused
            self._schedules.pause(self.schedule, is_paused=not self.schedule.is_paused)
        session = self._server.run_of(CHAT)
        if session is not None and not runs and self._looks >= PATIENCE:
            self._server.cancel(session, "nothing comes any more")
        if runs or self._looks < PATIENCE // 2 or session is not None:
            self._server.clock.later(self._choices.pick(_PAUSES_S), self.look)

    def _is_of_tree(self, run: SimulatedRun) -> bool:
        return run.root.id.startswith(PLAN) and not run.root.closed

    def add(self, run: SimulatedRun) -> None:
        """Add to the steps of a turn, and not to its budget: that is the schedule's."""
        self._send(run, ADD_BUDGET, BudgetUpdate(iterations=3))
