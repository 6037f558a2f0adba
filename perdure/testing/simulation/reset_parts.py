"""What the pages do not promise after a reset of a part of a batch."""

from __future__ import annotations

from perdure.temporal.names import BATCH_PART, TURN
from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.server.runs import SimulatedRun


def has_reset_parts(simulated: Simulated) -> bool:
    """Return whether a part was reset, after which its places and its money may be used twice."""
    return any(run.begun.type == BATCH_PART and run.is_replaced for run in simulated.server.runs)


def is_left(simulated: Simulated, run: SimulatedRun) -> bool:
    """Return whether the turn of a task was begun by a part before its reset, and is nobody's now.

    A part that is told to stop begins no turns again, and does not look for those. An operator may
    terminate it, too, before it has found that a turn runs already.
    """
    part = run.parent[0] if run.parent else None
    if run.begun.type != TURN or part is None or not part.is_replaced:
        return False
    last = simulated.server.last_run_of(part.id)
    if part.begun.type != BATCH_PART or last is None:
        return False
    return run.id not in last.part.begun or last.closed == "WORKFLOW_EXECUTION_TERMINATED"
