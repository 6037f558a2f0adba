"""A batch: many tasks of one agent, with a limit of turns at once and a common budget.

This workflow holds no task. Its parts hold them, and start the turns. It tells them by signals how
many turns they may run and what these may spend, and they report by signals. `batch_plan` decides
what it tells them. When its history is long it continues in a new run, which takes over the
counters.
"""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from perdure import errors, limits, validation
from perdure.batch import plan as batch_plan
from perdure.batch.wire import (
    BatchNote,
    BatchProgress,
    BatchRequest,
    BatchStopReason,
    PartNews,
    PartOrder,
    part_id,
)
from perdure.errors import PerdureError
from perdure.temporal import failures, outcomes
from perdure.temporal.names import (
    ADD_BUDGET,
    BATCH,
    BATCH_NEWS,
    BATCH_ORDER,
    MEMO_BATCH,
    MOVE_ON,
)
from perdure.temporal.payloads import NOTHING, pack, unpack
from perdure.text import described, one_line
from perdure.turn.history_limits import run_events
from perdure.workflows import ancestors, moving, schedule_total
from perdure.workflows.batch.details import card
from perdure.workflows.update_answers import CANCELS_FIRST

KNOWS_RESETS = "parts-are-reset"
"""The patch since which a batch takes the news of a part that was reset, whatever their number."""
_ORDERS_FIRST = "orders-first"
"""The patch since which an addition to the budget is answered once the parts know it."""
_REASON_CHARACTERS = 200


@workflow.defn(name=BATCH, sandboxed=False, failure_exception_types=[PerdureError])
class AgentBatch:
    """The workflow of a batch. It is not sandboxed, for the same reasons as the turn."""

    def __init__(self) -> None:
        self._request: BatchRequest | None = None
        self._progress = BatchProgress(began=workflow.now())
        self._news: list[PartNews] = []
        self._changed = True
        self._has_driven = False
        self._shown: BatchNote | None = None

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> RawValue:
        """Run the batch to its end, and return its description."""
        try:
            self._request = request = unpack(start, BatchRequest)
            if request.progress is not None or request.schedule is not None:
                ancestors.check_continued("the progress of the batch")
            self._progress = request.progress or self._progress
            if not await self._driven():
                self._go_on(self._known)
            note = self._show(self._known, over=True)
            if request.schedule is not None and request.schedule.pauses:
                _refuse_gaps(note)
        except PerdureError as error:
            raise failures.of_activity(error) from error
        except (asyncio.CancelledError, workflow.ContinueAsNewError):
            raise
        except Exception as error:  # a bug must not make the workflow task fail for ever
            workflow.logger.exception("the batch failed unexpectedly")
            raise failures.of_activity(PerdureError(described(error))) from error
        return pack(note, "the result of the batch")

    @workflow.signal(name=BATCH_NEWS)
    def news(self, payload: RawValue = NOTHING) -> None:
        """Take news of a part. A signal of anyone else is ignored."""
        try:
            self._news.append(unpack(payload, PartNews))
        except PerdureError as error:
            workflow.logger.warning("a signal to the batch is ignored: %s", error.message)

    @workflow.signal(name=MOVE_ON)
    def move_on(self, payload: RawValue = NOTHING) -> None:
        """See whether another version of the workers goes on with the batch."""
        self._changed = self._changed or moving.is_due()

    @property
    def _known(self) -> BatchRequest:
        """The batch, with what was added to its budget."""
        assert self._request is not None
        return self._request

    @workflow.update(name=ADD_BUDGET)
    async def add_budget(self, payload: RawValue = NOTHING) -> RawValue:
        """Add to the budget, and return the description of the batch, once its parts know it."""
        await workflow.wait_condition(lambda: self._request is not None)
        update = workflow.current_update_info()
        assert update is not None
        if update.id not in self._progress.updates:
            with failures.typed():
                more = outcomes.added(payload).more
                self._request = batch_plan.topped_up(self._known, self._progress, more)
            self._progress = batch_plan.with_update(self._progress, update.id)
            self._changed = True
        if workflow.patched(_ORDERS_FIRST):
            await workflow.wait_condition(lambda: not self._changed or self._has_driven)
        return pack(batch_plan.note_of(self._known, self._progress, over=False))

    @add_budget.validator
    def check_budget(self, payload: RawValue = NOTHING) -> None:
        """Refuse an addition that is not valid before it is recorded in history."""
        with failures.typed():
            added = outcomes.added(payload)
            validation.check_by("what is added", added.by)
            if added.iterations is not None:
                raise errors.InvalidRequestError("a batch has no limit of iterations")
            if self._request is not None:
                batch_plan.topped_up(self._request, self._progress, added.more)

    async def _driven(self) -> bool:
        """Run the batch until it is over, or until its history is long. A cancellation stops it.

        Returns:
            Whether it is over.
        """
        task = asyncio.create_task(self._drive_and_answer())
        checking = asyncio.create_task(self._check())
        while not task.done():
            try:
                await workflow.wait([task])
            except asyncio.CancelledError:
                reason = one_line(workflow.cancellation_reason() or "", _REASON_CHARACTERS)
                self._progress = batch_plan.stopped(
                    self._progress, BatchStopReason.CANCELLED, reason
                )
                self._changed = True
                if workflow.patched(CANCELS_FIRST):
                    self._show(self._known)  # its orders may be those of the next run
        checking.cancel()
        return task.result()

    async def _drive_and_answer(self) -> bool:
        is_over = await self._drive()
        self._has_driven = True
        await workflow.wait_condition(workflow.all_handlers_finished)
        return is_over

    async def _drive(self) -> bool:
        """Send the orders that are due, and wait for news, in turns."""
        is_sure = False
        while True:
            request = self._known
            self._take_news(request)
            if batch_plan.is_over(request, self._progress):
                await self._settle(request)
                return True
            if _is_full():
                passes = workflow.patched(CANCELS_FIRST)
                if passes:
                    self._show(request)
                if is_sure or not (passes or moving.is_due()):
                    return False
                is_sure = True
                # a cancel of this task would be lost: it comes after its signals
                await moving.next_task("the batch goes on in a new run")
                continue
            is_sure = False
            self._progress, orders = batch_plan.ordered(request, self._progress, workflow.now())
            self._show(request)
            if orders:
                await self._send(request, orders)
                continue
            self._changed = False
            await workflow.wait_condition(lambda: self._changed or bool(self._news))

    async def _settle(self, request: BatchRequest) -> None:
        """Count what the batch has spent, if a schedule has started it."""
        spent = batch_plan.spent_of(request, self._progress)
        is_spent = self._progress.stop == BatchStopReason.BUDGET
        await schedule_total.count(request.schedule, spent, request.budget, is_spent=is_spent)

    def _take_news(self, request: BatchRequest) -> None:
        for news in self._news:
            is_reset = batch_plan.is_of_reset_part(self._progress, news)
            # only such news ask for the patch: it costs no other batch an event of its history
            is_reset = is_reset and workflow.patched(KNOWS_RESETS)
            self._progress = batch_plan.heard(
                request, self._progress, news, workflow.now(), is_reset=is_reset
            )
        self._news.clear()

    async def _check(self) -> None:
        """Repeat the orders of silent parts regularly, to learn whether they are still there."""
        while True:
            await workflow.sleep(limits.BATCH_CHECK, summary="are the parts still there?")
            orders = batch_plan.silent(self._progress, workflow.now(), limits.BATCH_CHECK)
            await self._send(self._known, orders)
            self._changed = True

    async def _send(self, request: BatchRequest, orders: batch_plan.Orders) -> None:
        """Send orders, each to another part. A part that is gone is lost."""
        tasks = [
            asyncio.create_task(self._order(request, part, order)) for part, order in orders.items()
        ]
        if tasks:
            await workflow.wait(tasks)
        for task in tasks:
            task.result()

    async def _order(self, request: BatchRequest, part: int, order: PartOrder) -> None:
        number = len(request.rounds)
        there = part_id(workflow.info().workflow_id, number, request.digest, part)
        handle: workflow.ExternalWorkflowHandle[Any] = workflow.get_external_workflow_handle(there)
        try:
            await handle.signal(BATCH_ORDER, pack(order, "an order to a part"))
        except ApplicationError:
            self._take_news(request)
            self._progress = batch_plan.lost(self._progress, part)

    def _show(self, request: BatchRequest, *, over: bool = False) -> BatchNote:
        """Record the progress in the memo, if it has changed."""
        note = batch_plan.note_of(request, self._progress, over=over)
        if note != self._shown:
            self._shown = note
            workflow.upsert_memo({MEMO_BATCH: note.model_dump(mode="json")})
            workflow.set_current_details(card(workflow.info().workflow_id, note))
        return note

    def _go_on(self, request: BatchRequest) -> None:
        """Go on in a new run, with the same memo."""
        following = request.model_copy(update={"progress": self._progress})
        payload = pack(following, "the next run's input")
        workflow.continue_as_new(payload, memo=dict(workflow.memo()), **moving.options())


def _is_full() -> bool:
    """Return whether the batch has to continue in a new run."""
    info = workflow.info()
    most = min(limits.BATCH_EVENTS, run_events(info.task_timeout))
    return info.get_current_history_length() >= most or moving.is_due()


def _refuse_gaps(note: BatchNote) -> None:
    """Let the batch fail if tasks have no answer, so that its schedule pauses. A cancel is none.

    Raises:
        PerdureError: Some have not.
    """
    if note.done < note.items and note.stop != BatchStopReason.CANCELLED:
        raise PerdureError(
            f"{note.items - note.done} of the {note.items} tasks have no answer",
            context={"done": note.done, "tasks": note.items},
        )
