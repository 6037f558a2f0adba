"""The operator of a simulation, who resets a turn in Temporal: while it runs, or after its end."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.temporal.names import CHILD_NEWS
from perdure.testing.simulation.choices import BRANCHES, RESETS
from perdure.testing.simulation.people import People
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.resets import INITIATED, Resets
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.world import SimulatedBill, SimulatedWorld

_PAUSES_S = (20, 5, 1, 60)
_SOON_S, _AT_ONCE_S = (1, 0.3, 4), (0.1, 0, 0.3)
_SIGNALED = "WORKFLOW_EXECUTION_SIGNALED"
_DELEGATE_STARTED = "CHILD_WORKFLOW_EXECUTION_STARTED"
_CANCELLED = "cancelled after a reset"
"""The sequence of resets after the start of a delegate that a cancel follows."""
_LEAVES_OUT = ((), (), ("signals",), ("updates",), ("signals", "updates"))


class TurnResets:
    """Resets one turn some times, in most simulations never.

    What was billed until the point is in the ledger of the new run, so it counts there; what the
    old run was billed since then does not.
    """

    def __init__(
        self, server: SimulatedServer, resets: Resets, world: SimulatedWorld, people: People
    ) -> None:
        self._server = server
        self._resets = resets
        self._world = world
        self._people = people
        self._aims = server.choices.aims_at(RESETS)
        is_often = self._aims or server.choices.aims_at(BRANCHES)
        self._left = 3 if is_often else server.choices.pick((0, 0, 1, 2, 3))
        if self._aims:
            server.on_event.append(self._watch)
        else:
            self._later()

    def _watch(self, run: SimulatedRun) -> None:
        """Reset the turn soon after the start of a delegate, or after its news that it waits.

        Then the turn is cancelled, in half of the simulations.
        """
        if not self._left or run.id != self._people.workflow_id:
            return
        event = run.history.events[-1]
        is_news = name_of(event) == _SIGNALED and attributes(event).signal_name == CHILD_NEWS
        is_start = name_of(event) == _DELEGATE_STARTED
        is_cancelled = (is_news or is_start) and self._server.choices.happens(2, beside=_CANCELLED)
        if is_cancelled or is_start:
            self._left -= 1
            seconds = self._server.choices.pick(_SOON_S)
            self._server.clock.later(seconds, lambda: self._reset(is_cancelled=is_cancelled))

    def _later(self) -> None:
        if self._left and not self._aims:
            self._left -= 1
            self._server.clock.later(self._server.choices.pick(_PAUSES_S), self._reset)

    def _reset(self, *, is_cancelled: bool = False) -> None:
        """Reset the turn to one of its last tasks, or to any other one; then cancel it, or not."""
        base = self._server.last_run_of(self._people.workflow_id)
        points = self._resets.points(base) if base is not None else []
        if base is not None and points:
            event_id = points[0] if is_cancelled else self._point(base, points)
            leaves_out = self._server.choices.pick(_LEAVES_OUT)
            run = self._resets.reset(base, event_id, leaves_out=leaves_out)
            spent = run.read.accounts.ledger.spent
            self._world.spent[run.account] = SimulatedBill(spent.tokens, spent.usd)
            self._people.come_back()
            if is_cancelled:
                self._server.clock.later(self._server.choices.pick(_AT_ONCE_S), self._cancel)
        self._later()

    def _cancel(self) -> None:
        run = self._server.run_of(self._people.workflow_id)
        if run is not None:
            self._people.cancelled |= self._server.cancel(run, "after a reset")

    def _point(self, base: SimulatedRun, points: Sequence[int]) -> int:
        """Return any of the tasks, or often one beside the start of a delegate."""
        aimed = _beside_delegate(base, points)
        if aimed and (self._aims or self._server.choices.happens(2, beside="resets")):
            return aimed
        return self._server.choices.pick(points)


def _beside_delegate(base: SimulatedRun, points: Sequence[int]) -> int:
    """Return the task before the start of the last delegate that runs; 0 if there is none.

    If a delegate has another id than usual, as another run has the first one, the task after that.
    """
    events = base.history.events
    begun = [one.event_id for one in events if name_of(one) == INITIATED]
    is_again = any(name_of(one) == "START_CHILD_WORKFLOW_EXECUTION_FAILED" for one in events)
    if is_again:
        return min((point for point in points if point > begun[-1]), default=0)
    running = [number for number in begun if number in base.children]
    if not running:
        return 0
    return max((point for point in points if point < running[-1]), default=0)
