"""The state of a simulation as a digest: two simulations in one state have the same futures.

A state is the histories of all runs, what the server keeps besides them, what is pending, and what
the world and the people have done. It has no workflow objects: what one knows is what its history
says, which the checks of each simulation compare (the fold is the state, and a replay gives the
same commands).
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from enum import Enum
from hashlib import blake2b
from types import FunctionType, MethodType, NoneType, UnionType
from typing import Any

from google.protobuf.message import Message
from pydantic import BaseModel
from temporalio.api.history.v1 import HistoryEvent

from perdure.testing.simulation.exhaustive.choices import OpenChoices, OpenClock
from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.people import People
from perdure.testing.simulation.server.attempts import SimulatedAttempts
from perdure.testing.simulation.server.effects import Effects
from perdure.testing.simulation.server.history import (
    COMPLETED,
    SCHEDULED,
    STARTED,
    attributes,
    is_reset,
    name_of,
)
from perdure.testing.simulation.server.runs import Activity, SimulatedChild, SimulatedRun, Update
from perdure.testing.simulation.server.server import SimulatedServer

DIGEST_BYTES = 16

_LOST = frozenset({"WORKFLOW_TASK_TIMED_OUT", "WORKFLOW_TASK_FAILED"})


class States:
    """The states of one simulation, as digests.

    Two states are equal if the same may follow, and the same can be checked of it. So a digest has
    no trace of a workflow task that was lost: the workflow never learns of it.
    """

    def __init__(self, simulated: Simulated, clock: OpenClock, choices: OpenChoices) -> None:
        self._simulated = simulated
        self._clock = clock
        self._choices = choices
        self._histories: dict[SimulatedRun, HistoryDigest] = {}

    def digest(self) -> bytes:
        """Return the digest of the state.

        How many detours are left is part of it, and with limited detours which of the pending
        events is the oldest. How many kills are left is not.
        """
        made = blake2b(digest_size=DIGEST_BYTES)
        for run in self._simulated.server.runs:
            history = self._histories.setdefault(run, HistoryDigest(run))
            made.update(history.digest())
            made.update(repr(self._kept(run, history.number)).encode())
        pending = [self.described(one.happens) for one in self._clock.pending]
        if self._choices.detours is None:
            pending.sort()
        timers = sorted((at_ns, self.described(fires)) for at_ns, _, fires in self._clock.timers)
        world = self._simulated.world
        effects = sorted(
            (one.activity.run.begun.run_id, one.activity.key, one.call_id) for one in world.effects
        )
        spent = sorted((first, str(bill)) for first, bill in world.spent.items())
        sent = sorted((one.workflow_id, one.id) for one in self._simulated.people.sent)
        now_ns = self._clock.now_ns
        made.update(repr((now_ns, pending, timers, effects, spent, sent)).encode())
        made.update(repr(self._choices.detours).encode())
        return made.digest()

    def _kept(self, run: SimulatedRun, number: Number) -> tuple[object, ...]:
        """Return what the server keeps of a run besides its history.

        The updates are in their order, in which a task hands over those that wait.
        """
        updates = [(one.id, one.answer.name, one.is_sent) for one in run.updates.values()]
        return (
            *(run.begun.run_id, run.stage.name, run.attempt, number(run.seen), run.closed),
            *(run.core is None, run.signals, run.is_cancelled),
            updates,
            sorted(map(self.described, run.activities.values())),
            sorted(map(number, run.timers)),
            sorted(map(number, run.children)),
            [described(one, number) for one in run.buffered],
        )

    def described(self, value: object) -> str:
        """Return what a value is, with the numbers of events in the histories of this state."""
        run = _cells(value).get("run") if isinstance(value, FunctionType) else None
        history = self._histories.get(run) if isinstance(run, SimulatedRun) else None
        return described(value, history.number if history else _as_it_is)


class HistoryDigest:
    """The digest of the history of a run, which is made anew only from its last task on.

    Attributes:
        run: The run.
    """

    def __init__(self, run: SimulatedRun) -> None:
        self.run = run
        self._settled = blake2b(digest_size=DIGEST_BYTES)
        self._settled_events = 0
        self._without: list[int] = []

    def digest(self) -> bytes:
        """Return the digest of all events, but for those of lost tasks.

        What comes before the completion of a workflow task is never taken back.
        """
        events = self.run.history.events
        names = [name_of(event) for event in events[self._settled_events :]]
        done = len(names) - names[::-1].index(COMPLETED) if COMPLETED in names else 0
        self._leave_out(names)
        for event in events[self._settled_events : self._settled_events + done]:
            self._add(self._settled, event)
        self._settled_events += done
        made = self._settled.copy()
        for event in events[self._settled_events :]:
            self._add(made, event)
        return made.digest()

    def number(self, event_id: int) -> int:
        """Return the number of an event among those that are not left out."""
        return event_id - bisect(self._without, event_id)

    def _leave_out(self, names: list[str]) -> None:
        """Note which of the events that are not settled are those of lost tasks."""
        first = self._settled_events + 1
        del self._without[bisect(self._without, self._settled_events) :]
        started = 0
        for event_id, name in enumerate(names, first):
            if name == STARTED:
                started = event_id
            is_lost = name in _LOST and not is_reset(self.run.history.events[event_id - 1])
            if name == SCHEDULED or is_lost:
                self._without += [started, event_id] if is_lost else [event_id]
        self._without.sort()

    def _add(self, made: blake2b, event: HistoryEvent) -> None:
        if self.number(event.event_id) == self.number(event.event_id - 1):
            return
        shown = HistoryEvent()
        shown.CopyFrom(event)
        shown.event_id = self.number(event.event_id)
        content = attributes(shown)
        for field, value in content.ListFields():
            if field.name.endswith("_event_id"):
                setattr(content, field.name, self.number(value))
        if name_of(event) == STARTED:
            content.Clear()  # the size of the history
        made.update(shown.SerializeToString(deterministic=True))


Number = Callable[[int], int]
"""Returns the number of an event without those that are left out."""


def _as_it_is(event_id: int) -> int:
    return event_id


def described(value: object, number: Number = _as_it_is) -> str:
    """Return what a value is: for a function, its code and the values that it closes over.

    Raises:
        TypeError: The value is of a type of which is not known what makes it the same.
    """
    match value:
        case dict():
            return str([(key, _named(str(key), one, number)) for key, one in value.items()])
        case list() | tuple():
            return str([described(one, number) for one in value])
        case MethodType():
            return f"{value.__qualname__} of {described(value.__self__)}"
        case FunctionType():
            return _of_function(value, number)
    for kind, shown in _SHOWN.items():
        if isinstance(value, kind):
            return shown(value)
    raise TypeError(f"the state of a simulation has a {type(value).__name__}")


def _of_function(function: FunctionType, number: Number) -> str:
    cells = [_named(name, value, number) for name, value in _cells(function).items()]
    defaults = [described(default, number) for default in function.__defaults__ or ()]
    place = f"{function.__qualname__} {function.__code__.co_firstlineno}"
    return f"{place} {cells} {defaults}"


def _named(name: str, value: object, number: Number) -> str:
    """Return what a value with a name is: some values are the numbers of events."""
    if name.endswith("event_id") and isinstance(value, int):
        return str(number(value))
    return described(value, number)


def _cells(function: FunctionType) -> dict[str, object]:
    """Return the values that a function closes over, by their names."""
    contents = (cell.cell_contents for cell in function.__closure__ or ())
    return dict(zip(function.__code__.co_freevars, contents, strict=True))


def _of_activity(activity: Activity) -> str:
    flags = f"{activity.attempt} {activity.is_started} {activity.is_cancelled}"
    return f"{activity.run.begun.run_id} {activity.key} {flags}"


_SHOWN: dict[type | UnionType, Callable[[Any], str]] = {
    str | int | float | bytes | Enum | BaseModel | NoneType: repr,
    Message: lambda message: str(message.SerializeToString(deterministic=True).hex()),
    SimulatedRun: lambda run: str(run.begun.run_id),
    Activity: _of_activity,
    SimulatedChild: lambda child: str(child.workflow_id),
    Update: lambda update: str(update.id),
    # what is described by itself
    SimulatedServer | SimulatedAttempts | Effects | People: lambda part: type(part).__name__,
}
"""What makes values of these types the same."""
