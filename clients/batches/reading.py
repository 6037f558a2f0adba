"""Reads the results of a batch from the histories of its parts. It needs no worker.

Parts run in order and overlap, so several are read at the same time. What has been read is not
kept.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from decimal import Decimal
from typing import Any

from temporalio.client import Client

from perdure import errors, limits
from perdure.batch.part import is_answered
from perdure.batch.wire import BatchNote, BatchStopReason, PartRequest, part_id
from perdure.clients.batches.positions import ResultPosition
from perdure.clients.batches.status import BatchResult, TaskState
from perdure.errors import PerdureError
from perdure.schemas import output_type
from perdure.schemas.strict_schema import Schema
from perdure.temporal import access
from perdure.temporal.follow import Follower
from perdure.temporal.histories.part_history import PartOrdered, PartReader
from perdure.text import size
from perdure.turn import ending
from perdure.turn.facts import ChildEnded, TurnEnded
from perdure.values.batch_items import BatchItem
from perdure.values.reports import AgentReport, Outcome

Found = tuple[BatchItem, BatchResult[Any]]
ReportOf = Callable[[str], Awaitable[AgentReport[Any]]]
"""Returns the report of a turn, by its id, or raises its error."""

_AT_ONCE = 32
"""The number of parts that are read at the same time."""
_QUEUED = 100
_CLIPPED = limits.SUMMARY_BYTES // 2 - limits.ERROR_TEXT_BYTES
"""A longer output in a summary may be clipped."""
_WORDS = {
    BatchStopReason.FAILED: "a turn of the batch failed before it",
    BatchStopReason.BUDGET: "the budget of the batch is spent",
    BatchStopReason.CANCELLED: "the batch was cancelled",
    BatchStopReason.LOST: "the part of the batch with this task is gone",
}


class _Begun:
    """The part has begun, so the next part may follow."""


class _Gone:
    """The batch ended without telling its parts, so nothing more will come."""


class _PartOver:
    """Nothing more comes from this part."""


class Results:
    """Reads the results of one batch.

    `note` returns its current description, and `until_over` waits for its end.
    """

    def __init__(
        self,
        client: Client,
        batch: str,
        note: Callable[[], Awaitable[BatchNote]],
        until_over: Callable[[], Awaitable[None]],
        report_of: ReportOf,
        output: Any,
    ) -> None:
        self._client = client
        self._batch = batch
        self._note = note
        self._until_over = until_over
        self._whole = report_of
        self._wanted = output
        self._stop: BatchStopReason | None = None

    async def after(self, position: ResultPosition) -> AsyncGenerator[Found, None]:
        """Yield the results after a place as they come, each task once, until the batch is over.

        Tasks without an answer are reported for the last round. The cost is the sum over all
        rounds.
        """
        note = await self._note()
        costs = await self._costs_before(note, position)
        for number in range(position.round, len(note.rounds) + 1):
            is_last = number == len(note.rounds)
            start = (
                position
                if number == position.round
                else ResultPosition(batch=position.batch, round=number)
            )
            async with contextlib.aclosing(self.of_round(note, start)) as reading:
                async for item, result in reading:
                    if is_last or result.state == TaskState.DONE:
                        yield item, costs.with_earlier(result)
                    else:
                        costs.add(number, result)

    async def _costs_before(self, note: BatchNote, position: ResultPosition) -> _Costs:
        """Return the costs of the turns without an answer that come before a place.

        They are in earlier rounds, and in the round of the place if another follows.
        """
        costs, last = _Costs(), len(note.rounds)
        begins = position == ResultPosition(batch=position.batch, round=position.round)
        before = position.round if begins or position.round == last else position.round + 1
        with contextlib.suppress(errors.BatchNotFoundError):
            for number in range(1, before):
                start = ResultPosition(batch=position.batch, round=number)
                async with contextlib.aclosing(self.of_round(note, start)) as reading:
                    async for _, result in reading:
                        costs.add(number, result)
            return costs
        costs.are_known = False  # the retention of an earlier round is over
        return costs

    async def of_round(
        self, note: BatchNote, position: ResultPosition
    ) -> AsyncGenerator[Found, None]:
        """Yield the results of one round after a place, as they come."""
        is_last = position.round == len(note.rounds)
        watching = asyncio.create_task(self._until_gone()) if is_last else None
        reading = _Window(self, note, position)
        try:
            if watching is not None:
                watching.add_done_callback(reading.gone)
            async for entry in reading.results():
                yield entry
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            await reading.close()

    async def _until_gone(self) -> None:
        """Return when the batch ends without having told all of its parts."""
        await self._until_over()
        if (await self._note()).over:
            await asyncio.Event().wait()

    async def of_part(
        self, note: BatchNote, number: int, part: int, *, waits: bool
    ) -> AsyncIterator[Found | _Begun]:
        """Yield the results of one part in a fixed order: ended turns first, then running turns.

        Without `waits`, the part is read as far as it is recorded.
        """
        there = part_id(self._batch, number, note.rounds[number - 1].digest, part)
        reader = PartReader(self._client.data_converter)
        started, unfinished = dict[str, bool](), dict[str, BatchItem]()
        follower = Follower(
            self._client,
            access.PARTS,
            there,
            [""],
            lambda: reader.read,
            about=self._batch,
            waits=waits,
        )
        async with contextlib.aclosing(follower.events()) as reading:
            async for read in reading:
                for fact in read.facts:
                    match fact:
                        case PartRequest() as request:
                            unfinished = {request.turn_id(item): item for item in request.items}
                        case PartOrdered():
                            yield _Begun()
                        case (turn_id, None):
                            started[turn_id] = True
                        case (turn_id, ChildEnded() as end) if turn_id in unfinished:
                            yield await self._ended(reader, unfinished.pop(turn_id), turn_id, end)
        for turn_id, item in unfinished.items():
            if turn_id in reader.refused:
                yield await self._ended(reader, item, turn_id, reader.refused[turn_id])
            elif turn_id in started:
                yield item, await self._read_whole(reader, item, turn_id)
            else:
                yield item, await self._not_started(item, turn_id)

    async def _ended(
        self, reader: PartReader, item: BatchItem, turn_id: str, end: ChildEnded
    ) -> Found:
        """Return the result of a turn from its end; its own history has a clipped answer whole."""
        assert reader.request is not None
        summary = end.summary
        if summary is None:
            outcome = Outcome.TERMINATED if end.began else None
            return item, _result(item, turn_id, TaskState.FAILED, outcome, _error_of(end))
        is_priced = summary.is_priced or not summary.model_calls
        cost = {"cost": summary.spent.usd if is_priced else None}
        if not is_answered(end):
            failed = _result(item, turn_id, TaskState.FAILED, summary.outcome, _error_of(end))
            return item, failed.model_copy(update={**cost, "last_text": summary.output})
        text = summary.output
        if size(text) > _CLIPPED:
            with contextlib.suppress(PerdureError):
                text = (await self._whole(turn_id)).output
        result = _result(item, turn_id, TaskState.DONE, summary.outcome).model_copy(update=cost)
        return item, self._typed(result, text, reader.request.common.output_schema)

    def _typed(
        self, result: BatchResult[Any], text: str, schema: Schema | None
    ) -> BatchResult[Any]:
        """Return a result with its answer as an instance of the requested type, if it is one."""
        try:
            read = output_type.read(text, self._wanted, schema)
            return result.model_copy(update={"output": read})
        except ValueError as error:
            invalid = errors.OutputInvalidError(f"{output_type.OBJECTION}: {error}")
            return result.model_copy(update={"error": invalid.info(), "last_text": text})

    async def _read_whole(
        self, reader: PartReader, item: BatchItem, turn_id: str
    ) -> BatchResult[Any]:
        """Return the result of a turn whose part did not record its end."""
        try:
            report = await self._whole(turn_id)
        except errors.TurnNotFoundError:
            return await self._not_started(item, turn_id)
        except PerdureError as error:
            if error.report is None:
                return _result(item, turn_id, TaskState.FAILED, None, error)
            failed = _result(item, turn_id, TaskState.FAILED, error.report.outcome, error)
            changes = {"cost": error.report.cost, "last_text": error.report.last_text}
            return failed.model_copy(update=changes)
        done = _result(item, turn_id, TaskState.DONE, report.outcome)
        schema = reader.request.common.output_schema if reader.request else None
        return self._typed(done.model_copy(update={"cost": report.cost}), report.output, schema)

    async def _not_started(self, item: BatchItem, turn_id: str) -> BatchResult[Any]:
        self._stop = self._stop or (await self._note()).stop
        reason = self._stop or BatchStopReason.LOST
        error = errors.TaskNotStartedError(
            f"the turn was not started: {_WORDS[reason]}", context={"reason": str(reason)}
        )
        return _result(item, turn_id, TaskState.NOT_STARTED, None, error)


class _Costs:
    """The costs of a batch's turns without an answer whose tasks were run again."""

    def __init__(self) -> None:
        self.are_known = True
        self._costs: dict[str, dict[int, Decimal | None]] = {}

    def add(self, number: int, result: BatchResult[Any]) -> None:
        """Add the result of a task in one round, unless it is an answer or was not started."""
        if result.state == TaskState.FAILED:
            self._costs.setdefault(result.id, {})[number] = result.cost

    def with_earlier(self, result: BatchResult[Any]) -> BatchResult[Any]:
        """Return a result of a task with the cost of all of its turns."""
        if not self.are_known:
            return result.model_copy(update={"cost": None})
        costs = list(self._costs.get(result.id, {}).values())
        if not costs:
            return result
        if result.state != TaskState.NOT_STARTED:
            costs.append(result.cost)
        known = [cost for cost in costs if cost is not None]
        total = sum(known, Decimal()) if len(known) == len(costs) else None
        return result.model_copy(update={"cost": total})


class _Window:
    """The parts of a round that are read at the same time, and the place up to which they were."""

    def __init__(self, results: Results, note: BatchNote, position: ResultPosition) -> None:
        self._results = results
        self._note = note
        self._round = position.round
        self._batch = position.batch
        self._parts = note.rounds[position.round - 1].parts
        self._low = self._next = position.part
        self._seen = {part: count for part, count in position.seen.items() if part >= position.part}
        self._finished: set[int] = set()
        self._open: dict[int, asyncio.Task[None]] = {}
        self._queue: asyncio.Queue[tuple[int, Any]] = asyncio.Queue(_QUEUED)
        self._waits = True
        self._is_gone = asyncio.Event()

    def gone(self, watching: asyncio.Task[None]) -> None:
        """Read on without waiting, because the batch ended without telling its parts."""
        if not watching.cancelled():
            watching.exception()
            self._is_gone.set()

    async def results(self) -> AsyncIterator[Found]:
        """Yield the results as they come, each with its cursor."""
        self._begin()
        while self._open:
            part, entry = await self._found()
            match entry:
                case _Begun():
                    if part == self._next - 1:
                        self._begin()
                case _PartOver():
                    self._close(part)
                case _Gone():
                    await self._restart()
                case BaseException():
                    raise entry
                case (item, result):
                    self._seen[part] = self._seen.get(part, 0) + 1
                    yield item, result.model_copy(update={"cursor": self._place().cursor()})

    async def _found(self) -> tuple[int, Any]:
        if self._waits and self._is_gone.is_set():
            return 0, _Gone()
        getting = asyncio.create_task(self._queue.get())
        stopping = asyncio.create_task(self._is_gone.wait())
        tasks = {getting, stopping} if self._waits else {getting}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return getting.result() if getting.done() else (0, _Gone())
        finally:
            for task in (getting, stopping):
                task.cancel()
            await asyncio.gather(getting, stopping, return_exceptions=True)

    def _place(self) -> ResultPosition:
        return ResultPosition(batch=self._batch, round=self._round, part=self._low, seen=self._seen)

    def _begin(self) -> None:
        """Begin to read the next part, if there is one and not too many are open."""
        if self._next <= self._parts and len(self._open) < _AT_ONCE:
            self._open[self._next] = asyncio.create_task(self._read(self._next))
            self._next += 1

    def _close(self, part: int) -> None:
        """Note that a part was read whole."""
        del self._open[part]
        self._finished.add(part)
        while self._low in self._finished:
            self._finished.remove(self._low)
            self._seen.pop(self._low, None)
            self._low += 1
        self._begin()

    async def _restart(self) -> None:
        """Read the open parts again, after what was yielded, and without waiting."""
        parts = list(self._open)
        await self.close()
        self._waits = False
        self._queue = asyncio.Queue(_QUEUED)
        self._open = {part: asyncio.create_task(self._read(part)) for part in parts}

    async def _read(self, part: int) -> None:
        """Read a part into the queue, except for the results that were yielded."""
        queue, to_skip = self._queue, self._seen.get(part, 0)
        results = self._results.of_part(self._note, self._round, part, waits=self._waits)
        try:
            async for entry in results:
                if isinstance(entry, _Begun) or to_skip == 0:
                    await queue.put((part, entry))
                else:
                    to_skip -= 1
            await queue.put((part, _PartOver()))
        except PerdureError as error:
            await queue.put((part, error))

    async def close(self) -> None:
        for task in self._open.values():
            task.cancel()
        await asyncio.gather(*self._open.values(), return_exceptions=True)


def _error_of(end: ChildEnded) -> PerdureError:
    summary = end.summary
    if summary is None:
        cls = errors.TurnTerminatedError if end.began else errors.TurnExistsError
        return cls(end.reason)
    message = summary.error.message if summary.error else None
    ended = TurnEnded(summary.outcome, summary, end.reason)
    return ending.error_of(ended, message) or PerdureError(end.reason)


def _result(
    item: BatchItem,
    turn_id: str,
    state: TaskState,
    outcome: Outcome | None,
    error: PerdureError | None = None,
) -> BatchResult[Any]:
    return BatchResult(
        id=item.id,
        turn_id=turn_id,
        state=state,
        outcome=outcome,
        error=error.info() if error else None,
        labels=item.labels,
    )
