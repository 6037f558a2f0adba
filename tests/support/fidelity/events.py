"""Events by key in the simulator and on a real server: what must be the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.history.v1 import HistoryEvent

from perdure.activities.provider import ModelRequest
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.temporal.keyed_events import start_of
from perdure.temporal.names import EMIT, TURN
from perdure.temporal.payloads import pack
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.reading import catch_up
from perdure.testing.simulation.server.attempts import SimulatedAttempts
from perdure.testing.simulation.server.clock import VirtualClock
from perdure.testing.simulation.server.commands import LOCAL, local_type
from perdure.testing.simulation.server.effects import Effects
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.sdk import TASK_QUEUE, BegunRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.worker import SimulatedWorker
from perdure.testing.simulation.world import SimulatedWorld
from perdure.turn.event_keys import workflow_id
from perdure.turn.facts import Emitted, Recorded, WaitBegan, WaitEnded
from perdure.turn.wait_values import Emit
from perdure.turn.wire import TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.tasks import Task

from ..keyed_events import MODEL, task, waiter

NAME = "built"
FIRST, SECOND = "e1", "e2"
"""The ids of the events: the first is there before the turns wait, and is sent again later."""
_TURNS_S, _EVENTS_S, _END_S = 5, 20, 60
_KEPT = (
    "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED",
    "WORKFLOW_EXECUTION_UPDATE_ACCEPTED",
    "WORKFLOW_EXECUTION_UPDATE_COMPLETED",
    "WORKFLOW_EXECUTION_SIGNALED",
)


@dataclass(frozen=True)
class Waited:
    """What is compared of a turn that waits for events.

    Attributes:
        facts: Its facts about waits and events, in their order.
        registered: How often it was registered.
    """

    facts: tuple[str, ...]
    registered: int


def waited(facts: Iterable[Recorded], events: Iterable[HistoryEvent]) -> Waited:
    """What is compared of a turn."""
    kept = [told for fact in facts if (told := _told(fact))]
    return Waited(tuple(kept), sum(_is_registration(event) for event in events))


def _told(fact: Recorded) -> str:
    match fact:
        case Emitted(event):
            return f"emitted {event.id} {event.name} {event.body}"
        case WaitBegan(kind=kind, calls=calls):
            return f"{kind} {[(wait.key, wait.event) for wait in calls]}"
        case WaitEnded(woken=ends):
            return f"ended {[(end.key, end.by, end.event_id, end.event) for end in ends]}"
        case _:
            return ""


def _is_registration(event: HistoryEvent) -> bool:
    is_marker = name_of(event) == "MARKER_RECORDED"
    return is_marker and attributes(event).marker_name == LOCAL and "waiter" in local_type(event)


def kept(events: Iterable[HistoryEvent]) -> Counter[str]:
    """How often the workflow that keeps events was told something, and has told something."""
    return Counter(name for event in events if (name := name_of(event)) in _KEPT)


def answers(key: str) -> str:
    """The task of a turn that waits for an event, and then with two calls for the next."""
    return task([{"key": key}], [{"key": key}, {"key": key}])


class _Worker(SimulatedWorker):
    """A worker whose models are those of the real one."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer as the function of the model does."""
        return await MODEL.complete(request)


def simulated(key: str, turns: int) -> tuple[list[Waited], Counter[str]]:
    """So many turns that wait in the simulator, and the workflow that keeps the events."""
    choices = Choices(0, ())
    server = SimulatedServer(choices, VirtualClock(choices))
    worker = _Worker(server, [waiter(parallel_tools=True)], SimulatedWorld(choices))
    worker.client.task_timeout = timedelta(seconds=10)
    server.on_event.append(catch_up)
    Effects(server, SimulatedAttempts(server, worker))

    def start() -> None:
        for number in range(turns):
            run_id = server.new_run_id()
            request = TurnRequest(agent="waiter", task=Task(content=answers(key)))
            begun = BegunRun(f"turn-{number}", run_id, run_id, TURN, 0)
            server.start(begun, [pack(request).payload])

    def emit(event_id: str) -> None:
        started = start_of(NAME, key, TASK_QUEUE)
        run = worker.client.running(started["workflow"], started["arg"], started["id"])
        server.update(run, event_id, EMIT, pack(Emit(name=NAME, body=f'"{event_id}"')))

    emit(FIRST)
    server.clock.later(_TURNS_S, start)
    for event_id in (FIRST, SECOND):
        server.clock.later(_EVENTS_S, lambda event_id=event_id: emit(event_id))  # type: ignore[misc]
    try:
        while server.clock.now_s < _END_S and server.clock.step():
            pass
        played = [run for run in server.runs if run.begun.type == TURN]
        [keeper] = [run for run in server.runs if run.id == workflow_id(NAME, key)]
        shown = [waited(run.facts, run.history.events) for run in played]
        return shown, kept(keeper.history.events)
    finally:
        for run in server.runs:
            run.evict()


async def facts_of(reader: HistoryReader, events: Sequence[HistoryEvent]) -> list[Recorded]:
    """The facts of a real history."""
    return [fact for event in events for fact in await reader.facts(event)]
