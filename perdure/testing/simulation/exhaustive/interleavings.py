"""Simulates every interleaving of the small turn, with all checks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from traceback import format_exception

from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.testing.simulation import promises
from perdure.testing.simulation.exhaustive.choices import Branch, OpenChoices, OpenClock
from perdure.testing.simulation.exhaustive.scenario import (
    TURN_ID,
    Interference,
    SmallAttempts,
    SmallPeople,
    SmallServer,
    SmallWorld,
    small_agents,
)
from perdure.testing.simulation.exhaustive.search import (
    BrokenChoices,
    DepthFirstSearch,
    KnownStateError,
    Searched,
)
from perdure.testing.simulation.exhaustive.states import States
from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.reading import catch_up
from perdure.testing.simulation.server.effects import Effects
from perdure.testing.simulation.server.sdk import BegunRun
from perdure.testing.simulation.server.server import BrokenError
from perdure.testing.simulation.shrinking import shrink
from perdure.testing.simulation.story import story
from perdure.testing.simulation.worker import SimulatedWorker
from perdure.turn.wire import TurnRequest
from perdure.values.tasks import Task

_MOST_STEPS = 2000
_MOST_HELP = 3
_MOST_TRIES = 60
_SHOW_EVERY_S = 15


@dataclass(frozen=True)
class Space:
    """A set of interleavings.

    Attributes:
        interference: What the people do at some moment, besides approving.
        kills: How many times something is killed, at most.
        detours: How many times another event than the oldest one is the next, at most; None for
            every order.
    """

    interference: Interference
    kills: int
    detours: int | None = None

    def __str__(self) -> str:
        orders = {None: "every order", 0: "orders without detours"}
        order = orders.get(self.detours, f"orders with at most {self.detours} detours")
        return f"{self.interference}, at most {self.kills} kills, {order}"


@dataclass(frozen=True)
class Interleaving:
    """One interleaving, after its end.

    Attributes:
        choices: Its choices.
        broken: The promise that was broken; None if all were kept.
        story: What happened, event by event.
    """

    choices: tuple[int, ...]
    broken: BrokenError | None
    story: str


def exhaust(
    space: Space,
    *,
    prunes: bool = True,
    helped: bool = False,
    show: Callable[[str], None] | None = None,
) -> Searched:
    """Simulate all interleavings of a space, in processes that are forked from this one.

    Args:
        space: What is simulated.
        prunes: Whether a state that was met before is not searched again.
        helped: Whether a second searcher uses another core.
        show: Called with the counts so far, every 15 seconds.
    """
    search = DepthFirstSearch(space.kills, prunes=prunes)

    def simulated() -> BrokenChoices | None:
        game = _Game(space, search.branch, search.meet)
        broken = game.play()
        if broken is None:
            return None
        return BrokenChoices(tuple(game.choices.made), broken.promise, str(broken))

    interleaving(space, ())  # imports and caches, once for all processes
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection would copy the memory that the processes share
    try:
        with (
            search.progress(_SHOW_EVERY_S, show) if show else nullcontext(),
            search.helped(simulated) if helped else nullcontext(),
        ):
            return search.run(simulated)
    finally:
        gc.enable()
        gc.unfreeze()


def interleaving(space: Space, choices: Sequence[int]) -> Interleaving:
    """Simulate the interleaving of a space with these choices, and then with the first options."""
    left = list(reversed(choices))

    def branch(count: int, *, is_kill: bool = False) -> int:
        return min(left.pop(), count - 1) if left else 0

    game = _Game(space, branch, lambda state: None)
    broken = game.play()
    return Interleaving(tuple(game.choices.made), broken, story(game.server, broken))


def shortest(space: Space, found: BrokenChoices) -> Interleaving:
    """Return an interleaving with fewer choices that breaks the same promise."""

    def tried(choices: Sequence[int]) -> Interleaving | None:
        again = interleaving(space, choices)
        return again if again.broken and again.broken.promise == found.promise else None

    first = interleaving(space, found.choices)
    return shrink(first, lambda one: one.choices, tried, _MOST_TRIES)


class _Game:
    """One simulation of the small turn."""

    def __init__(self, space: Space, branch: Branch, meet: Callable[[bytes], None]) -> None:
        is_plain = space.interference == "message"
        self.choices = OpenChoices(branch, space.kills, space.detours)
        self.clock = OpenClock(self.choices, are_delegates_apart=is_plain)
        self.server = SmallServer(self.choices, self.clock)
        self._world = SmallWorld(self.choices)
        worker = self._worker = SimulatedWorker(self.server, small_agents(), self._world)
        self._space = space
        self._meet = meet
        self.server.on_event.append(catch_up)
        self.server.on_task += promises.AFTER_TASKS
        Effects(self.server, SmallAttempts(self.server, worker))

    def play(self) -> BrokenError | None:
        """Simulate until nothing happens any more; return the first broken promise.

        Raises:
            KnownStateError: What follows was searched before.
        """
        try:
            self._play()
        except BrokenError as error:
            return error
        except KnownStateError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, its story is told
            return BrokenError("nothing raises", "".join(format_exception(error)[-4:]))
        return None

    def _play(self) -> None:
        people = SmallPeople(self.server, self._space.interference)
        request = TurnRequest(agent="first", task=Task(content="go"))
        simulated = Simulated(self.server, self._world, people, request, self._worker)
        run_id = self.server.new_run_id()
        begun = BegunRun(TURN_ID, run_id, run_id, TURN, 0)
        self.server.start(begun, [pack(request).payload])
        helped, states = 0, States(simulated, self.clock, self.choices)
        for _ in range(_MOST_STEPS):
            self._meet(states.digest())
            if not self.clock.step():
                helped += 1
                if helped > _MOST_HELP or not people.help():
                    break
            for check in promises.ALWAYS:
                check(simulated)
        for check_end in promises.AT_THE_END:
            check_end(simulated)
        for run in self.server.runs:
            self.server.replayed(run).evict()
