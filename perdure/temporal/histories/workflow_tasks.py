"""Where the events of one workflow task end in a history, and those of the next begin."""

from __future__ import annotations

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

COMMANDS = frozenset(
    {
        EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED,
        EventType.EVENT_TYPE_TIMER_STARTED,
        EventType.EVENT_TYPE_TIMER_CANCELED,
        EventType.EVENT_TYPE_MARKER_RECORDED,
        EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED,
        EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
        EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED,
        EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED,
        EventType.EVENT_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
    }
)
"""The types of the events that a workflow task writes with its completion."""

OF_TASKS = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
    }
)
"""The types of the events of the workflow tasks themselves."""

_NO_NEWS = COMMANDS | OF_TASKS
_COMPLETED = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED


class TaskBoundaries:
    """Follows the events of a run, in order, and notices where another workflow task begins.

    A task has the events since the completion of the task before, its own completion, and what it
    has written then. A reader that starts in the middle of a history is at the beginning of a task.
    """

    def __init__(self) -> None:
        self._is_completed = False
        self._is_new = True

    def see(self, event: HistoryEvent) -> None:
        """Note the next event."""
        is_completion = event.event_type == _COMPLETED
        is_news = event.event_type not in _NO_NEWS
        if self._is_completed and (is_news or is_completion):
            self._is_new = True
        if event.event_id == 1:  # the first task has no other one before it
            self._is_new = False
        self._is_completed = is_completion or (self._is_completed and not is_news)

    def begins(self) -> bool:
        """Return whether the fact of the last event is the first of its workflow task."""
        is_new, self._is_new = self._is_new, False
        return is_new
