"""Whether a history waits for people, for the simulator and for a real server."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.api.history.v1 import HistoryEvent

from perdure.testing.simulation.server.history import attributes, name_of

_OPENS = (
    "ACTIVITY_TASK_SCHEDULED",
    "START_CHILD_WORKFLOW_EXECUTION_INITIATED",
    "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED",
    "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED",
)
_BEGUN_BY = ("scheduled_event_id", "initiated_event_id", "started_event_id")
"""The names by which an event has the number of the event that began what it ends."""
_NO_ENDS = ("ACTIVITY_TASK_STARTED", "ACTIVITY_TASK_CANCEL_REQUESTED")
_LONG_S = 30
"""A timer that takes longer is for what people have not done in time."""


def is_waiting(events: Sequence[HistoryEvent]) -> bool:
    """Whether nothing of a run is pending: no task, no activity, nothing that is sent, no pause."""
    tasks = [name for event in events if (name := name_of(event)).startswith("WORKFLOW_TASK")]
    if not tasks or tasks[-1] != "WORKFLOW_TASK_COMPLETED":
        return False
    begun = {event.event_id for event in events if _opens(event)}
    for event in events:
        if name_of(event) not in _NO_ENDS:
            for name in _BEGUN_BY:
                begun.discard(getattr(attributes(event), name, 0))
    return not begun


def _opens(event: HistoryEvent) -> bool:
    name = name_of(event)
    if name == "TIMER_STARTED":
        return bool(attributes(event).start_to_fire_timeout.ToSeconds() < _LONG_S)
    return name in _OPENS
