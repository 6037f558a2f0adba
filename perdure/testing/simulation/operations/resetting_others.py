"""The operators who reset what is no turn at the root, which `resetting.py` has.

They reset delegates, sessions and their turns, parts of a batch, and runs that were continued, as
the pages say: a delegate, a turn of a session and a part are reset while whatever has begun them
waits for their end, and signals that came since are delivered again. A batch itself is not reset.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.temporal.names import BATCH_PART, SESSION, TURN
from perdure.testing.simulation.observations import chain
from perdure.testing.simulation.people import People
from perdure.testing.simulation.server.history import name_of
from perdure.testing.simulation.server.resets import Resets
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.world import SimulatedBill, SimulatedWorld
from perdure.values.budgets import Spending

OPERATORS = "operators"
"""The feature, and the sequence of its choices."""

_PAUSES_S = (5, 20, 1, 60)
_LEAVES_OUT = ((), (), ("updates",))
_STARTED = "CHILD_WORKFLOW_EXECUTION_STARTED"


class OtherResets:
    """Resets some workflows, one after another."""

    def __init__(
        self, server: SimulatedServer, resets: Resets, world: SimulatedWorld, people: People
    ) -> None:
        self._server = server
        self._resets = resets
        self._world = world
        self._people = people
        self._left = server.choices.pick((1, 2, 3), beside=OPERATORS)
        server.on_event.append(self._watch)

    def _watch(self, run: SimulatedRun) -> None:
        """Reset something some time after the start of a child, or of a run that goes on."""
        is_start = name_of(run.history.events[-1]) == _STARTED or (
            len(run.history) == 1 and bool(run.begun.continued)
        )
        if is_start and self._left and self._happens(3):
            self._left -= 1
            pause_s = self._server.choices.pick(_PAUSES_S, beside=OPERATORS)
            self._server.clock.later(pause_s, self._reset)

    def _happens(self, one_in: int) -> bool:
        return self._server.choices.happens(one_in, beside=OPERATORS)

    def _reset(self) -> None:
        """Reset a workflow, or a run before its last one, to any of its tasks."""
        last = list(self._candidates())
        if not last:
            return
        base = self._server.choices.pick(last, beside=OPERATORS)
        runs = [run for run in chain(self._server, base) if not run.is_replaced]
        if len(runs) > 1 and self._happens(3):
            base = self._server.choices.pick(runs[:-1], beside=OPERATORS)
        points = self._resets.points(base)
        if not points:
            return
        point = self._server.choices.pick(points, beside=OPERATORS)
        is_of_batch = base.begun.type == BATCH_PART
        leaves_out = () if is_of_batch else self._server.choices.pick(_LEAVES_OUT, beside=OPERATORS)
        self._server.counts[f"resets of a {_kind(base)}"] += 1
        run = self._resets.reset(base, point, leaves_out=leaves_out, has_account=not is_of_batch)
        if not is_of_batch:
            self._forget_bills(base.root, run.root)
        self._people.come_back()

    def _forget_bills(self, before: SimulatedRun, root: SimulatedRun) -> None:
        """Count of the bills only what the turns know that go on."""
        billed = self._world.spent.get(before.account, SimulatedBill())
        known = _counted(self._server, root)
        tokens, usd = min(billed.tokens, known.tokens), min(billed.usd, known.usd)
        self._world.spent[root.account] = SimulatedBill(tokens, usd)

    def _candidates(self) -> Iterator[SimulatedRun]:
        """Yield the open last runs of what may be reset: one kind of them, mostly."""
        for run in self._server.runs:
            parent = run.parent[0] if run.parent else None
            is_awaited = parent is None or (not parent.closed and parent.children)
            if run.closed or run.is_left or not is_awaited or run.takes_back:
                continue
            kind = run.begun.type
            is_of_turns = kind == TURN and (parent is None or parent.begun.type in (TURN, SESSION))
            if is_of_turns or kind in (SESSION, BATCH_PART):
                yield run


def _kind(run: SimulatedRun) -> str:
    """Return what a run is, for the counts."""
    if run.begun.type != TURN:
        return {SESSION: "session", BATCH_PART: "part"}[run.begun.type]
    return "delegate" if run.is_delegate else "turn"


def _counted(server: SimulatedServer, run: SimulatedRun) -> Spending:
    """Return what a run knows to be spent, with what its open children do."""
    ledger = run.session.ledger if run.begun.type == SESSION else run.read.accounts.ledger
    children = [one for one in server.runs if one.parent and one.parent[0] is run]
    return sum(
        (_counted(server, one) for one in children if not one.closed),
        start=ledger.spent,
    )
