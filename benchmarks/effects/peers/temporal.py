"""What pydantic-ai and openai-agents on Temporal share: the activities, and how a workflow runs.

- `write` makes the effects. An activity that fails is tried again, without end unless a policy says
  otherwise.
- `written` makes them from a workflow with a policy of its own, as documentation of both shows for
  tools that run in the workflow, and tells the model of an error instead of ending the run.

Workflows run outside the sandbox, and without the check for deadlocks: both cost time only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

from benchmarks.effects.peers.jobs import FIRST_PAUSE_S, Job, Runs, failure, job_of, may_repeat

ANSWER = "Answer"
"""The workflow of both."""
TIMEOUT = timedelta(minutes=1)
"""That of activities of both frameworks for models; a tool of pydantic-ai has the same."""


def job() -> Job:
    """The job of the activity that runs now."""
    return job_of(str(activity.info().workflow_id))


@activity.defn
async def write(records: str) -> str:
    """Make the effects."""
    return await job().write(records)


@activity.defn
async def find(records: str) -> str:
    """Read back which effects were made."""
    return await job().find(records)


@activity.defn
async def write_once(records: str) -> str:
    """Make the effects, with a key that is the same for all attempts if the setting has one."""
    info, asked = activity.info(), job()
    key = f"{info.workflow_run_id}/{info.activity_id}" if asked.setting.sends_key else ""
    try:
        return await asked.write(records, key)
    except Exception as error:  # noqa: BLE001 - it goes on as an error of the activity
        kind = type(error).__name__
        raise ApplicationError(str(error), type=kind, non_retryable=not may_repeat(error)) from None


async def written(records: str) -> str:
    """Make the effects, from a workflow; an error is what the model reads."""
    attempts = job_of(workflow.info().workflow_id).setting.attempts
    policy = RetryPolicy(
        initial_interval=timedelta(seconds=FIRST_PAUSE_S), maximum_attempts=attempts
    )
    try:
        return await workflow.execute_activity(
            write_once, records, start_to_close_timeout=TIMEOUT, retry_policy=policy
        )
    except ActivityError as error:
        cause = error.cause
        kind = cause.type if isinstance(cause, ApplicationError) else type(cause).__name__
        return failure(kind or "", str(getattr(cause, "message", cause)))


def worker_of(client: Client, queue: str, activities: Sequence[Any], workflow: type) -> Worker:
    """A worker with a workflow, `Answer`, and activities."""
    return Worker(
        client,
        task_queue=queue,
        workflows=[workflow],
        activities=activities,
        debug_mode=True,
    )


@contextlib.asynccontextmanager
async def opened(system: Any, variant: str, address: str) -> AsyncIterator[Runs]:
    """A worker, for the duration of the block."""
    client, queue = await system.connect(address, variant), f"{system.__name__}-{variant}"

    async def runs(name: str) -> str:
        handle = await client.start_workflow(ANSWER, name, id=name, task_queue=queue)
        try:
            return str(await handle.result())
        except asyncio.CancelledError:
            await handle.cancel()  # a workflow that is terminated is evicted uncleanly
            raise

    async with system.worker(client, queue, variant):
        yield runs
