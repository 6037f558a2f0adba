"""A batch that a schedule starts: its tasks are stored, and then it continues as a batch."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from perdure import errors, limits
from perdure.batch import plan as batch_plan
from perdure.batch.wire import BatchRequest, BatchStopReason, StoreCall, StoredTasks
from perdure.errors import PerdureError
from perdure.temporal import failures
from perdure.temporal.names import BATCH, MEMO_BATCH, SCHEDULED_BATCH, STORE_BATCH
from perdure.temporal.payloads import NOTHING, pack, unpack
from perdure.temporal.search_attributes import SCHEDULED_FOR
from perdure.text import described, one_line
from perdure.turn.slot import Slot
from perdure.turn.wire import TurnRequest
from perdure.values.budgets import NOTHING as NOTHING_SPENT
from perdure.workflows import heartbeats, schedule_total

_REASON_CHARACTERS = 200


@workflow.defn(name=SCHEDULED_BATCH, sandboxed=False, failure_exception_types=[PerdureError])
class AgentScheduledBatch:
    """The first run of a batch of a schedule. Its id is the batch's."""

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> RawValue:
        """Store the tasks, for as long as it takes, and go on as the batch.

        Returns:
            The description of a batch that was cancelled before.

        Raises:
            ApplicationError: The tasks cannot be stored, or nothing is left of the total budget.
        """
        try:
            return await self._begin(unpack(start, TurnRequest))
        except PerdureError as error:
            raise failures.of_activity(error) from error
        except workflow.ContinueAsNewError:
            raise
        except Exception as error:  # a bug must not make the workflow task fail for ever
            workflow.logger.exception("a batch of a schedule failed unexpectedly")
            raise failures.of_activity(PerdureError(described(error))) from error

    async def _begin(self, request: TurnRequest) -> RawValue:
        """Return the description of a batch that was cancelled; others continue in a new run."""
        try:
            schedule_total.check(request)
            following = await _stored(request)
        except errors.TurnBudgetExceededError as error:
            _over(request, BatchStopReason.BUDGET, error.message)
            await schedule_total.count(request.schedule, NOTHING_SPENT, None, is_spent=True)
            raise
        except (ActivityError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error):
                return _over(
                    request, BatchStopReason.CANCELLED, workflow.cancellation_reason() or ""
                )
            refused = errors.from_info(failures.error_in(error.__cause__ or error))
            _over(request, BatchStopReason.FAILED, refused.message)
            raise refused from error
        return _go_on(following)


def _go_on(following: BatchRequest) -> NoReturn:
    """Go on as a batch, in a new run."""
    note = batch_plan.note_of(following, None, over=False)
    memo = {**workflow.memo(), MEMO_BATCH: note.model_dump(mode="json")}
    workflow.continue_as_new(workflow=BATCH, args=[pack(following, "the batch")], memo=memo)


async def _stored(request: TurnRequest) -> BatchRequest:
    """Store the tasks, and return the input of the batch.

    Raises:
        InvalidRequestError: It is not the input of a batch.
        ActivityError: The tasks are refused.
    """
    schedule, info = request.schedule, workflow.info()
    if schedule is None or schedule.batch is None:
        raise errors.InvalidRequestError("a batch of a schedule needs a schedule with tasks")
    at = info.typed_search_attributes.get(SCHEDULED_FOR)
    call = StoreCall(
        slot=None if at is None else Slot(at=at),
        priority=info.priority.priority_key,
        fairness=info.priority.fairness_key,
    )
    result: RawValue = await workflow.execute_activity(
        STORE_BATCH,
        pack(call),
        result_type=RawValue,
        start_to_close_timeout=limits.BATCH_UPLOAD,
        heartbeat_timeout=heartbeats.timeout(),
        retry_policy=RetryPolicy(maximum_interval=limits.BENCH),
        summary="the tasks",
    )
    stored = unpack(result, StoredTasks)
    return BatchRequest(
        agent=request.agent,
        digest=stored.digest,
        items=stored.items,
        parts=stored.parts,
        at_once=schedule.batch.at_once,
        budget=schedule.account.within(request.budget) if schedule.account else request.budget,
        on_error=schedule.batch.on_error,
        schedule=schedule.model_copy(update={"batch": None, "offsets": ()}),
    )


def _over(request: TurnRequest, stop: BatchStopReason, reason: str) -> RawValue:
    """Record that the batch ends before it has begun, and return its description."""
    note = batch_plan.unstored(request).model_copy(
        update={"stop": stop, "reason": one_line(reason, _REASON_CHARACTERS), "over": True}
    )
    workflow.upsert_memo({MEMO_BATCH: note.model_dump(mode="json")})
    return pack(note, "the result of the batch")
