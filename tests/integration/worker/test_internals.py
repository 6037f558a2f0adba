"""The private attributes of Temporal's SDK: the assumptions of `perdure.worker.internals` are true
for the installed release.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleSpec
from temporalio.common import RawValue
from temporalio.worker import Worker

from perdure.worker import internals

AT_MOST_S = 10


@workflow.defn(name="billing")
class Billing:
    """A workflow with a name of its own."""

    @workflow.run
    async def run(self) -> None: ...


@workflow.defn(dynamic=True)
class AnyWorkflow:
    """A workflow for every name."""

    @workflow.run
    async def run(self, given: Sequence[RawValue]) -> None: ...


@activity.defn(name="charge")
async def charge() -> None:
    """An activity with a name of its own."""


@activity.defn(dynamic=True)
async def anything(given: Sequence[RawValue]) -> None:
    """An activity for every name."""


@pytest.fixture
async def worker(perdure_server: str) -> Worker:
    """A worker that has not been started."""
    client = await Client.connect(perdure_server)
    return Worker(
        client, task_queue="internals", activities=[charge], graceful_shutdown_timeout=timedelta(0)
    )


def test_name_of_a_workflow() -> None:
    """The registered name, which may differ from the class name."""
    assert (internals.workflow_name(Billing), internals.workflow_name(AnyWorkflow)) == (
        "billing",
        None,
    )


def test_name_of_an_activity() -> None:
    """The registered name, which may differ from the function name."""
    assert [internals.activity_name(one) for one in (charge, anything, len)] == ["charge", "", ""]


async def test_worker_is_told_to_stop(worker: Worker) -> None:
    """It ends without a call of `shutdown`."""
    running = asyncio.create_task(worker.run())
    internals.request_stop(worker)
    await asyncio.wait_for(running, AT_MOST_S)

    assert worker.is_shutdown


async def test_request_to_stop_is_seen(worker: Worker) -> None:
    """As soon as `shutdown` is called."""
    seen = asyncio.create_task(internals.stop_requested(worker))
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0)
    assert not seen.done()

    await worker.shutdown()
    await asyncio.wait_for(asyncio.gather(seen, running), AT_MOST_S)


async def test_worker_that_never_started_can_be_marked_as_ended(worker: Worker) -> None:
    """So that `shutdown` does not wait for it."""
    internals.mark_ended(worker)
    await asyncio.wait_for(worker.shutdown(), AT_MOST_S)

    assert worker.is_shutdown
    await worker.run()  # it has been asked to stop, and releases its resources


@pytest.mark.accepts("Y154")
async def test_worker_ends_without_a_core_that_does_not(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """A core waits for the activities' poller to be told of the shutdown, which nothing polls."""
    worker._activity_worker = None
    internals.bound_end(worker, 0.5)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(worker.shutdown(), AT_MOST_S)
    await running

    assert worker.is_shutdown
    assert "the core of Temporal's SDK has not ended within 0.5 s" in caplog.text


async def test_schedule_for_the_server(perdure_server: str) -> None:
    """`perdure.temporal.schedule_updates` sends it with a token; the client would not."""
    client = await Client.connect(perdure_server)
    action = ScheduleActionStartWorkflow("billing", "given", id="x", task_queue="internals")
    made = await Schedule(action=action, spec=ScheduleSpec())._to_proto(client)

    assert made.action.start_workflow.workflow_type.name == "billing"
    assert made.action.start_workflow.input.payloads[0].data == b'"given"'
