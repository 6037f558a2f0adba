"""Separate task queues for the model calls of a provider.

Temporal enforces their rate limit across all workers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from temporalio.worker import Worker

from perdure import errors
from perdure.worker import internals


@dataclass(frozen=True, kw_only=True)
class ModelQueue:
    """The task queue for the model calls of one provider.

    Its name is the name of the worker's task queue, a dot, and the provider's name.

    Attributes:
        per_second: The maximum number of model calls that start per second, across all workers of
            the queue; None for no limit. Temporal enforces it.
        at_once: The maximum number of concurrent calls in this process; None for the worker's limit
            of concurrent model calls.

    Raises:
        ConfigurationError: A number is out of range.
    """

    per_second: float | None = None
    at_once: int | None = None

    def __post_init__(self) -> None:
        if self.per_second is not None and not 0 < self.per_second < float("inf"):
            raise errors.ConfigurationError(
                f"a queue's per_second is more than 0, not {self.per_second}"
            )
        if self.at_once is not None and self.at_once < 1:
            raise errors.ConfigurationError(f"a queue's at_once is at least 1, not {self.at_once}")


@contextlib.asynccontextmanager
async def beside(worker: Worker, additional: Sequence[Worker]) -> AsyncIterator[None]:
    """Run `additional` while the block runs.

    They stop when `worker` is stopped, and it stops when one of them fails.

    Raises:
        Exception: The failure of any of them.
    """
    if not additional:
        yield
        return
    running = [asyncio.create_task(_run(other, worker)) for other in additional]
    stopping = asyncio.create_task(_stop_with(worker, additional))
    try:
        yield
    finally:
        stopping.cancel()
        await asyncio.gather(*(other.shutdown() for other in additional))
    await asyncio.gather(*running)


async def _run(other: Worker, worker: Worker) -> None:
    try:
        await other.run()
    except BaseException:
        internals.request_stop(worker)  # its `shutdown` would wait for this task
        internals.mark_ended(other)
        raise


async def _stop_with(worker: Worker, additional: Sequence[Worker]) -> None:
    await internals.stop_requested(worker)
    await asyncio.gather(*(other.shutdown() for other in additional))
