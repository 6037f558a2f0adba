"""Starts batches, or finds existing batches with their ids."""

from __future__ import annotations

from typing import Any

from temporalio.client import Client

from perdure import errors, validation
from perdure.agents.agent import Agent
from perdure.batch.wire import BatchRequest
from perdure.clients.batches.handle import check_at_once, described
from perdure.clients.batches.items import Tasks, read
from perdure.clients.batches.spool import Spool
from perdure.clients.batches.uploading import Uploader, Work
from perdure.temporal import access, start_request
from perdure.temporal.priorities import Fairness, Priorities
from perdure.temporal.search_marks import Marks
from perdure.values.batch_items import OnError
from perdure.values.budgets import ABudget


class BatchStarter:
    """Starts batches on one task queue."""

    def __init__(self, client: Client, task_queue: str, marks: Marks) -> None:
        self._client = client
        self._marks = marks
        self._uploader = Uploader(client, task_queue)

    @validation.arguments("the batch")
    async def start(
        self,
        batch: str,
        agent: Agent[Any] | str,
        tasks: Tasks,
        *,
        at_once: validation.Count,
        on_error: OnError,
        turn_budget: ABudget | None,
        budget: ABudget | None = None,
        priority: Priorities = None,
        fairness: Fairness = None,
        by: validation.By | None = None,
        **turn_options: Any,
    ) -> None:
        """Read and check all tasks, store them, and start the batch, unless it exists.

        Raises:
            BatchConflictError: The id is the id of another batch, or of a turn.
            InvalidRequestError: A task or an option is not valid; nothing was started.
            TooLargeError: A task is too large; nothing was started.
            ServerUnreachableError: Temporal does not answer.
        """
        check_at_once(at_once)
        access.BATCH.new_id(batch)
        common = start_request.turn_request(agent, "", budget=turn_budget, **turn_options)
        with Spool() as spool:
            digest = await read(batch, common, tasks, spool)
            if await self._exists(batch, digest):
                return
            indexed = await self._marks.of(common) is not None
            work = Work(batch, 1, digest, common, indexed, priority, fairness, by=by)
            request = BatchRequest(
                agent=common.agent,
                digest=digest,
                items=spool.count,
                parts=await self._uploader.parts(work, spool),
                at_once=at_once,
                budget=budget,
                on_error=on_error,
            )
        if not await self._uploader.start(work, request):
            await self._exists(batch, digest)

    async def _exists(self, batch: str, digest: str) -> bool:
        """Return whether the batch exists.

        Raises:
            BatchConflictError: Its id is the id of another batch, or of a turn.
        """
        try:
            _, note = await described(self._client, batch)
        except errors.BatchNotFoundError as error:
            if "type" not in error.context:
                return False
            raise errors.BatchConflictError(
                f"{error.message}; choose another id", context={"batch": batch}
            ) from None
        if note.rounds and note.rounds[0].digest == digest:
            return True
        raise errors.BatchConflictError(
            f"a batch {batch!r} exists with another agent or data subject, or other tasks; choose"
            " another id",
            context={"batch": batch},
        )
