"""Batches over HTTP: many tasks of one agent."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic_core import to_json
from sse_starlette.event import ServerSentEvent
from starlette.responses import Response

from perdure import limits
from perdure.clients.batches.status import BatchResult, BatchStatus
from perdure.clients.gateway.ids import checked
from perdure.clients.gateway.inputs import Body, Nothing, Query
from perdure.clients.gateway.operations import EVENTS, AnyOperation, Call, answer, done, operation
from perdure.clients.gateway.options import (
    AddBudget,
    Cancelled,
    CommonOptions,
    Reason,
    check_limits,
)
from perdure.clients.gateway.quotas import check_batches
from perdure.clients.gateway.streams import EventStream, begun
from perdure.values.batch_items import OnError
from perdure.values.budgets import Budget, Remaining
from perdure.values.tasks import Task
from perdure.values.webhooks import WebhookUrl

AtOnce = Annotated[int, Field(ge=1, le=limits.BATCH_AT_ONCE)]


class BatchTask(Body):
    """A task of a batch: text or an object, with its id within the batch and its labels."""

    task: str | Task
    id: str | None = None
    labels: dict[str, str] = {}


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
        on_done: The URL of the webhook of each turn.
    """

    most_values: ClassVar[int] = limits.HTTP_BATCH_VALUES

    id: str
    agent: str
    tasks: Annotated[tuple[str | BatchTask, ...], Field(min_length=1, fail_fast=True)]
    context: dict[str, str] = {}
    turn_budget: Budget | None = None
    at_once: AtOnce = 10
    on_error: OnError = "go on"
    on_done: WebhookUrl | None = None


class RetryBatch(Body):
    """What to add to the budget, and the number of turns at once, if it is to be another one."""

    budget: Budget | None = None
    at_once: AtOnce | None = None


class WatchResults(Query):
    """Which results.

    Attributes:
        after: The id of the last known result, where a client cannot send `Last-Event-ID`.
    """

    after: str | None = None


@operation(
    "POST",
    "/v1/batches",
    may="start",
    body=StartBatch,
    query=Nothing,
    answers={202: BatchStatus},
)
async def start_batch(call: Call[StartBatch, Nothing]) -> Response:
    """Start a batch: a turn of one agent for each task, with one budget for all of them.

    All tasks are checked before the first turn starts. A batch of this id with the same tasks is
    returned as it is.
    """
    body, caller = call.body, call.caller
    check_limits(
        caller,
        body.budget or body.turn_budget,
        body.max_iterations,
        options=body.options,
        model_retry=body.model_retry,
    )
    for one in body.tasks:
        check_limits(caller, None, None, one if isinstance(one, str) else one.task)
    batch_id = checked(call, body.id)
    await check_batches(call.client, caller, batch_id, len(body.tasks))
    batch = await call.client.start_batch(
        batch_id,
        body.agent,
        [one if isinstance(one, str) else dict(one) for one in body.tasks],
        at_once=body.at_once,
        turn_budget=body.turn_budget,
        on_error=body.on_error,
        on_done=body.on_done,
        context=body.context or None,
        fairness=caller.tenant,
        **body.common(),
    )
    return answer(await batch.status(), 202)


@operation(
    "GET",
    "/v1/batches/{id:path}/results",
    may="read",
    body=Nothing,
    query=WatchResults,
    answers={200: EVENTS, 204: None},
)
async def watch_results(call: Call[Nothing, WatchResults]) -> Response:
    """Stream the results of a batch, each as soon as its turn is over, until the batch is over.

    The id of each message is the cursor of its result. A client that sends the last one as
    `Last-Event-ID` gets the results after it.
    """
    after = call.request.headers.get("last-event-id") or call.query.after
    with contextlib.ExitStack() as held:
        held.enter_context(call.stay_open())
        batch = call.client.batch(call.id)
        items = await begun(batch.results(after), held)
        if items is None:
            return done()
        return EventStream(_messages(items), held.pop_all())


async def _messages(
    items: AsyncGenerator[BatchResult[Any], None],
) -> AsyncGenerator[ServerSentEvent, None]:
    async with contextlib.aclosing(items):
        async for one in items:
            told = to_json(one, inf_nan_mode="null").decode()
            yield ServerSentEvent(told, id=one.cursor)


@operation(
    "GET",
    "/v1/batches/{id:path}",
    may="read",
    body=Nothing,
    query=Nothing,
    answers={200: BatchStatus},
)
async def get_batch(call: Call[Nothing, Nothing]) -> Response:
    """Return the status of a batch. It is some seconds old at most."""
    return answer(await call.client.batch(call.id).status())


@operation(
    "POST",
    "/v1/batches/{id:path}/cancel",
    may="control",
    body=Reason,
    query=Nothing,
    answers={202: Cancelled},
)
async def cancel_batch(call: Call[Reason, Nothing]) -> Response:
    """Cancel the turns that run, and start no more. Results can still be read."""
    batch = call.client.batch(call.id)
    cancelled = await batch.cancel(call.body.reason, by=call.caller.subject)
    return answer(Cancelled(cancelled=cancelled), 202)


@operation(
    "POST",
    "/v1/batches/{id:path}/add-budget",
    may="budget",
    body=AddBudget,
    query=Nothing,
    answers={200: Remaining},
)
async def add_to_batch(call: Call[AddBudget, Nothing]) -> Response:
    """Add to the budget of a batch that runs, and return the rest.

    A request that is repeated adds again.
    """
    batch, by = call.client.batch(call.id), call.caller.subject
    return answer(await batch.add_budget(call.body.budget, by=by))


@operation(
    "POST",
    "/v1/batches/{id:path}/retry",
    may="start",
    body=RetryBatch,
    query=Nothing,
    answers={202: BatchStatus},
)
async def retry_batch(call: Call[RetryBatch, Nothing]) -> Response:
    """Run the tasks of a batch again that have no answer."""
    body = call.body
    check_limits(call.caller, body.budget)
    batch = call.client.batch(call.id)
    if call.caller.tenant is not None:
        status = await batch.status()
        await check_batches(call.client, call.caller, batch.id, status.total - status.done)
    await batch.retry(body.budget, at_once=body.at_once)
    return answer(await batch.status(), 202)


OPERATIONS: tuple[AnyOperation, ...] = (
    start_batch,
    watch_results,
    get_batch,
    cancel_batch,
    add_to_batch,
    retry_batch,
)
