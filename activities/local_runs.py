"""Refuses local calls that may have killed a worker before.

Temporal counts no attempts of a local activity: when a worker is lost, the workflow task is done
again, and with it the local calls that it had begun. A call that kills its worker would do so for
ever. A refused call is made as an ordinary activity, whose lost attempts the turn counts.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.activities.transcripts import Transcripts
from perdure.temporal import failures
from perdure.temporal.histories.fetching import backwards
from perdure.temporal.recent import Recent
from perdure.turn.keys import ToolKey, parse_key

_KNOWN_CALLS = 10_000
_BEGUN = (
    EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
)


class LocalRuns:
    """The local calls that this process has begun. Its methods run on the worker's loop."""

    def __init__(self, transcripts: Transcripts) -> None:
        self._transcripts = transcripts
        self._begun = Recent[tuple[str, str], bool](_KNOWN_CALLS)

    async def check(self, client: Client, info: activity.Info) -> None:
        """Refuse a call that a worker may have begun before.

        Usually this process has just made the model call that asked for it, so this is its first
        run. Otherwise history says whether the workflow task is a repetition.

        Raises:
            ApplicationError: The call has to be an ordinary activity.
        """
        run_id, activity_id = info.workflow_run_id or "", info.activity_id
        if self._begun.get((run_id, activity_id)):
            raise failures.not_local("this process has begun it before")
        self._begun.put((run_id, activity_id), True)
        key = parse_key(activity_id)
        if isinstance(key, ToolKey) and self._transcripts.awaits(run_id, key):
            return
        if await _is_repeated(client, info.workflow_id or "", run_id):
            raise failures.not_local("its workflow task was begun before")


async def _is_repeated(client: Client, turn_id: str, run_id: str) -> bool:
    """Return whether the turn's workflow task was begun before, as far as is known.

    The server's own count starts again after a worker with a sticky queue is lost.
    """
    try:
        async for event in backwards(client, turn_id, run_id):
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                return False
            if event.event_type in _BEGUN and not _was_not_taken(event):
                return True
    except RPCError:
        return True
    return False


def _was_not_taken(event: HistoryEvent) -> bool:
    timed_out = event.workflow_task_timed_out_event_attributes
    return timed_out.timeout_type == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START
