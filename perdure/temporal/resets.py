"""What a run of a turn did before it was reset.

A reset forgets what came after a point of the history, and undoes none of it. The history of the
run before is still there, and has the effects. So have the runs that continued it: a reset forgets
them, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.temporal import settlements
from perdure.temporal.histories.fetching import recorded
from perdure.temporal.histories.runs import run_after
from perdure.turn import effects
from perdure.turn.fold import apply
from perdure.turn.state import TurnState
from perdure.values.effects import EffectRecord, latest

_RESET = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


@contextlib.contextmanager
def unless_gone() -> Iterator[None]:
    """Go on without a history whose retention is over."""
    try:
        yield
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


def is_reset(first: HistoryEvent, run_id: str) -> bool:
    """Return whether a run was reset, by its first event: it began as another run."""
    original = first.workflow_execution_started_event_attributes.original_execution_run_id
    return original not in ("", run_id)


async def effects_before(
    client: Client, turn_id: str, run_id: str, *, is_worker: bool = False
) -> list[EffectRecord]:
    """Return the effects of the runs that a run was reset from.

    `is_worker` is as in `HistoryReader`.

    Raises:
        RPCError: The server does not answer.
    """
    records: list[EffectRecord] = []
    async for event, _ in recorded(client, turn_id, run_id, is_worker=is_worker):
        failed = event.workflow_task_failed_event_attributes
        is_failure = event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        if is_failure and failed.cause == _RESET:
            with unless_gone():
                before = failed.base_run_id
                records += await _of_runs(client, turn_id, before, is_worker=is_worker)
    return records


async def _of_runs(
    client: Client, turn_id: str, run_id: str, *, is_worker: bool
) -> list[EffectRecord]:
    """Return the effects of a run, and of the runs that continued it."""
    own: list[str] = []
    records: tuple[EffectRecord, ...] = ()
    while run_id:
        own.append(run_id)
        state, later = TurnState(), ""
        async for event, fact in recorded(client, turn_id, run_id, is_worker=is_worker):
            state = state if fact is None else apply(state, fact)
            later = run_after(event)
        records = latest((*records, *effects.gathered_so_far(state)))
        run_id = later
    return [  # what was said after the reset is about other calls
        record if record.turn_id else await settlements.applied(client, record, turn_id, own)
        for record in records
    ]
