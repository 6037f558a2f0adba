"""The private attributes of Temporal's SDK that Perdure uses, each behind a function.

The SDK has no public equivalent. `tests/integration/worker/test_internals.py` has a test for each,
which
fails when a release of the SDK changes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from temporalio import activity, workflow
from temporalio.worker import Worker

logger = logging.getLogger("perdure")


def workflow_name(cls: type[Any]) -> str | None:
    """The name that a workflow class is registered under; None for a dynamic workflow."""
    return workflow._Definition.must_from_class(cls).name  # noqa: SLF001


def activity_name(function: Callable[..., object]) -> str:
    """The name that an activity is registered under.

    Empty for a dynamic activity, or for a function that is not an activity.
    """
    definition = activity._Definition.from_callable(function)  # noqa: SLF001
    return definition.name or "" if definition else ""


def request_stop(worker: Worker) -> None:
    """Tell a worker to stop, without waiting for its end as `Worker.shutdown` does."""
    worker._shutdown_event.set()  # noqa: SLF001


async def stop_requested(worker: Worker) -> None:
    """Wait until a worker is told to stop."""
    await worker._shutdown_event.wait()  # noqa: SLF001


def mark_ended(worker: Worker) -> None:
    """Say that a worker has ended that failed before it was started.

    Otherwise `Worker.shutdown` would wait for its end forever.
    """
    worker._shutdown_complete_event.set()  # noqa: SLF001


def bound_end(worker: Worker, within_s: float) -> None:
    """Let a worker end if the SDK's core does not end with it.

    A core in which workflow tasks have failed sometimes waits forever for one that is over. By then
    the worker polls no more, and the server has the results of all of its tasks.
    """
    core = worker._bridge_worker  # noqa: SLF001
    finalize = core.finalize_shutdown

    async def bounded() -> None:
        try:
            await asyncio.wait_for(finalize(), within_s)
        except TimeoutError:
            logger.warning(
                "the core of Temporal's SDK has not ended within %g s after the last task of this"
                " worker, which ends without it",
                within_s,
            )

    core.finalize_shutdown = bounded  # type: ignore[method-assign]
