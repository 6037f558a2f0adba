"""The points to which a run can be reset, in the simulator and on a real server."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.api.history.v1 import HistoryEvent

from perdure.temporal.names import CALL_MODEL, RECORD_TURN
from perdure.testing.simulation.server.history import COMPLETED, attributes, name_of

_UPDATED = "WORKFLOW_EXECUTION_UPDATE_ACCEPTED"
_ACTIVITY = "ACTIVITY_TASK_SCHEDULED"


def points(events: Sequence[HistoryEvent]) -> dict[str, int]:
    """The workflow tasks to whose ends a run can be reset, by something that each of them does.

    Which tasks there are depends on what arrives together. But a task that asks a model, accepts an
    update or records a turn comes after all that was done before, here and there. The first one of
    a turn that asks a model is no point: a real worker resolves the agent in it, and a simulated
    one before.
    """
    found: dict[str, int] = {}
    completed, is_asked = 0, False
    for event in events:
        if name_of(event) == COMPLETED:
            completed = event.event_id
        elif name_of(event) == _UPDATED:
            found[attributes(event).protocol_instance_id] = completed
        elif name_of(event) == _ACTIVITY:
            content = attributes(event)
            name = content.activity_type.name
            if name == CALL_MODEL and not is_asked:
                found.clear()
                is_asked = True
            elif name in (CALL_MODEL, RECORD_TURN):
                found[content.activity_id] = completed
    return found
