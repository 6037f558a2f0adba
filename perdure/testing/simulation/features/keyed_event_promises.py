"""What Perdure promises about events by key, as a check of a simulated run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from perdure import limits
from perdure.temporal.names import KEYED_EVENTS
from perdure.testing.simulation.observations import Simulated, chain, last_runs
from perdure.testing.simulation.server.history import attributes, name_of, time_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError, SimulatedServer
from perdure.turn.event_keys import workflow_id
from perdure.turn.facts import WaitBegan, WaitEnded
from perdure.turn.wait_values import CallWait, Woken

PROMISE = "events by key come once"

_SLACK = timedelta(seconds=90)
"""So long an event may be on its way, with workers and workflow tasks that are lost, where the
clocks of the server agree."""


@dataclass(frozen=True)
class TakenIn:
    """An event that was accepted by the workflow that keeps it."""

    id: str
    at: datetime


def events_by_key_come_once(simulated: Simulated) -> None:
    """A turn gets each event by key once, in the order in which they came.

    All of its calls that wait for it get it together. One that comes while a call waits ends the
    wait, and so does one of the last hour that the turn has not got.
    """
    events = _taken_in(simulated.server)
    for last in last_runs(simulated.server) if events else ():
        runs = chain(simulated.server, last)
        turn = _Turn(
            events,
            is_whole=not any(run.base for run in runs) and not _is_branch(runs),
            slack=_SLACK + timedelta(seconds=simulated.server.clock.differ_s),
        )
        for run in runs:
            turn.see(run)


def _taken_in(server: SimulatedServer) -> dict[str, list[TakenIn]]:
    """Return the events that were accepted, by the workflow that keeps them, in their order."""
    found: dict[str, list[TakenIn]] = {}
    known: set[tuple[str, str]] = set()
    for run in server.runs:
        for event in run.history.events if run.begun.type == KEYED_EVENTS else ():
            if name_of(event) != "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
                continue
            event_id = attributes(event).protocol_instance_id
            place = run.begun.first_run_id, event_id  # which knows an id as long as it is not over
            if place not in known:
                known.add(place)
                found.setdefault(run.id, []).append(TakenIn(event_id, time_of(event)))
    return found


def _is_branch(runs: Sequence[SimulatedRun]) -> bool:
    """Return whether a turn has the state of another one, which may have got events."""
    request = runs[-1].read.request
    return request is not None and request.origin is not None


@dataclass
class _Turn:
    """The waits of a turn for events by key, in all of its runs.

    `is_whole` is whether the turn has got no events but those of its history. By `slack`, the
    times of two events may be in the wrong order.
    """

    events: dict[str, list[TakenIn]]
    is_whole: bool
    slack: timedelta
    began: dict[str, CallWait] = field(default_factory=dict)
    got: dict[str, int] = field(default_factory=dict)

    def see(self, run: SimulatedRun) -> None:
        for fact in run.facts:
            if isinstance(fact, WaitBegan):
                self.began |= {wait.key: wait for wait in fact.calls if wait.event_key}
            elif isinstance(fact, WaitEnded):
                self._end_together(run, fact.woken)

    def _end_together(self, run: SimulatedRun, ends: Sequence[Woken]) -> None:
        """Check ends of one moment: several calls get the same event."""
        got: dict[str, int] = {}
        for end in ends:
            wait = self.began.get(end.key)
            if end.by == "event" and end.event_key:
                place = workflow_id(end.event, end.event_key)
                number = self._given(run, wait, end, place)
                if got.setdefault(place, number) != number:
                    raise BrokenError(PROMISE, f"{end.key} has another event of {place}", run)
            elif end.by in ("time", "message") and wait is not None:
                waited = timedelta(seconds=end.waited_s)
                if waited > self.slack:  # else it may have ended before it was known to wait
                    self._check_missed(run, wait, wait.since + waited)
        self.got |= got

    def _given(self, run: SimulatedRun, wait: CallWait | None, end: Woken, place: str) -> int:
        """Check that a call has got the next event of its place, and return its number."""
        last, events = self.got.get(place, -1), self.events.get(place, ())
        numbers = [n for n, one in enumerate(events) if one.id == end.event_id]
        number = next((number for number in numbers if number > last), -1)
        if number < 0:
            how = "again" if numbers else "and nobody has sent it"
            raise BrokenError(PROMISE, f"{end.key} has {end.event_id} of {place} {how}", run)
        if wait is not None:
            self._check_missed(run, wait, self.events[place][number].at)
        return number

    def _check_missed(self, run: SimulatedRun, wait: CallWait, before: datetime) -> None:
        """Check that nothing came for a call that has waited until then."""
        place = workflow_id(wait.event, wait.event_key)
        since = wait.since - limits.EVENT_KEPT + self.slack
        for one in self.events.get(place, ())[self.got.get(place, -1) + 1 :]:
            if self.is_whole and since < one.at < before - self.slack:
                raise BrokenError(PROMISE, f"{wait.key} has waited, and not got {one.id}", run)
