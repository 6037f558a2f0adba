"""The activity of workers that stores the tasks of a batch of a schedule, as any client does."""

from __future__ import annotations

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from perdure import errors
from perdure.batch.wire import StoreCall, StoredTasks, common_of
from perdure.clients.batches.items import read
from perdure.clients.batches.spool import Spool
from perdure.clients.batches.uploading import Uploader, Work
from perdure.temporal.histories.fetching import first_event
from perdure.temporal.histories.turn_history import raw_value
from perdure.temporal.payloads import unpack
from perdure.temporal.search_marks import Marks
from perdure.turn.wire import TurnRequest

NOT_STORED = (errors.InvalidRequestError, errors.TooLargeError)
"""The errors after which the tasks are not stored: another attempt would not change them."""


async def store_batch(call: StoreCall) -> StoredTasks:
    """Store the tasks of the workflow's batch. What is stored already stays as it is.

    Raises:
        InvalidRequestError: A task is not valid.
        TooLargeError: A task is too large.
        ApplicationError: Temporal does not answer; this is tried again.
    """
    client, info = activity.client(), activity.info()
    try:
        event = await first_event(client, info.workflow_id or "", info.workflow_run_id or "")
    except RPCError as error:
        raise ApplicationError(error.message, type="UNAVAILABLE") from error
    payloads = event.workflow_execution_started_event_attributes.input.payloads
    request = unpack(await raw_value(client.data_converter, payloads), TurnRequest)
    if request.schedule is None or request.schedule.batch is None:
        raise errors.InvalidRequestError("the batch of a schedule has no tasks")
    common = common_of(request, call.slot)
    with Spool() as spool:
        tasks = [dict(item) for item in request.schedule.batch.items]
        digest = await read(info.workflow_id or "", common, tasks, spool)
        work = Work(
            batch=info.workflow_id or "",
            round=1,
            digest=digest,
            common=common,
            indexed=await Marks(client).of(common) is not None,
            priority=call.priority,
            fairness=call.fairness,
            schedule=request.schedule.id,
        )
        parts = await Uploader(client, info.task_queue).parts(work, spool)
        return StoredTasks(digest=digest, items=spool.count, parts=parts)
