"""What Perdure promises of a cancel, as a check of a simulation at its end."""

from __future__ import annotations

from perdure.temporal.names import CALL_MODEL, TURN
from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError

_CANCEL = "WORKFLOW_EXECUTION_CANCEL_REQUESTED"
_REQUEST_CANCEL = 3
"""The parent close policy of children that end with their parent."""
_SOON_NS = 2 * 10**9


def cancels_reach_children(simulated: Simulated) -> None:
    """A turn whose parent was cancelled is asked to stop soon, or asks no model any more.

    The parent is the run that waits for it, also if that is one that a reset has made.
    """
    for child in simulated.server.runs:
        if child.begun.type != TURN or child.parent is None or child.is_cancelled:
            continue
        parent, begun_by = child.parent
        begun = attributes(parent.history.events[begun_by - 1])
        told_ns = _told_of_cancel_ns(parent)
        if parent.is_replaced or begun.parent_close_policy != _REQUEST_CANCEL or not told_ns:
            continue
        if _asked_last_ns(child) > told_ns + _SOON_NS:
            message = f"{parent.id} was cancelled, and this turn asks a model"
            raise BrokenError("cancels reach children", message, child)


def _told_of_cancel_ns(run: SimulatedRun) -> int:
    """Return when a run was told of its cancel, in nanoseconds; 0 if it was not."""
    is_cancelled = False
    for event, moment_ns in run.history.timed if run.is_cancelled else ():
        is_cancelled = is_cancelled or name_of(event) == _CANCEL
        if is_cancelled and name_of(event) == "WORKFLOW_TASK_COMPLETED":
            return moment_ns
    return 0


def _asked_last_ns(run: SimulatedRun) -> int:
    """Return when a turn asked its model for the last time, in nanoseconds; 0 if never."""
    for event, moment_ns in reversed(run.history.timed):
        is_call = name_of(event) == "ACTIVITY_TASK_SCHEDULED"
        if is_call and attributes(event).activity_type.name == CALL_MODEL:
            return moment_ns
    return 0
