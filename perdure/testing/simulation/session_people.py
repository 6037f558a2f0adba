"""The people around a session: they write, interrupt, add to its budget, fork it and close it.

They also do what its turns wait for, and cancel it.
"""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.api.history.v1 import HistoryEvent

from perdure.session.wire import IfBusy, Say, SessionReason, SessionSnapshot, Unqueue
from perdure.temporal.names import (
    ADD_BUDGET,
    CLOSE,
    INTERRUPT,
    RECORD_TURN,
    RESUME,
    SAY,
    SESSION,
    UNQUEUE,
)
from perdure.temporal.payloads import pack
from perdure.testing.simulation.calls.client_tools import CLIENT_TOOLS
from perdure.testing.simulation.people import MOMENTS, PATIENCE, Empty, People
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.sdk import BegunRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.values.budgets import Budget, BudgetUpdate

FORK = "fork"
"""The id of a fork of the session."""

_TURN_ENDS = frozenset(f"WORKFLOW_EXECUTION_{how}" for how in ("COMPLETED", "FAILED", "CANCELED"))

_NOT_STARTED = "START_CHILD_WORKFLOW_EXECUTION_FAILED"
"""The end of an attempt to start a turn, and the sequence of what people do then."""

_MOST_UNPLANNED = 5

_WISHES: tuple[IfBusy, ...] = ("queue", "queue", "queue", "steer", "steer", "interrupt", "reject")


class SessionPeople(People):
    """Everybody who has to do with one session and its turns.

    They may add to the budget of a single turn, past that of the session.
    """

    def __init__(self, server: SimulatedServer, workflow_id: str, *, names: Sequence[str]) -> None:
        self.adds_to_turns = server.choices.happens(2)
        self._names = names
        self._left = server.choices.pick((1, 2, 3, 5))
        self._is_forked = False
        self._tools = CLIENT_TOOLS if server.choices.has("client tools") else ()
        super().__init__(server, workflow_id)
        server.on_event.append(self._watch_session)
        server.on_event.append(self._watch_moments)

    def look(self) -> None:
        """Talk to the session, then do what its turns wait for."""
        session = self._server.run_of(self.workflow_id)
        if session is not None:
            self._talk(session)
        super().look()

    def _talk(self, session: SimulatedRun) -> None:
        """Send a message, or close the session after the last one."""
        if self._left > 0:
            if not session.session.is_busy or self._choices.happens(3):
                self._write(session)
        elif session.session.is_busy or session.session.reminders:
            pass
        elif not self._choices.happens(3):
            if session.session.queue and not self._choices.happens(3):
                self._send(session, RESUME, Empty())
            else:
                self._send(session, CLOSE, SessionReason(reason="enough"))
        if self._looks > PATIENCE // 2:
            self._send(session, CLOSE, SessionReason(reason="too long"))

    def _watch_session(self, run: SimulatedRun) -> None:
        """Do something in the very moment of some events of the session or of its turns."""
        if run.id.startswith(self.workflow_id) and self._choices.happens(40):
            self._server.clock.later(0, self._interfere_in_session)

    def _watch_moments(self, run: SimulatedRun) -> None:
        """Do something when a turn of the session is over and the session does not know it yet."""
        event = run.history.events[-1]
        is_of_session = run.parent is not None and run.parent[0].id == self.workflow_id
        is_end = is_of_session and name_of(event) in _TURN_ENDS
        is_record = run.id == self.workflow_id and _records_turn(event)
        is_refused = run.id == self.workflow_id and name_of(event) == _NOT_STARTED
        if is_refused and self._choices.happens(2, beside=_NOT_STARTED):
            self._server.clock.later(0, self._take_back_given)
        if (is_end or is_record) and self._choices.happens(4, beside=MOMENTS):
            does = self._steer_too_late if is_end else self._ask_while_recording
            self._server.clock.later(0, does)

    def _steer_too_late(self) -> None:
        """Send two messages to a turn that is over."""
        session = self._server.run_of(self.workflow_id)
        if session is not None:
            self._write(session, "steer")
            self._write(session, "steer")

    def _take_back_given(self) -> None:
        """Take back a message of a turn that could not be started, before it is started again."""
        session = self._server.run_of(self.workflow_id)
        ids = [message.id for message in session.session.queue] if session is not None else []
        if session is not None and ids:
            taken = self._choices.pick(ids, beside=_NOT_STARTED)
            self._send(session, UNQUEUE, Unqueue(id=taken))

    def _ask_while_recording(self) -> None:
        """Ask for what the session can answer once it has recorded a turn."""
        session = self._server.run_of(self.workflow_id)
        if session is None:
            return
        does = ("write", "unqueue", "unqueue", "unqueue", "close")
        match self._choices.pick(does, beside=MOMENTS):
            case "write":
                self._write(session)
            case "unqueue":
                ids = [message.id for message in session.session.given]
                taken = self._choices.pick(ids or ["none"], beside=MOMENTS)
                self._send(session, UNQUEUE, Unqueue(id=taken))
            case _:
                self._send(session, CLOSE, SessionReason(reason="at the end of a turn"))

    def _interfere_in_session(self) -> None:
        session = self._server.run_of(self.workflow_id)
        if session is None:
            return
        does = ("write", "write", "write", "add", "resume", "interrupt", "unqueue", "fork", "close")
        match self._choices.pick(does):
            case "write":
                self._write(session)
            case "add":
                limits = {
                    name: 5000 for name, value in session.session.ledger.budget or () if value
                }
                if limits:
                    added = BudgetUpdate.model_validate(limits)
                    self._send(session, ADD_BUDGET, added)
            case "resume":
                self._send(session, RESUME, Empty())
            case "interrupt":
                self._send(session, INTERRUPT, SessionReason(reason="stop"))
            case "unqueue":
                ids = [message.id for message in session.session.queue]
                self._send(session, UNQUEUE, Unqueue(id=self._choices.pick(ids or ["none"])))
            case "fork":
                self._fork(session)
            case _ if self._choices.happens(4):
                self._send(session, CLOSE, SessionReason(reason="now"))
            case _:
                pass

    def _write(self, session: SimulatedRun, wish: IfBusy | None = None) -> None:
        self._left -= 1
        if self._left < -_MOST_UNPLANNED:  # each of them causes more of what people react to
            return
        text = f"{self._word()} {len(self.sent)} of {self.workflow_id}"
        if wish is not None:
            self._send(session, SAY, Say(text=text, if_busy=wish))
        else:
            any_wish = self._choices.pick(_WISHES)
            agent = self._choices.pick(self._names) if self._choices.happens(6) else None
            tools = () if any_wish == "steer" else self._tools
            said = Say(text=text, if_busy=any_wish, agent=agent, client_tools=tools)
            self._send(session, SAY, said)
        self.texts[self.sent[-1].id] = text

    def add(self, run: SimulatedRun) -> None:
        """Add to the limits of a turn."""
        if self.adds_to_turns:
            super().add(run)
        else:
            self._send(run, ADD_BUDGET, BudgetUpdate(iterations=3))

    def nudge(self, run: SimulatedRun) -> None:
        """Send an update to the session or to one of its turns."""
        if run.begun.type == SESSION:
            self._send(run, RESUME, Empty())
        else:
            super().nudge(run)

    def _fork(self, session: SimulatedRun) -> None:
        """Begin another session with the messages of this one, as a client does."""
        state = session.session
        if self._is_forked or self.workflow_id == FORK or state.request is None:
            return
        self._is_forked = True
        request = state.request.model_copy(update={"budget": Budget(usd=30)})
        snapshot = SessionSnapshot.of_fork(
            request, state.agent, state.named, state.messages, state.starts, None
        )
        run_id = self._server.new_run_id()
        timeout = session.begun.task_timeout
        begun = BegunRun(FORK, run_id, run_id, SESSION, 0, task_timeout=timeout)
        self._server.start(begun, [pack(snapshot).payload])
        others = SessionPeople(self._server, FORK, names=self._names)
        others.adds_to_turns = self.adds_to_turns  # they may interfere with turns of this session
        others.texts = self.texts
        others.sent = self.sent


def _records_turn(event: HistoryEvent) -> bool:
    """Return whether a session begins to record a turn, or a part of it."""
    is_activity = name_of(event) == "ACTIVITY_TASK_SCHEDULED"
    return is_activity and bool(attributes(event).activity_type.name == RECORD_TURN)
