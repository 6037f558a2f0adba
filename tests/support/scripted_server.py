"""A simulated server on which nothing goes wrong, and for which a test makes what happens."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio.api.history.v1 import HistoryEvent

from perdure.temporal.payloads import pack
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.reading import catch_up
from perdure.testing.simulation.server.attempts import heartbeat
from perdure.testing.simulation.server.clock import VirtualClock
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import Update, UpdateResponse
from perdure.testing.simulation.server.sdk import BegunRun
from perdure.testing.simulation.server.server import SimulatedServer

_NS = 10**9


class ScriptedRun:
    """One run of a workflow, whose activities, timers and children end when the test says so."""

    def __init__(
        self, kind: str, request: BaseModel, task_timeout: timedelta = timedelta(seconds=10)
    ) -> None:
        choices = Choices(0, ())
        self._clock = VirtualClock(choices)
        self._server = SimulatedServer(choices, self._clock)
        self._server.on_event.append(catch_up)
        run_id = self._server.new_run_id()
        begun = BegunRun("scripted", run_id, run_id, kind, 0, task_timeout=task_timeout)
        self.run = self._server.start(begun, [pack(request).payload])
        self.work()

    @property
    def events(self) -> list[HistoryEvent]:
        """The history so far."""
        return self.run.history.events

    def written(self, name: str) -> list[HistoryEvent]:
        """The events of a type so far."""
        return [event for event in self.events if name_of(event) == name]

    def work(self) -> None:
        """Do the workflow task, if there is one."""
        while self._clock.step():
            pass

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self._clock.now_ns += int(seconds * _NS)

    def happens(self, name: str, **fields: Any) -> None:
        """Let something happen, which the next workflow task sees."""
        self._server.deliver(self.run, name, fields)

    def has_timer(self, after: timedelta) -> bool:
        """Whether a timer of this length was started."""
        return bool(self._timers(after))

    def fires(self, after: timedelta) -> None:
        """Let the last timer of this length fire."""
        timer = self._timers(after)[-1]
        timer_id = attributes(timer).timer_id
        self.happens("TIMER_FIRED", started_event_id=timer.event_id, timer_id=timer_id)

    def _timers(self, after: timedelta) -> list[HistoryEvent]:
        return [
            event
            for event in self.written("TIMER_STARTED")
            if attributes(event).start_to_fire_timeout.ToTimedelta() == after
        ]

    def loses(self, activity_id: str) -> None:
        """Lose the last activity of this id."""
        [*_, scheduled] = [
            event
            for event in self.written("ACTIVITY_TASK_SCHEDULED")
            if attributes(event).activity_id == activity_id
        ]
        fields = {"scheduled_event_id": scheduled.event_id, "failure": heartbeat()}
        self.happens("ACTIVITY_TASK_TIMED_OUT", **fields)

    def update(self, name: str, content: BaseModel) -> Update:
        """Send an update, which the next workflow task sees."""
        update_id = f"update-{len(self.run.updates)}"
        return self._server.update(self.run, update_id, name, pack(content))

    def refused(self, name: str, content: BaseModel) -> Update:
        """Send an update that the workflow refuses, and do the workflow task."""
        update = self.update(name, content)
        self.work()
        assert update.answer is UpdateResponse.REJECTED
        return update

    def replay(self) -> None:
        """Replay the history.

        Raises:
            BrokenError: It gives other commands.
        """
        self._server.replayed(self.run, refuses=True).evict()
