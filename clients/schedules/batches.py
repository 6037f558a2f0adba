"""Schedules that run batches: the tasks are read, and what goes with a batch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from perdure import errors, validation
from perdure.batch.wire import common_of
from perdure.clients.batches.handle import check_at_once
from perdure.clients.batches.items import BatchOf, checked, each
from perdure.clients.batches.spool import Spool
from perdure.turn.slot import Slot
from perdure.turn.wire import TurnRequest
from perdure.values.batch_items import OnError, ScheduledBatch
from perdure.values.budgets import ABudget

_GIVEN: dict[str, Any] = {
    "at_once": validation.Count,
    "turn_budget": ABudget | None,
    "on_error": OnError,
}


async def with_tasks(arguments: Any) -> Any:
    """Return the arguments of a schedule with the tasks of any batch, as stored.

    Raises:
        InvalidRequestError: It is not a batch, an option or a task of it is not valid, or it has
            no tasks.
    """
    batch = arguments.get("batch")
    if batch is None:
        return arguments
    if not isinstance(batch, BatchOf):
        raise errors.InvalidRequestError(
            f"the schedule: batch must be a BatchOf or None, not {type(batch).__name__}"
        )
    options = {name: getattr(batch, name) for name in _GIVEN}
    validation.check("the batch", options, _GIVEN, errors.InvalidRequestError)
    check_at_once(batch.at_once)
    with Spool() as spool:
        async for _ in each(batch.tasks, spool):
            pass
        stored = ScheduledBatch(items=tuple(spool), **options)
    return {**arguments, "batch": stored}


def check(batch_id: str, request: TurnRequest) -> None:
    """Reject tasks that cannot be run. `request` is the input of a batch with this id.

    Raises:
        InvalidRequestError: There is a task beside the tasks of the batch, or an id of a task is
            too long.
        TooLargeError: A task is too large.
    """
    if request.task.content:
        raise errors.InvalidRequestError(
            "the schedule: give a task or a batch, not both: a batch has tasks of its own, and a"
            " context for all of them"
        )
    batch = request.schedule.batch if request.schedule else None
    for slot in (None, Slot(at=datetime.now(UTC))):  # without a task, the time alone is none
        common = common_of(request, slot)
        for number, item in enumerate(batch.items if batch else (), 1):
            checked(batch_id, common, item, f"task {number}")
