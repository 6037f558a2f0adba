"""The task queues: who polls them, and how long their tasks wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.client import Client

from perdure.clients.reading import task_queues
from perdure.text import counted
from perdure.values.moments import period_in_words
from perdure.worker.setup_checks import Finding

Tasks = Literal["workflow", "activity"]
"""The two kinds of tasks of a queue. A worker of a provider's queue polls only one of them."""

_TYPES = {
    "workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    "activity": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
}


@dataclass(frozen=True)
class Queue:
    """The tasks of one kind in a queue.

    Attributes:
        name: The name of the task queue.
        tasks: The kind.
        pollers: The identities of the workers that poll for them.
        backlog: The number of tasks that wait for a worker, approximately.
        age: How long the oldest of them has waited.
    """

    name: str
    tasks: Tasks
    pollers: tuple[str, ...]
    backlog: int
    age: timedelta


async def read(client: Client, names: Iterable[str], now: datetime) -> list[Queue]:
    """Return both kinds of tasks of each of these queues.

    Args:
        client: A client of the server.
        names: The names of the queues.
        now: The server's time.

    Raises:
        RPCError: The server does not answer.
    """

    async def one(name: str, tasks: Tasks) -> Queue:
        told = await task_queues.described(client, name, _TYPES[tasks], retry=True)
        pollers = {poller.identity for poller in task_queues.present(told, now)}
        age = told.stats.approximate_backlog_age.ToTimedelta()
        backlog = told.stats.approximate_backlog_count
        return Queue(name, tasks, tuple(sorted(pollers)), backlog, age)

    asked = [one(name, tasks) for name in sorted(names) for tasks in get_args(Tasks)]
    return list(await asyncio.gather(*asked))


def of_turns(
    queues: Iterable[Queue], waiting: Mapping[str, int], late: timedelta
) -> Iterator[Finding]:
    """Judge the queues on which turns, sessions and batches run.

    Args:
        queues: Both kinds of tasks of each queue.
        waiting: The number of open workflows, by the name of the queue.
        late: How long a task may wait while workers poll.
    """
    for queue in queues:
        open_ = waiting.get(queue.name, 0)
        if not queue.pollers:
            yield _unpolled(queue, f"; {counted(open_, 'open workflow')} on it" if open_ else "")
        else:
            yield _polled(queue, late)


def of_calls(queues: Iterable[Queue], late: timedelta) -> Iterator[Finding]:
    """Judge the queues that have calls and no workflows, such as those of a provider's models."""
    for queue in queues:
        if queue.tasks == "activity":
            yield _polled(queue, late) if queue.pollers else _unpolled(queue, "; calls wait on it")


def _subject(queue: Queue) -> str:
    return f"queue {queue.name}, {queue.tasks} tasks"


def _unpolled(queue: Queue, why_it_matters: str) -> Finding:
    return Finding(
        _subject(queue),
        "failed" if why_it_matters else "warning",
        f"no worker polls it{why_it_matters}",
        f"run `perdure worker MODULE:NAME` with PERDURE_TASK_QUEUE={queue.name}",
    )


def _polled(queue: Queue, late: timedelta) -> Finding:
    workers = counted(len(queue.pollers), "worker")
    if queue.age < late:
        return Finding(
            _subject(queue),
            "ok",
            f"{workers} polls it" if len(queue.pollers) == 1 else f"{workers} poll it",
        )
    return Finding(
        _subject(queue),
        "warning",
        f"the oldest of {counted(queue.backlog, 'task')} has waited for"
        f" {period_in_words(queue.age)}, although {workers} poll it",
        "add workers, or raise PERDURE_MAX_MODEL_CALLS and PERDURE_MAX_ACTIVITIES if theirs are"
        " full; a limit of calls per second delays them on purpose",
    )
