"""A part of a batch: it holds some of the tasks, and runs their turns when the batch tells it to.

The client starts all parts before the batch, so a part waits at first. How many turns run at once,
and what they may spend, is in the orders of the batch. Each turn is a child workflow whose id is
made of the ids of batch and task, and the server starts an id once.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import Priority, RawValue, RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    WorkflowAlreadyStartedError,
)

from perdure import limits
from perdure.batch.part import PartState
from perdure.batch.wire import (
    BatchStopReason,
    PartEnd,
    PartNews,
    PartOrder,
    PartRequest,
)
from perdure.errors import PerdureError
from perdure.temporal import failures, outcomes, search_attributes, start_request
from perdure.temporal.names import BATCH_NEWS, BATCH_ORDER, BATCH_PART, READ_CHILD, TURN
from perdure.temporal.payloads import NOTHING, pack, unpack
from perdure.text import described
from perdure.turn.facts import ChildEnded
from perdure.turn.keys import ChildKey
from perdure.turn.wire import ChildRun, ParentRead, TurnRequest
from perdure.values.batch_items import BatchItem
from perdure.workflows import child_handles, heartbeats
from perdure.workflows.ends import has_ended

_KEY = ChildKey(0, 0, 1)
_GONE = "the batch of this turn is gone"

FINDS_AGAIN = "found-again"
"""The patch id of parts that read the end of a turn which they had begun before a reset."""
REMEMBERS = "money-taken-back"
"""The patch id of parts that learn from an order what they had given back before a reset."""
EVEN = "even-shares"
"""The patch id of parts that share money as a batch of this release asks for."""
OWN = "own:"
"""The beginning of the id of an activity that finds out whether a turn is one of the part."""
_UNTIL_OVER = RetryPolicy(
    maximum_interval=timedelta(seconds=30),
    non_retryable_error_types=[failures.NOT_REGISTERED],  # by a worker of an earlier release
)

Handle = workflow.ChildWorkflowHandle[Any, RawValue]


@workflow.defn(name=BATCH_PART, sandboxed=False, failure_exception_types=[PerdureError])
class AgentBatchPart:
    """The workflow of a part. It is not sandboxed, for the same reasons as the turn."""

    def __init__(self) -> None:
        self._orders: list[PartOrder] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._handles: dict[str, Handle] = {}
        self._found: list[str] = []
        self._part: PartState | None = None

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> RawValue:
        """Wait for the batch, run the turns, and return how many have an answer."""
        try:
            request = unpack(start, PartRequest)
            self._part = part = PartState(request)
            working = asyncio.create_task(self._work(request, part))
            while not working.done():
                try:
                    await workflow.wait([working])
                except asyncio.CancelledError:
                    reason = workflow.cancellation_reason() or "the part of the batch was cancelled"
                    self._orders.append(PartOrder(stop=BatchStopReason.CANCELLED, reason=reason))
            return pack(working.result(), "the result of a part")
        except PerdureError as error:
            raise failures.of_activity(error) from error
        except Exception as error:  # a bug must not make the workflow task fail for ever
            workflow.logger.exception("a part of a batch failed unexpectedly")
            raise failures.of_activity(PerdureError(described(error))) from error

    @workflow.signal(name=BATCH_ORDER)
    def order(self, payload: RawValue = NOTHING) -> None:
        """Take an order of the batch. A signal of anyone else is ignored."""
        try:
            self._orders.append(unpack(payload, PartOrder))
        except PerdureError as error:
            workflow.logger.warning("a signal to a part is ignored: %s", error.message)

    async def _work(self, request: PartRequest, part: PartState) -> PartEnd:
        if not await self._is_told(request):
            return PartEnd(expired=True)
        telling = asyncio.create_task(self._tell(request, part))
        while not self._step(part, request):
            if part.is_cancelled:
                await self._cancel(part.cancel_reason)
            ended = part.done + part.failed
            await workflow.wait_condition(
                lambda ended=ended: (  # type: ignore[misc]
                    bool(self._orders) or part.done + part.failed != ended
                )
            )
        if part.has_begun:
            await telling
        else:
            telling.cancel()
        return PartEnd(done=part.done, failed=part.failed, expired=not part.has_begun)

    def _step(self, part: PartState, request: PartRequest) -> bool:
        """Take the orders, and start the turns that may start. Returns whether the part is over."""
        for order in self._orders:
            # a worker of an earlier release may have run this part, and did not know the mark
            is_even = order.even and workflow.patched(EVEN)
            part.take(order.model_copy(update={"even": is_even}))
            if part.has_forgotten(order) and workflow.patched(REMEMBERS):
                part.remember(order)
        self._orders.clear()
        for item, turn_request in part.starts(workflow.now()):
            self._tasks.add(asyncio.create_task(self._turn(request, part, item, turn_request)))
        return part.is_over

    async def _is_told(self, request: PartRequest) -> bool:
        """Wait for the first order. Returns False if there is no batch to give an order."""
        while not self._orders:
            try:
                await workflow.wait_condition(
                    lambda: bool(self._orders),
                    timeout=limits.BATCH_UPLOAD,
                    timeout_summary="until the batch needs this part",
                )
            except TimeoutError:
                if not await _report(request, PartNews(part=request.part)):
                    return bool(self._orders)
        return True

    async def _turn(
        self, request: PartRequest, part: PartState, item: BatchItem, turn_request: TurnRequest
    ) -> None:
        try:
            handle = self._handles[item.id] = await _start(request, item, turn_request)
            if part.is_cancelled:
                child_handles.cancel(handle, part.cancel_reason)
            ended = outcomes.child_completed(_KEY, await handle)
        except WorkflowAlreadyStartedError as error:
            if workflow.patched(FINDS_AGAIN):
                ended = await self._end_of_found(request, part, item)
            else:
                ended = outcomes.child_failed(_KEY, error)
        except ChildWorkflowError as error:
            ended = outcomes.child_failed(_KEY, error.cause or error)
        except asyncio.CancelledError as error:
            ended = outcomes.child_failed(_KEY, error)
        except PerdureError as error:  # its input does not fit into history
            ended = ChildEnded(_KEY, reason=error.message, began=False)
        self._handles.pop(item.id, None)
        part.end(item, ended)

    async def _end_of_found(
        self, request: PartRequest, part: PartState, item: BatchItem
    ) -> ChildEnded:
        """Return the end of a turn whose id is in use: this part began it before it was reset.

        An activity reads it, and is tried again until that turn is over.
        """
        turn_id = request.turn_id(item)
        self._found.append(turn_id)
        if part.is_cancelled:
            await self._cancel(part.cancel_reason)
        try:
            result = await _read(
                ChildRun(turn_id=turn_id, run_id="", parent=workflow.info().workflow_id),
                turn_id,
                f"the end of {item.id}, which had begun before",
            )
            return outcomes.child_found(_KEY, result)
        except ActivityError as failed:
            return outcomes.child_not_found(_KEY, turn_id, failed.cause or failed)
        finally:
            if turn_id in self._found:
                self._found.remove(turn_id)

    async def _cancel(self, reason: str) -> None:
        for item in list(self._handles):
            handle = self._handles.get(item)
            if handle is not None and not await has_ended(handle):
                child_handles.cancel(handle, reason)
        for turn_id in self._found:
            self._tasks.add(asyncio.create_task(_cancel_own(turn_id, reason)))
        self._found.clear()

    async def _tell(self, request: PartRequest, part: PartState) -> None:
        """Report to the batch, one signal at a time, until the part is over.

        What only the status of the batch needs is reported every few seconds.
        """
        is_last, due = False, workflow.now()
        while not is_last:
            await workflow.wait_condition(lambda: part.has_begun and part.has_news)
            pause = due - workflow.now()
            if pause > timedelta() and not part.is_urgent:
                with contextlib.suppress(TimeoutError):
                    await workflow.wait_condition(
                        lambda: part.is_urgent,
                        timeout=pause,
                        timeout_summary="until the next report to the batch",
                    )
            is_last, due = part.is_over, workflow.now() + limits.BATCH_NEWS
            if not await _report(request, part.report()):
                self._orders.append(PartOrder(stop=BatchStopReason.CANCELLED, reason=_GONE))
                return


async def _read(run: ChildRun, activity_id: str, summary: str) -> RawValue:
    """Read a turn, which is tried again until it can be read.

    Raises:
        ActivityError: The turn is not a turn of this part, or cannot be read.
    """
    result: RawValue = await workflow.execute_activity(
        READ_CHILD,
        pack(run),
        result_type=RawValue,
        activity_id=activity_id,
        start_to_close_timeout=limits.CARRY_CALL,
        heartbeat_timeout=heartbeats.timeout(),
        retry_policy=_UNTIL_OVER,
        summary=summary,
    )
    return result


async def _cancel_own(turn_id: str, reason: str) -> None:
    """Cancel a turn whose id was in use, unless another caller has the id."""
    parent = workflow.info().workflow_id
    run = ChildRun(turn_id=turn_id, run_id="", parent=parent, only_parent=True)
    with contextlib.suppress(ActivityError, ApplicationError, PerdureError):  # or it is over
        raw = await _read(run, f"{OWN}{turn_id}", "is it a turn of this part?")
        if unpack(raw, ParentRead).has_parent:
            await workflow.get_external_workflow_handle(turn_id).cancel(reason=reason)


async def _report(request: PartRequest, news: PartNews) -> bool:
    """Send news to the batch. Returns False if there is no such batch, or if it is over."""
    handle: workflow.ExternalWorkflowHandle[Any] = workflow.get_external_workflow_handle(
        request.batch
    )
    try:
        named = news.model_copy(update={"run": workflow.info().run_id})
        await handle.signal(BATCH_NEWS, pack(named, "news of a part"))
    except ApplicationError:
        return False
    return True


async def _start(request: PartRequest, item: BatchItem, turn_request: TurnRequest) -> Handle:
    marks = search_attributes.at_start(
        turn_request.agent,
        turn_request.labels,
        parent=request.batch,
        schedule=request.schedule,
        subject=turn_request.subject,
    )
    return await workflow.start_child_workflow(
        TURN,
        pack(turn_request, "the input of a turn"),
        id=request.turn_id(item),
        result_type=RawValue,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        search_attributes=marks if request.indexed else None,
        priority=Priority(priority_key=request.priority),
        **start_request.introduced(turn_request, {}),
    )
