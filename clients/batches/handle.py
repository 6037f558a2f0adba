"""A batch, as its caller sees it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC
from decimal import Decimal
from typing import Any, Generic, TypeVar

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import CountWorkflowExecutionsRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RawValue
from temporalio.service import RPCError

from perdure import errors, limits, validation
from perdure.base import T
from perdure.batch import leases as batch_leases
from perdure.batch.wire import BatchNote, BatchRequest, BatchStopReason, PartRequest, part_id
from perdure.clients.batches.positions import ResultPosition, position_of
from perdure.clients.batches.reading import ReportOf, Results
from perdure.clients.batches.spool import Spool
from perdure.clients.batches.status import BatchResult, BatchStatus, TaskState
from perdure.clients.batches.uploading import Uploader, Work
from perdure.clients.reading.timeouts import Timeout, at_most
from perdure.clients.turns import cancelling, updates
from perdure.temporal import access, search_attributes
from perdure.temporal.acts import cancellations
from perdure.temporal.histories.fetching import first_event
from perdure.temporal.histories.part_history import PartReader
from perdure.temporal.histories.runs import describe
from perdure.temporal.names import ADD_BUDGET, BATCHES, MEMO_BATCH, TURN
from perdure.temporal.payloads import decoded, pack, unpack
from perdure.values import states
from perdure.values.budgets import ABudget, BudgetUpdate, Remaining, usd
from perdure.values.states import State

V = TypeVar("V")

_PAUSE_S = 1.0
_NO_MEMO = "its description is missing"
_STATES: dict[BatchStopReason | None, states.OfBatch] = {
    None: State.COMPLETED,
    BatchStopReason.FAILED: State.STOPPED,
    BatchStopReason.BUDGET: State.BUDGET_EXHAUSTED,
    BatchStopReason.CANCELLED: State.CANCELLED,
}


class Batch(Generic[T]):
    """A batch that was started, running or over.

    Attributes:
        id: The batch's id, which is also the id of its workflow. The id of a task's turn is
            `<batch>/<task>`, and in later rounds `<batch>/<task>~2` and so on.
    """

    def __init__(
        self, client: Client, batch_id: str, report_of: ReportOf, output: Any = None
    ) -> None:
        self.id = batch_id
        self._client = client
        self._report_of = report_of
        self._output = output

    def __repr__(self) -> str:
        return f"Batch({self.id!r})"

    def typed(self, output: type[V]) -> Batch[V]:
        """Return the same batch with its answers read as instances of a type."""
        return Batch[V](self._client, self.id, self._report_of, output)

    async def check(self) -> None:
        """Check that Temporal has the batch. It asks once, and decodes nothing.

        Raises:
            BatchNotFoundError: There is none, or it is not a batch.
            ServerUnreachableError: Temporal does not answer.
        """
        _check_kind(await _info_of(self._client, self.id))

    async def results(self, after: str | None = None) -> AsyncIterator[BatchResult[T]]:
        """Yield the results of all tasks as they come, each task once, until the batch is over.

        Needs no worker, and works after the end. Tasks that were not started come last.

        Args:
            after: The cursor of the last known result; without it, results start from the
                beginning.

        Raises:
            StaleCursorError: The cursor belongs to another batch.
            InvalidRequestError: The value is not a cursor.
            BatchNotFoundError: Temporal does not have the batch, or no longer has all of it.
            PayloadDecodeError: This process lacks the codec or the key of the batch.
            ServerUnreachableError: Temporal does not answer.
        """
        values = {"after": after}
        types = {"after": validation.Text | None}
        validation.check("the results", values, types, errors.InvalidRequestError)
        note = await self._stored()
        if not note.rounds:
            return  # it ended before its tasks were stored
        position = position_of(after, note.rounds[0].digest)
        async with contextlib.aclosing(self._reader().after(position)) as reading:
            async for _, result in reading:
                yield result

    async def status(self) -> BatchStatus:
        """Return the current status. Needs no worker; it is some seconds old at most.

        Raises:
            BatchNotFoundError: Temporal does not have the batch, or no longer has it.
            ServerUnreachableError: Temporal does not answer.
        """
        info, note = await self._described()
        status = status_of(info, note)
        if note.stop == BatchStopReason.CANCELLED:
            # a name is a detail: the run that was cancelled may be gone, unlike the last one
            with contextlib.suppress(RPCError):
                by = await cancellations.last_name(self._client, self.id, info.execution.run_id)
                status = status.model_copy(update={"by": by})
        if status.ended_at is not None:
            return status
        return status.model_copy(update={"waiting": await self._waiting()})

    async def wait(self, timeout: Timeout = None) -> BatchStatus:
        """Wait until the batch is over, and return its status.

        Turns without an answer are no error of the batch: `results` has their errors.

        Args:
            timeout: The longest wait, as a timedelta or in seconds. Without it, the wait is
                unlimited.

        Raises:
            BatchNotFoundError: Temporal does not have the batch, or no longer has it.
            InvalidRequestError: The timeout is not valid.
            ServerUnreachableError: Temporal does not answer.
        """
        async with at_most(timeout):
            await self.check()  # the workflow of a turn is followed to its end as well
            await self._until_over()
        return await self.status()

    @validation.arguments("the cancel")
    async def cancel(
        self, reason: validation.Unicode = "", *, by: validation.By | None = None
    ) -> bool:
        """Cancel the turns that run, and start no more. Results can still be read.

        Args:
            reason: The reason, for people; it is not encrypted.
            by: The person or program that cancels it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked, and not encrypted.

        Returns:
            Whether there was something to cancel: False for a batch that is over.

        Raises:
            BatchNotFoundError: Temporal does not have the batch.
            InvalidRequestError: The reason is not a string, or `by` is not valid.
        """
        info = await _info_of(self._client, self.id)
        _check_kind(info)
        return await cancelling.cancel(self._client, access.BATCH, info, reason, by)

    @validation.arguments("what is added")
    async def add_budget(self, more: ABudget, *, by: validation.By | None = None) -> Remaining:
        """Add to the budget of a batch that runs. After its end, `retry` adds to it.

        Turns that run keep their budgets. Needs a worker.

        Args:
            more: The amounts to add to its limits.
            by: The person or program that adds it: one line, at most 200 characters. It is
                recorded, not checked.

        Returns:
            The rest of the budget, as `status().left`.

        Raises:
            InvalidRequestError: The batch has no such limit, or starts no more turns; or `more` or
                `by` is not valid.
            BatchNotFoundError: Temporal does not have the batch.
            ServerUnreachableError: No worker accepted it within 30 s; one may still do so later.
        """
        info, note = await self._described()
        if info.HasField("close_time") or not note.rounds:
            raise self._takes_no_budget(info)
        update = pack(BudgetUpdate(**dict(more), by=by))
        try:
            answer = await updates.ask(
                self._client, access.BATCH, [""], self.id, ADD_BUDGET, update
            )
        except errors.TurnOverError:
            raise self._takes_no_budget(await _info_of(self._client, self.id)) from None
        return _left(unpack(answer, BatchNote))

    def _takes_no_budget(self, info: WorkflowExecutionInfo) -> errors.InvalidRequestError:
        is_over = info.HasField("close_time")
        why = "is over; retry(more) adds to it" if is_over else "does not have its tasks yet"
        return errors.InvalidRequestError(f"batch {self.id!r} {why}", context={"batch": self.id})

    @validation.arguments("the retry")
    async def retry(
        self,
        more: ABudget | None = None,
        *,
        at_once: validation.Count | None = None,
        by: validation.By | None = None,
    ) -> Batch[T]:
        """Run the tasks again that have no answer: those that failed, and those not started.

        Each gets a new turn, whose id ends in `~2`, then `~3` and so on. Tasks with an answer are
        left alone; without others, nothing happens. The batch has the same id.

        Args:
            more: The amounts to add to the limits of the budget, of which the spent part stays
                spent. A limit of time counts anew.
            at_once: The number of turns at once, if it is to change.
            by: The person or program that runs them again: one line, at most 200 characters. It is
                recorded, not checked.

        Raises:
            InvalidRequestError: The batch is not over, was run too often, or has no limit to which
                `more` could be added; or an argument is not valid.
            BatchNotFoundError: Temporal does not have the batch, or no longer has all of it.
        """
        check_at_once(at_once or 1)
        info, note = await self._described()
        self._check_retry(info, note)
        with Spool() as spool:
            digest, cost = await self._unanswered(note, spool)
            if not note.over and len(note.rounds) == 1:  # it ended without its last counters
                spent = note.spent.model_copy(update={"usd": max(note.spent.usd, cost)})
                note = note.model_copy(update={"spent": spent})
            if spool.count:
                budget = note.budget.plus(more) if note.budget and more else note.budget
                changes = {
                    "budget": budget,
                    "at_once": at_once or note.at_once,
                    "retried_by": by,
                }
                await self._run_again(note.model_copy(update=changes), spool, digest, info)
        return self

    def _check_retry(self, info: WorkflowExecutionInfo, note: BatchNote) -> None:
        """Check that the batch is over, and that another round is allowed.

        Raises:
            InvalidRequestError: It is not.
        """
        if not info.HasField("close_time"):
            raise errors.InvalidRequestError(
                f"batch {self.id!r} still runs; wait for its end, or cancel it",
                context={"batch": self.id},
            )
        if not note.rounds:
            raise errors.InvalidRequestError(
                f"batch {self.id!r} of a schedule ended before its tasks were stored; run the"
                " schedule again",
                context={"batch": self.id},
            )
        if len(note.rounds) >= limits.BATCH_ROUNDS:
            raise errors.InvalidRequestError(
                f"batch {self.id!r} was run {len(note.rounds)} times, which is the limit; start a"
                " new batch with the tasks that have no answer",
                context={"batch": self.id, "limit": limits.BATCH_ROUNDS},
            )

    async def _unanswered(self, note: BatchNote, spool: Spool) -> tuple[str, Decimal]:
        """Put the tasks of the last round that have no answer into a spool.

        Returns:
            Their digest, and the cost of the round as far as it is known.
        """
        number = len(note.rounds)
        position = ResultPosition.begin(note.rounds[0].digest).model_copy(update={"round": number})
        digest, cost = hashlib.sha256(note.rounds[-1].digest.encode()), Decimal(0)
        reading = self._reader().of_round(note, position)
        async with contextlib.aclosing(reading):
            async for item, result in reading:
                cost += result.cost or 0
                if result.state != TaskState.DONE:
                    spool.add(item)
        for item in spool.by_id():
            digest.update(f"\n{item.id}".encode())
        return digest.hexdigest(), cost

    async def _run_again(
        self, note: BatchNote, spool: Spool, digest: str, info: WorkflowExecutionInfo
    ) -> None:
        before = await self._first_part(note)
        number = len(note.rounds) + 1
        work = Work(self.id, number, digest, before.common, before.indexed, before.priority)
        fairness = info.priority.fairness_key or None
        work = replace(work, fairness=fairness, by=note.retried_by)
        uploader = Uploader(self._client, info.task_queue)
        parts = await uploader.parts(work, spool.by_id())
        if len((await self._note()).rounds) == number:
            return  # another caller has started it meanwhile
        request = BatchRequest(
            agent=note.agent,
            digest=digest,
            items=note.items,
            parts=parts,
            at_once=note.at_once,
            budget=note.budget,
            on_error=note.on_error,
            before=note.rounds,
            answered=note.items - spool.count,
            spent=note.spent,
            is_priced=note.is_priced,
            by=note.retried_by,
        )
        await uploader.start(work, request)

    async def _first_part(self, note: BatchNote) -> PartRequest:
        """Return the first part of the last round, for what all turns have in common."""
        there = part_id(self.id, len(note.rounds), note.rounds[-1].digest, 1)
        reader = PartReader(self._client.data_converter)
        with access.BATCH.asking(self.id):
            await reader.read(await first_event(self._client, there, ""))
        assert reader.request is not None
        return reader.request

    def _reader(self) -> Results:
        return Results(
            self._client, self.id, self._note, self._until_over, self._report_of, self._output
        )

    async def _until_over(self) -> None:
        handle = self._client.get_workflow_handle(self.id, result_type=RawValue)
        with contextlib.suppress(WorkflowFailureError):
            await access.BATCH.patiently(self.id, handle.result)

    async def _stored(self) -> BatchNote:
        """Return the description once the tasks are stored, or the batch is over before that."""
        while True:
            info, note = await self._described()
            if note.rounds or info.HasField("close_time"):
                return note
            await asyncio.sleep(_PAUSE_S)

    async def _note(self) -> BatchNote:
        return (await self._described())[1]

    async def _described(self) -> tuple[WorkflowExecutionInfo, BatchNote]:
        """Return the workflow of the batch, and its description.

        Raises:
            BatchNotFoundError: There is none, or it is not a batch.
        """
        return await described(self._client, self.id)

    async def _waiting(self) -> int | None:
        """Return the number of turns that wait; None if the namespace does not know."""
        parent = search_attributes.keyword(self.id)
        query = (
            f"WorkflowType = '{TURN}' AND ExecutionStatus = 'Running'"
            f" AND {search_attributes.PARENT.name} = '{parent}'"
            f" AND {search_attributes.STATE.name} IN ('waiting', 'paused')"
        )
        request = CountWorkflowExecutionsRequest(namespace=self._client.namespace, query=query)
        try:
            response = await self._client.workflow_service.count_workflow_executions(request)
        except RPCError:
            return None
        return response.count


def status_of(info: WorkflowExecutionInfo, note: BatchNote) -> BatchStatus:
    """Return the status of a batch from its workflow, without the number of turns that wait."""
    is_over = info.HasField("close_time")
    return BatchStatus(
        id=info.execution.workflow_id,
        agent=note.agent,
        state=_state(note) if is_over else State.RUNNING,
        total=note.items,
        done=note.done,
        failed=note.failed,
        running=0 if is_over else note.running,
        waiting=0 if is_over else None,
        pending=0 if is_over or note.stop else _rest(note),
        not_started=_rest(note) if is_over or note.stop else 0,
        at_once=note.at_once,
        cost=note.spent.usd if note.is_priced else None,
        spent=note.spent,
        budget=note.budget,
        left=_left(note),
        round=max(len(note.rounds), 1),
        reason=note.reason,
        retried_by=note.retried_by,
        started_at=note.began or info.start_time.ToDatetime(tzinfo=UTC),
        ended_at=info.close_time.ToDatetime(tzinfo=UTC) if is_over else None,
    )


def check_at_once(at_once: int) -> None:
    """Check the number of turns at once.

    Raises:
        InvalidRequestError: It is too large.
    """
    if at_once > limits.BATCH_AT_ONCE:
        raise errors.InvalidRequestError(
            f"a batch runs at most {limits.BATCH_AT_ONCE} turns at once, not {at_once}",
            context={"limit": limits.BATCH_AT_ONCE},
        )


async def described(client: Client, batch_id: str) -> tuple[WorkflowExecutionInfo, BatchNote]:
    """Return the latest workflow of a batch, and its description.

    Raises:
        BatchNotFoundError: There is none, or the workflow of this id is not a batch.
        PayloadDecodeError: This process lacks the codec or the key of the batch.
        ServerUnreachableError: Temporal does not answer.
    """
    info = await _info_of(client, batch_id)
    return info, await note_in(client, info)


async def _info_of(client: Client, id: str) -> WorkflowExecutionInfo:
    """Return the latest workflow of an id."""
    describing = describe(client, id, retry=True)
    return (await access.BATCH.asked(id, describing)).workflow_execution_info


def _check_kind(info: WorkflowExecutionInfo) -> None:
    """Check that a workflow is a batch.

    Raises:
        BatchNotFoundError: It is not, or lacks its description.
    """
    kind, batch_id = info.type.name, info.execution.workflow_id
    if kind not in BATCHES or MEMO_BATCH not in info.memo.fields:
        what = f"a workflow of type {kind}, not a batch" if kind not in BATCHES else _NO_MEMO
        raise errors.BatchNotFoundError(
            f"{batch_id!r} is {what}", context={"batch": batch_id, "type": kind}
        )


async def note_in(client: Client, info: WorkflowExecutionInfo) -> BatchNote:
    """Return the description of a batch in the memo of its workflow.

    Raises:
        BatchNotFoundError: The workflow is not a batch.
        PayloadDecodeError: This process lacks the codec or the key of the batch.
    """
    _check_kind(info)
    [memo] = await decoded(client.data_converter, [info.memo.fields[MEMO_BATCH]])
    return BatchNote.model_validate(memo)


def _state(note: BatchNote) -> states.OfBatch:
    if not note.over:
        return State.TERMINATED
    stop = BatchStopReason.LOST if note.lost and note.stop is None else note.stop
    return _STATES.get(stop, State.STOPPED)


def _rest(note: BatchNote) -> int:
    return max(note.items - note.done - note.failed - note.running, 0)


def _left(note: BatchNote) -> Remaining:
    remaining = {
        name: max(getattr(note.budget, name) - getattr(note.spent, name), 0)
        for name in batch_leases.limited(note.budget)
    }
    if "usd" in remaining:
        remaining["usd"] = usd(remaining["usd"])
    return Remaining(**remaining)
