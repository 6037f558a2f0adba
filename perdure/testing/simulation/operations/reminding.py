"""Whoever sets reminders of a session, and gives some of them up: its agents, in a real one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from pydantic import BaseModel

from perdure.session.wire import ForgetReminder, Remind, Reminder
from perdure.temporal.names import FORGET_REMINDER, REMIND
from perdure.temporal.payloads import pack
from perdure.testing.simulation.people import People, SentRequest
from perdure.testing.simulation.server.server import SimulatedServer

_SEQUENCE = "reminders"
_PAUSES_S = (1, 0, 5, 30)
_DELAYS_S = (5, 0.3, 20, 60, 120, -1)
_REPEATS_S = 1.5
_ATTEMPTS = 20


class Reminding:
    """Sets a few reminders, each by an update of its own."""

    def __init__(self, server: SimulatedServer, people: People) -> None:
        self._server = server
        self._people = people
        self._count = 0
        self._left = server.choices.pick((1, 2, 4), beside=_SEQUENCE)
        self._later()

    def _later(self) -> None:
        if self._left:
            self._left -= 1
            pause_s = self._server.choices.pick(_PAUSES_S, beside=_SEQUENCE)
            self._server.clock.later(pause_s, self._set)

    def _set(self) -> None:
        """Set a reminder; at times one that is refused, as it is in the past."""
        self._count += 1
        reminder_id = f"r{self._count}"
        now = datetime.fromtimestamp(self._server.clock.now_ns / 1e9, UTC)
        delay_s = self._server.choices.pick(_DELAYS_S, beside=_SEQUENCE)
        remind = Remind(at=now + timedelta(seconds=delay_s), text=f"reminder {reminder_id}")
        self._send(f"{REMIND}-{reminder_id}", REMIND, remind)
        reminder = Reminder(id=reminder_id, at=remind.at, text=remind.text)
        self._people.texts[f"reminder-{reminder_id}"] = reminder.message
        if self._server.choices.happens(4, beside=_SEQUENCE):
            pause_s = self._server.choices.pick(_PAUSES_S, beside=_SEQUENCE)
            self._server.clock.later(pause_s, partial(self._forget, reminder_id))
        self._later()

    def _forget(self, reminder_id: str) -> None:
        name = f"{FORGET_REMINDER}-{reminder_id}"
        self._send(name, FORGET_REMINDER, ForgetReminder(id=reminder_id))

    def _send(self, update_id: str, name: str, content: BaseModel) -> None:
        session = self._server.run_of(self._people.workflow_id)
        if session is None:
            return
        self._server.counts["reminders"] += name == REMIND
        update = self._server.update(session, update_id, name, pack(content))
        sent = SentRequest(session.id, update_id, name, content, update)
        self._server.clock.later(_REPEATS_S, partial(self._repeat, sent, _ATTEMPTS))

    def _repeat(self, sent: SentRequest, attempts: int) -> None:
        """Send an update again whose run has ended before it was answered."""
        session = self._server.run_of(sent.workflow_id)
        if session is None or sent.is_answered or not attempts:
            return
        sent.last = self._server.update(session, sent.id, sent.name, pack(sent.content))
        self._server.clock.later(_REPEATS_S, partial(self._repeat, sent, attempts - 1))
