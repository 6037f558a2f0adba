"""Work that no worker takes: the caller gets a note, and is told to start a worker only if none
polls the queue.
"""

import asyncio
import logging
import threading
from datetime import timedelta

import pytest

from perdure import Agent, tool
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.turn.facts import Scheduled
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

from ...conftest import eventually
from ...support.spending import ended, queue, until

FREED = threading.Event()


@tool
async def hold() -> str:
    """Take the worker's only place."""
    await asyncio.to_thread(FREED.wait)
    return "held"


@pytest.mark.accepts("O19")
@pytest.mark.slow
async def test_caller_is_told_to_start_a_worker_only_where_none_polls(
    perdure_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker whose slots are all in use is not missing, and a running activity does not wait for
    a worker.
    """
    FREED.clear()
    caplog.set_level(logging.WARNING, "perdure")
    clerk = Agent(name="clerk", model="scripted:clerk", tools=[hold])
    scripts = {
        "hold": ScriptedModel(calls(call("hold")), says("done")),
        "wait": ScriptedModel(says("done")),
    }
    async with queue(perdure_server) as work, queue(perdure_server) as empty:
        app = AgentWorker(
            clerk, task_queue=work.client.task_queue, providers={"scripted": ByTask(scripts)}
        )
        one_place = WorkerSettings(grace=timedelta(seconds=0.1), max_activities=1)
        async with app.running(work.client.temporal, settings=one_place):
            holding = await work.client.start("clerk", "hold")
            await until(holding, Scheduled, times=2)
            turns = [
                holding,
                await work.client.start("clerk", "wait"),
                await empty.client.start("clerk", "wait"),
            ]
            ends = [asyncio.create_task(ended(turn)) for turn in turns]
            await eventually(
                lambda: len(said(caplog)) == 2, "two turns are said to wait", within_s=60
            )
            await empty.client.temporal.get_workflow_handle(turns[2].id).terminate()
            FREED.set()
            await asyncio.gather(*ends)

    told = {turn.id: [words for words in said(caplog) if turn.id in words] for turn in turns}
    [busy], [absent] = told[turns[1].id], told[turns[2].id]
    assert told[holding.id] == []
    assert "no worker has taken it; one asked for work " in busy
    assert "start a worker" not in busy
    assert absent.endswith("no worker polls it; start a worker with `perdure worker module:name`")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The notes to callers of turns in which nothing happens."""
    return [
        text
        for record in caplog.records
        if (text := record.getMessage()).startswith("nothing has happened")
    ]
