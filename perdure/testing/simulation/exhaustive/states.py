"""The state of a simulation as a digest: two simulations in one state have the same futures.

A state is the histories of all runs, what the server keeps besides them, what is pending, and what
the world and the people have done. It has no workflow objects: what one knows is what its history
says, which the checks of each simulation compare (the fold is the state, and a replay gives the
same commands).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from hashlib import blake2b
from types import FunctionType, MethodType, NoneType, UnionType
from typing import Any

from google.protobuf.message import Message
from pydantic import BaseModel

from perdure.testing.simulation.exhaustive.choices import OpenChoices, OpenClock
from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.people import People
from perdure.testing.simulation.server.attempts import SimulatedAttempts
from perdure.testing.simulation.server.effects import Effects
from perdure.testing.simulation.server.runs import Activity, SimulatedChild, SimulatedRun, Update
from perdure.testing.simulation.server.server import SimulatedServer

DIGEST_BYTES = 16


def digest(simulated: Simulated, clock: OpenClock, choices: OpenChoices) -> bytes:
    """Return the digest of a state.

    How many kills and detours are left is part of it, and with limited detours which of the pending
    events is the oldest.
    """
    made = blake2b(digest_size=DIGEST_BYTES)
    for run in simulated.server.runs:
        for event in run.history.events:
            made.update(event.SerializeToString(deterministic=True))
        made.update(repr(_kept(run)).encode())
    pending = [described(one.happens) for one in clock.pending]
    if choices.detours is None:
        pending.sort()
    timers = sorted((moment_ns, described(happens)) for moment_ns, _, happens in clock.timers)
    world = simulated.world
    effects = sorted(
        (one.activity.run.begun.run_id, one.activity.key, one.call_id) for one in world.effects
    )
    spent = sorted((first, str(bill)) for first, bill in world.spent.items())
    sent = sorted((one.workflow_id, one.id) for one in simulated.people.sent)
    made.update(repr((clock.now_ns, pending, timers, effects, spent, sent)).encode())
    made.update(repr((choices.kills, choices.detours)).encode())
    return made.digest()


def _kept(run: SimulatedRun) -> tuple[object, ...]:
    """Return what the server keeps of a run besides its history."""
    updates = [(one.id, one.answer.name, one.is_sent) for one in run.updates.values()]
    return (
        *(run.begun.run_id, run.stage.name, run.attempt, run.seen, run.closed),
        *(run.core is None, run.signals, run.is_cancelled),
        sorted(updates),
        sorted(map(described, run.activities.values())),
        sorted(run.timers),
        sorted(run.children),
        [described(one) for one in run.buffered],
    )


def described(value: object) -> str:
    """Return what a value is: for a function, its code and the values that it closes over.

    Raises:
        TypeError: The value is of a type of which is not known what makes it the same.
    """
    match value:
        case dict():
            return str([(described(key), described(one)) for key, one in value.items()])
        case list() | tuple():
            return str([described(one) for one in value])
        case MethodType():
            return f"{value.__qualname__} of {described(value.__self__)}"
        case FunctionType():
            return _of_function(value)
    for kind, shown in _SHOWN.items():
        if isinstance(value, kind):
            return shown(value)
    raise TypeError(f"the state of a simulation has a {type(value).__name__}")


def _of_function(function: FunctionType) -> str:
    cells = [described(cell.cell_contents) for cell in function.__closure__ or ()]
    defaults = [described(default) for default in function.__defaults__ or ()]
    place = f"{function.__qualname__} {function.__code__.co_firstlineno}"
    return f"{place} {cells} {defaults}"


def _of_activity(activity: Activity) -> str:
    flags = f"{activity.attempt} {activity.is_started} {activity.is_cancelled}"
    return f"{activity.run.begun.run_id} {activity.event_id} {flags}"


_SHOWN: dict[type | UnionType, Callable[[Any], str]] = {
    str | int | float | bytes | Enum | BaseModel | NoneType: repr,
    Message: lambda message: str(message.SerializeToString(deterministic=True).hex()),
    SimulatedRun: lambda run: str(run.begun.run_id),
    Activity: _of_activity,
    SimulatedChild: lambda child: f"{child.workflow_id} {child.event_id}",
    Update: lambda update: str(update.id),
    # what is described by itself
    SimulatedServer | SimulatedAttempts | Effects | People: lambda part: type(part).__name__,
}
"""What makes values of these types the same."""
