"""Stores the tasks of a round in parts, and then starts the batch.

Each part is a workflow whose id names the digest of all tasks. So an upload that was interrupted is
repeated part by part, and uploads of other tasks under the same id do not mix. The batch is started
last: until then no part runs a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from temporalio.client import Client
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from perdure import errors, limits
from perdure.batch import plan as batch_plan
from perdure.batch.wire import BatchRequest, PartRequest, part_id
from perdure.temporal import access
from perdure.temporal.acts import sources
from perdure.temporal.histories.runs import describe
from perdure.temporal.names import BATCH, BATCH_PART, MEMO_BATCH
from perdure.temporal.payloads import pack
from perdure.text import counted, markdown, word
from perdure.turn.wire import TurnRequest
from perdure.values.batch_items import BatchItem

_AT_ONCE = 8
"""The number of parts that are stored at the same time."""


@dataclass(frozen=True)
class Work:
    """What is common to all turns of a round.

    Attributes:
        batch: The id of the batch.
        round: The number of the round, from 1.
        digest: The digest of its tasks.
        common: The input of its turns, with an empty task.
        indexed: Whether the namespace has Perdure's search attributes.
        priority: As for `AgentClient.start`.
        fairness: As for `AgentClient.start`; each turn has the key of its part.
        schedule: The id of the schedule that runs the batch; empty without a schedule.
        by: Who starts the round; of a further round, the batch itself says so.
    """

    batch: str
    round: int
    digest: str
    common: TurnRequest
    indexed: bool
    priority: int | None
    fairness: str | None = None
    schedule: str = ""
    by: str | None = None

    @property
    def order(self) -> Priority:
        """The order in which the workflows of the batch get workers."""
        return Priority(fairness_key=self.fairness)


class Uploader:
    """Stores batches on one task queue, with at most `part_items` tasks in a part."""

    def __init__(
        self, client: Client, task_queue: str, part_items: int = limits.BATCH_PART_ITEMS
    ) -> None:
        self._client = client
        self._task_queue = task_queue
        self._part_items = part_items

    async def parts(self, work: Work, items: Iterable[BatchItem]) -> int:
        """Store the tasks of a round.

        Returns:
            The number of its parts.

        Raises:
            PerdureError: Temporal does not store them.
        """
        count, storing = 0, set[asyncio.Task[None]]()
        try:
            for part in _split(work, items, self._part_items):
                count = part.part
                if count > limits.BATCH_PARTS:
                    raise errors.TooLargeError(
                        f"batch {work.batch!r} has more than {limits.BATCH_PARTS} parts of up to"
                        f" {limits.BATCH_PART_ITEMS} tasks; make several batches of it"
                    )
                storing.add(asyncio.create_task(self._part(work, part)))
                if len(storing) >= _AT_ONCE:
                    storing = await _some(storing)
            while storing:
                storing = await _some(storing)
        finally:
            for task in storing:
                task.cancel()
            await asyncio.gather(*storing, return_exceptions=True)
        return count

    async def _part(self, work: Work, part: PartRequest) -> None:
        """Store one part, unless it is stored."""
        there = part_id(work.batch, work.round, work.digest, part.part)
        if await self._store(work, part, there, WorkflowIDReusePolicy.REJECT_DUPLICATE):
            return
        is_running = await self._is_running(work, there)
        # it is over: its batch has run it, or it was uploaded too long ago
        if is_running is False and await self._is_running(work, work.batch) is None:
            await self._store(work, part, there, WorkflowIDReusePolicy.ALLOW_DUPLICATE)

    async def _is_running(self, work: Work, workflow_id: str) -> bool | None:
        """Return whether a workflow runs; None if there is none of this id.

        Raises:
            PerdureError: Temporal cannot be asked.
        """
        describing = describe(self._client, workflow_id, retry=True)
        description = await access.BATCH.asked_if_known(work.batch, describing)
        return (
            None
            if description is None
            else not description.workflow_execution_info.HasField("close_time")
        )

    async def _store(
        self, work: Work, part: PartRequest, there: str, reuse: WorkflowIDReusePolicy
    ) -> str | None:
        return await access.start(
            self._client,
            access.BATCH,
            BATCH_PART,
            pack(part, "a part of the batch"),
            id=there,
            about=work.batch,
            subject=work.common.subject,
            task_queue=self._task_queue,
            id_reuse_policy=reuse,
            id_conflict_policy=(
                WorkflowIDConflictPolicy.USE_EXISTING
                if reuse is WorkflowIDReusePolicy.ALLOW_DUPLICATE
                else WorkflowIDConflictPolicy.FAIL
            ),
            task_timeout=limits.TASK_TIMEOUT,
            static_summary=f"{markdown(word(part.common.agent))}: part {part.part} of a batch",
            started_by=sources.memo(work.by),
            priority=work.order,
        )

    async def start(self, work: Work, request: BatchRequest) -> bool:
        """Start a round whose parts are stored.

        Returns:
            Whether it was started now; False if there is a batch of this id, or for a further
            round, one that runs.

        Raises:
            PerdureError: Temporal does not start it.
        """
        note = batch_plan.note_of(request, None, over=False)
        is_first = not request.before
        started = await access.start(
            self._client,
            access.BATCH,
            BATCH,
            pack(request, "the batch"),
            id=work.batch,
            subject=work.common.subject,
            task_queue=self._task_queue,
            id_reuse_policy=(
                WorkflowIDReusePolicy.REJECT_DUPLICATE
                if is_first
                else WorkflowIDReusePolicy.ALLOW_DUPLICATE
            ),
            task_timeout=limits.TASK_TIMEOUT,
            static_summary=f"{markdown(word(request.agent))}: {counted(request.items, 'task')}",
            memo={MEMO_BATCH: note.model_dump(mode="json")},
            started_by=sources.memo(work.by),
            priority=work.order,
        )
        return started is not None


async def _some(tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Wait for one of the tasks, and return the other tasks."""
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return pending


def _split(work: Work, items: Iterable[BatchItem], most: int) -> Iterator[PartRequest]:
    """Yield the parts. Their size includes what all turns have in common."""
    number, part, bytes_ = 0, list[BatchItem](), 0
    common = len(work.common.model_dump_json())
    for item in items:
        item_bytes = common + len(item.model_dump_json())
        is_full = len(part) >= most or bytes_ + item_bytes > limits.BATCH_PART_BYTES
        if part and is_full:
            number += 1
            yield _part(work, number, part)
            part, bytes_ = [], 0
        part.append(item)
        bytes_ += item_bytes
    if part:
        yield _part(work, number + 1, part)


def _part(work: Work, number: int, items: Iterable[BatchItem]) -> PartRequest:
    return PartRequest(
        batch=work.batch,
        round=work.round,
        part=number,
        common=work.common,
        items=tuple(items),
        indexed=work.indexed,
        priority=work.priority,
        schedule=work.schedule,
    )
