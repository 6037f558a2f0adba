"""The clock of this machine, compared with the server's.

The server has no call that tells its time. But it notes when a task queue was last polled: so a
queue that nobody else knows is polled once, and then described. Nothing is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.clients.reading import task_queues
from perdure.values.moments import period_in_words
from perdure.worker.setup_checks import Finding

Clock = Callable[[], datetime]
"""Returns the time of this machine, with its time zone."""

_TOLERANCE = timedelta(seconds=5)
_POLLED_FOR = timedelta(seconds=10)
_TRIES = 200
_PAUSE_S = 0.01
_WORKFLOWS = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW


def machine_clock() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)


async def server_time(client: Client) -> datetime | None:
    """Return the server's time, at most some milliseconds old; None if it cannot be found out.

    Raises:
        RPCError: The server does not answer.
    """
    queue = f"perdure-doctor-{uuid4().hex}"
    request = PollWorkflowTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), identity="perdure doctor"
    )
    service = client.workflow_service
    polling = asyncio.create_task(service.poll_workflow_task_queue(request, timeout=_POLLED_FOR))
    try:
        for _ in range(_TRIES):
            pollers = (await task_queues.described(client, queue, _WORKFLOWS, retry=True)).pollers
            if pollers:
                return task_queues.polled_at(pollers[0])
            await asyncio.sleep(_PAUSE_S)
    finally:
        polling.cancel()
        with contextlib.suppress(asyncio.CancelledError, RPCError):
            await polling
    return None


async def compared(client: Client, clock: Clock) -> tuple[Finding, datetime]:
    """Compare the clocks, and return the server's time too, or else this machine's.

    Raises:
        RPCError: The server does not answer.
    """
    before = clock()
    there = await server_time(client)
    after = clock()
    if there is None:
        return Finding("clock", "skipped", "the server does not say when it is polled"), after
    # the server noted its time between the two looks at this clock
    ahead = max(before - there, there - after, timedelta())
    if ahead <= _TOLERANCE:
        return Finding("clock", "ok", "this machine and the server have the same time"), there
    order = "ahead of" if before > there else "behind"
    return Finding(
        "clock",
        "failed",
        f"this machine is {period_in_words(ahead)} {order} the server: deadlines, expiry times and"
        " tokens are judged by either clock",
        "have both synchronise their clocks, by NTP or chrony",
    ), there
