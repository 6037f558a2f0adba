"""What the pages do not promise after a reset of a part of a batch."""

from __future__ import annotations

from perdure.temporal.names import BATCH_PART, TURN
from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.server.runs import SimulatedRun


def has_reset_parts(simulated: Simulated) -> bool:
    """Return whether a part was reset, after which its places and its money may be used twice."""
    return any(run.begun.type == BATCH_PART and run.is_replaced for run in simulated.server.runs)


def is_left(simulated: Simulated, run: SimulatedRun) -> bool:
    """Return whether the turn of a task was begun by a part before its reset, and never again.

    A part that is told to stop begins no turns again, and does not look for those.
    """
    part = run.parent[0] if run.parent else None
    if run.begun.type != TURN or part is None or not part.is_replaced:
        return False
    last = simulated.server.last_run_of(part.id)
    return part.begun.type == BATCH_PART and last is not None and run.id not in last.part.begun
