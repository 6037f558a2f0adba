"""A cancel in the workflow task in which a signal ends a full run is not lost with the run."""

import asyncio
import secrets
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.common import RawValue

from perdure import errors
from perdure.batch.wire import BatchRequest, PartNews, part_id
from perdure.temporal.names import BATCH, BATCH_NEWS, BATCH_PART, MOVE_ON
from perdure.temporal.payloads import NOTHING, pack
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.history_limits import run_events

from ...support.approving import agent, pending
from ...support.long_turns import begin
from ...support.spending import SOON_S, app, queue, until_idle

SHORT = timedelta(seconds=1)
"""A workflow task timeout with which a run is full after few events."""


async def sent_at_once(handle: WorkflowHandle[Any, Any], name: str, content: RawValue) -> None:
    """Send so many signals that the run is full, and then a cancel, while no worker is there."""
    await asyncio.gather(*(handle.signal(name, content) for _ in range(run_events(SHORT))))
    await handle.cancel()


@pytest.mark.accepts("S20")
async def test_cancel_beside_the_signal_that_ends_a_full_run_of_a_turn(perdure_server: str) -> None:
    """The turn waits for a person, and a deploy asks it again and again to move on."""
    async with queue(perdure_server) as work:
        model = ScriptedModel(calls(call("send", to="ann")), says("done"))
        async with work.worker(app(agent()), model):
            turn = await begin(work.client, "clerk", timeout=SHORT)
            await pending(turn)
            await until_idle(work.client.temporal.get_workflow_handle(turn.id))
        await sent_at_once(work.client.temporal.get_workflow_handle(turn.id), MOVE_ON, NOTHING)
        async with work.worker(app(agent()), model):
            with pytest.raises(errors.TurnCancelledError):
                await asyncio.wait_for(turn.result(), SOON_S)


@pytest.mark.accepts("S20")
async def test_cancel_beside_the_news_that_end_a_full_run_of_a_batch(perdure_server: str) -> None:
    """Its part is held up, and news come that end the run."""
    async with queue(perdure_server) as work:
        temporal, name = work.client.temporal, f"batch-{secrets.token_hex(4)}"
        request = BatchRequest(agent="clerk", digest="d" * 12, items=1, parts=1, at_once=1)
        part = await temporal.start_workflow(
            BATCH_PART, id=part_id(name, 1, request.digest, 1), task_queue=f"nobody-{name}"
        )
        batch = await temporal.start_workflow(
            BATCH, pack(request), id=name, task_queue=work.client.task_queue, task_timeout=SHORT
        )
        async with work.worker(app(agent()), ScriptedModel()):
            await until_idle(batch)
        await sent_at_once(batch, BATCH_NEWS, pack(PartNews(part=1)))
        async with work.worker(app(agent()), ScriptedModel()):
            async with asyncio.timeout(SOON_S):
                while not (await work.client.batch(name).status()).not_started:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        for left in (part, temporal.get_workflow_handle(name)):
            await left.terminate()
