"""Batches over HTTP: many tasks of one agent."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic_core import to_json
from sse_starlette.event import ServerSentEvent

from perdure import limits
from perdure.base import Value
from perdure.clients.batches.handle import described
from perdure.clients.batches.listing import BatchEntry
from perdure.clients.batches.status import BatchResult, BatchStatus
from perdure.clients.gateway.ids import checked
from perdure.clients.gateway.inputs import Body, Query
from perdure.clients.gateway.operations import Accepted, Call, operation
from perdure.clients.gateway.options import (
    AddBudget,
    Cancelled,
    CommonOptions,
    Paged,
    Reason,
    budget_of,
    check_limits,
)
from perdure.clients.gateway.quotas import check_batches
from perdure.clients.gateway.streams import EventStream, begun
from perdure.clients.schedules.status import ScheduleResult
from perdure.values.batch_items import OnError
from perdure.values.budgets import Budget, Remaining
from perdure.values.tasks import Task

AtOnce = Annotated[int, Field(ge=1, le=limits.BATCH_AT_ONCE)]


class BatchTask(Body):
    """A task of a batch: text or an object, with its id within the batch and its labels."""

    task: str | Task
    id: str | None = None
    labels: dict[str, str] = {}


def budgets_of(tasks: Iterable[str | BatchTask]) -> Iterator[Budget | None]:
    """Yield the budgets that tasks have themselves."""
    for task in tasks:
        yield None if isinstance(task, str) else budget_of(task.task)


class StartBatch(CommonOptions):
    """The batch to start.

    Attributes:
        id: The batch's id; with the same tasks it is the same batch.
        agent: The name of the agent.
        tasks: The tasks: text, or objects. Without an id, a task has its number, from 1.
        context: Named blocks that are placed before each task.
        budget: The limits of what all turns together may spend.
        turn_budget: The limits of each turn.
        at_once: The largest number of turns that run at the same time.
        on_error: What to do after a turn without an answer: `go on`, or `stop` to start no more.
    """

    most_values: ClassVar[int] = limits.HTTP_BATCH_VALUES

    id: str
    agent: str
    tasks: Annotated[tuple[str | BatchTask, ...], Field(min_length=1, fail_fast=True)]
    context: dict[str, str] = {}
    turn_budget: Budget | None = None
    at_once: AtOnce = 10
    on_error: OnError = "go on"


class RetryBatch(Body):
    """What to add to the budget, and the number of turns at once, if it is to be another one."""

    budget: Budget | None = None
    at_once: AtOnce | None = None


class ListBatches(Paged):
    """Which batches to list: all, or those of an agent."""

    agent: str | None = None


class BatchList(Value):
    """Batches in a list: those that are not over first, then the last ended.

    `next` is the cursor of the next page; null if there is none.
    """

    batches: tuple[BatchEntry, ...]
    next: str | None = None


class WatchResults(Query):
    """Which results.

    Attributes:
        after: The id of the last known result, where a client cannot send `Last-Event-ID`.
    """

    after: str | None = None


@operation("POST", "/v1/batches", may="start")
async def start_batch(call: Call, body: StartBatch) -> Accepted[BatchStatus]:
    """Start a batch: a turn of one agent for each task, with one budget for all of them.

    All tasks are checked before the first turn starts. A batch of this id with the same tasks is
    returned as it is.
    """
    caller = call.caller
    check_limits(caller, body, body.turn_budget, *budgets_of(body.tasks))
    batch_id = checked(call, body.id)
    await check_batches(call.client, caller, batch_id, len(body.tasks))
    batch = await call.client.start_batch(
        batch_id,
        body.agent,
        [task if isinstance(task, str) else dict(task) for task in body.tasks],
        at_once=body.at_once,
        turn_budget=body.turn_budget,
        on_error=body.on_error,
        context=body.context or None,
        fairness=caller.tenant,
        by=caller.subject,
        **body.common(caller),
    )
    return await batch.status()


@operation("GET", "/v1/batches", may="read")
async def list_batches(call: Call, query: ListBatches) -> BatchList:
    """List batches, page by page. The list may lag a second behind."""
    listing = call.client.batches(query.agent, id_prefix=call.caller.prefix or None)
    page = await listing.page(query.after, size=query.limit)
    return BatchList(batches=page.entries, next=page.next)


@operation("GET", "/v1/batches/{id:path}/results", may="read")
async def watch_results(call: Call, query: WatchResults) -> EventStream | None:
    """Stream the results of a batch, each as soon as its turn is over, until the batch is over.

    The id of each message is the cursor of its result. A client that sends the last one as
    `Last-Event-ID` gets the results after it.
    """
    after = call.request.headers.get("last-event-id") or query.after
    with contextlib.ExitStack() as held:
        held.enter_context(call.stay_open())
        info, _ = await described(call.client.temporal, call.id)
        results = call.client.batch(call.id).results(after)
        items = await begun(results, held, is_over=info.HasField("close_time"))
        if items is None:
            return None
        return EventStream(messages_of(items), held.pop_all())


async def messages_of(
    items: AsyncGenerator[BatchResult[Any] | ScheduleResult, None],
) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield the message of each result of a batch or a schedule; its id is the cursor."""
    async with contextlib.aclosing(items):
        async for result in items:
            data = to_json(result, inf_nan_mode="null").decode()
            yield ServerSentEvent(data, id=result.cursor)


@operation("GET", "/v1/batches/{id:path}", may="read")
async def get_batch(call: Call) -> BatchStatus:
    """Return the status of a batch. It is some seconds old at most."""
    return await call.client.batch(call.id).status()


@operation("POST", "/v1/batches/{id:path}/cancel", may="control")
async def cancel_batch(call: Call, body: Reason) -> Accepted[Cancelled]:
    """Cancel the turns that run, and start no more. Results can still be read."""
    batch = call.client.batch(call.id)
    return Cancelled(cancelled=await batch.cancel(body.reason, by=call.caller.subject))


@operation("POST", "/v1/batches/{id:path}/add-budget", may="budget")
async def add_to_batch(call: Call, body: AddBudget) -> Remaining:
    """Add to the budget of a batch that runs, and return the rest.

    A request that is repeated adds again.
    """
    return await call.client.batch(call.id).add_budget(body.budget, by=call.caller.subject)


@operation("POST", "/v1/batches/{id:path}/retry", may="start")
async def retry_batch(call: Call, body: RetryBatch) -> Accepted[BatchStatus]:
    """Run the tasks of a batch again that have no answer."""
    check_limits(call.caller, body)
    batch = call.client.batch(call.id)
    if call.caller.tenant is not None:
        status = await batch.status()
        unanswered = status.total - status.done
        if status.ended_at is not None and unanswered:  # otherwise nothing is started
            await check_batches(call.client, call.caller, None, unanswered)
    await batch.retry(body.budget, at_once=body.at_once, by=call.caller.subject)
    return await batch.status()
