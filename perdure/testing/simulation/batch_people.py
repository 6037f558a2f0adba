"""The people around a batch: they upload it, add to its budget, cancel it and run it again.

They also do what its turns wait for. Their client may be lost while it uploads the batch, and
uploads it again then. An operator may terminate a part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from perdure.batch.wire import BatchRequest
from perdure.clients.batches.items import read
from perdure.clients.batches.spool import Spool
from perdure.clients.batches.uploading import Uploader, Work
from perdure.clients.finding import Finder
from perdure.temporal.names import ADD_BUDGET, BATCH, BATCH_PART, SCHEDULED_BATCH, TURN
from perdure.temporal.payloads import pack
from perdure.temporal.search_attributes import SCHEDULED_FOR
from perdure.testing.simulation.batches import SimulatedBatch
from perdure.testing.simulation.clients.starting_client import ClientLostError, StartingClient
from perdure.testing.simulation.people import People
from perdure.testing.simulation.server.clock import START
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.sdk import TASK_QUEUE, BegunRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.values.budgets import Budget, BudgetUpdate

SCHEDULED = "scheduled batches"
"""The feature of batches that a schedule starts."""
_ROUNDS = 3
"""A batch is run so often at most."""
_PAUSES_S = (1, 60, 3600, 25 * 3600)
"""The pauses before people upload a batch again, or run it again."""


class BatchPeople(People):
    """Everybody who has to do with one batch and its turns.

    They may add to the budget of a single turn, past that of the batch.

    Attributes:
        terminated: The parts that an operator has terminated.
    """

    sees_moments = False

    def __init__(
        self,
        server: SimulatedServer,
        workflow_id: str,
        batch: SimulatedBatch,
        *,
        task_timeout: timedelta,
        terminate: Callable[[SimulatedRun], None],
    ) -> None:
        self.adds_to_turns = server.choices.happens(2)
        self.terminated: list[SimulatedRun] = []
        self.batch = batch
        self._task_timeout = task_timeout
        self._terminate = terminate
        self._rounds = 0
        super().__init__(server, workflow_id)
        server.on_event.append(self._watch_batch)

    def look(self) -> None:
        """Upload the batch, look after its turns, and run it again when it is over."""
        if self._server.run_of(self.workflow_id) is not None:
            super().look()
        elif self._rounds == 0:
            self._upload()
            self._server.clock.later(self._choices.pick(_PAUSES_S), self.look)
        elif any(run.begun.type == BATCH_PART and not run.closed for run in self._server.runs):
            self._server.clock.later(60, self.look)  # it waits until no batch needs it
        elif self._cancel_left():
            self._server.clock.later(60, self.look)
        elif self._rounds < _ROUNDS and self._choices.happens(3):
            self._retry()
            self._server.clock.later(self._choices.pick(_PAUSES_S), self.look)

    def _cancel_left(self) -> bool:
        """Cancel the turns that nobody waits for since their part was reset, as the pages say.

        Returns: Whether there were any.
        """
        turns = [run for run in self._server.runs if run.begun.type == TURN]
        left = [run for run in turns if not run.closed and _is_nobodys(run)]
        for run in left:
            self._server.cancel(run, "not needed")
        return bool(left)

    def _is_of_tree(self, run: SimulatedRun) -> bool:
        return self._server.run_of(self.workflow_id) is not None

    def _client(self) -> StartingClient:
        """Return the client of a new process, which is lost at times."""
        survives = self._choices.pick((0, 1, 2, 3)) if self._choices.happens(5) else None
        return StartingClient(self._server, self._task_timeout, survives)

    def _upload(self) -> None:
        if self.batch.items and self._choices.has(SCHEDULED):
            self._begin_by_schedule()
            return
        try:
            asyncio.run(self._uploaded(cast("Client", self._client())))
            self._rounds = 1
        except ClientLostError:
            self._server.counts["lost uploads"] += 1
        if self._server.run_of(self.workflow_id) is not None:
            self._rounds = 1

    def _begin_by_schedule(self) -> None:
        """Start the batch as a schedule does; a worker uploads its tasks then."""
        self._rounds, run_id = 1, self._server.new_run_id()
        attributes = TypedSearchAttributes([SearchAttributePair(SCHEDULED_FOR, START)])
        begun = BegunRun(
            self.workflow_id,
            run_id,
            run_id,
            SCHEDULED_BATCH,
            0,
            task_timeout=self._task_timeout,
            search_attributes=attributes,
        )
        self._server.counts["batches of schedules"] += 1
        self._server.start(begun, [pack(self.batch.of_schedule).payload])

    async def _uploaded(self, client: Client) -> None:
        """Store the tasks and start the batch, as a client does."""
        batch, common = self.batch, self.batch.common
        uploader = Uploader(client, TASK_QUEUE, batch.part_items)
        with Spool() as spool:
            tasks: list[dict[str, Any]] = [dict(item) for item in batch.items]
            digest = common.digest()
            if tasks:  # an empty batch is refused here, but an earlier release may start one
                digest = await read(self.workflow_id, common, tasks, spool)
            work = Work(self.workflow_id, 1, digest, common, indexed=False, priority=None)
            request = BatchRequest(
                agent=common.agent,
                digest=digest,
                items=spool.count,
                parts=await uploader.parts(work, spool),
                at_once=batch.at_once,
                budget=batch.budget,
                on_error=batch.on_error,
            )
        await uploader.start(work, request)

    def _retry(self) -> None:
        """Run the tasks again that have no answer, maybe with more budget."""
        if all(run.begun.type != BATCH for run in self._server.runs):
            return  # it was cancelled before its tasks were stored
        client = cast("Client", self._client())
        more = self._more() if self._choices.happens(2) else None
        at_once = self._choices.pick((None, None, 1, 3))
        try:
            batch = Finder(client, TASK_QUEUE).batch(self.workflow_id)
            asyncio.run(_run_again(batch, more, at_once))
        except ClientLostError:
            self._server.counts["lost uploads"] += 1
            return
        self._rounds += 1
        if self._server.run_of(self.workflow_id) is not None:
            self._server.counts["retries"] += 1
            self._looks = 0

    def _more(self) -> Budget | None:
        """Return an addition to the budget of the batch; None if it has no limit."""
        limits = {
            name: timedelta(minutes=5) if name == "time" else 5000
            for name, value in self.batch.budget or ()
            if value is not None
        }
        return Budget.model_validate(limits) if limits else None

    def _watch_batch(self, run: SimulatedRun) -> None:
        """Do something in the very moment of some events of the batch, its parts or its turns."""
        if run.begun.type in (BATCH, BATCH_PART) and self._choices.happens(60):
            self._server.clock.later(0, self._interfere_in_batch)

    def _interfere_in_batch(self) -> None:
        batch = self._server.run_of(self.workflow_id)
        if batch is None:
            return
        match self._choices.pick(("add", "add", "cancel", "terminate")):
            case "add":
                more = self._more()
                if more is not None:
                    self._send(batch, ADD_BUDGET, BudgetUpdate(**dict(more)))
            case "cancel":
                self.cancelled |= self._server.cancel(batch, "enough of it")
            case _ if self._choices.happens(4):
                parts = [run for run in self._server.runs if run.begun.type == BATCH_PART]
                open_parts = [run for run in parts if not run.closed]
                if open_parts:
                    part = self._choices.pick(open_parts)
                    self.terminated.append(part)
                    self._terminate(part)
            case _:
                pass

    def add(self, run: SimulatedRun) -> None:
        """Add to the limits of a turn."""
        if self.adds_to_turns:
            super().add(run)
        else:
            self._send(run, ADD_BUDGET, BudgetUpdate(iterations=3))


def _is_nobodys(turn: SimulatedRun) -> bool:
    """Return whether no part waits for a turn: it was reset, and maybe terminated then."""
    part = turn.parent[0] if turn.parent else None
    return turn.is_left or (part is not None and part.base is not None and bool(part.closed))


async def _run_again(batch: Any, more: Budget | None, at_once: int | None) -> None:
    await batch.retry(more, at_once=at_once)
