"""Delegates without a summary, whose history cannot be read: their spending is never reported as
zero.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from temporalio import activity
from temporalio.plugin import SimplePlugin
from temporalio.worker import Worker

from perdure import Budget, Outcome, errors
from perdure.temporal.names import READ_CHILD
from perdure.testing import ByTask, ScriptedModel, fails, says
from perdure.turn.facts import ChildRead, ChildScheduled, Scheduled
from perdure.worker import AgentWorker, PerdurePlugin
from perdure.worker.settings import WorkerSettings

from ...support.delegating import PRICED, delegate, editor, researcher, used
from ...support.ends import listening
from ...support.lost_delegates import found
from ...support.spending import Held, Queue, queue, report_of, until


def without_reading(given: Sequence[Callable[..., Any]] | None) -> list[Callable[..., Any]]:
    """The activities of a release that does not read the spending of a delegate."""
    names = {one: activity._Definition.must_from_callable(one).name for one in given or ()}
    assert READ_CHILD in names.values()
    return [one for one, name in names.items() if name != READ_CHILD]


@contextlib.asynccontextmanager
async def earlier(work: Queue, app: AgentWorker) -> AsyncIterator[None]:
    """Such a worker while the block runs."""
    grace = timedelta(seconds=0.1)
    plugins = [PerdurePlugin(app), SimplePlugin("earlier", activities=without_reading)]
    async with Worker(
        work.client.temporal,
        task_queue=work.client.task_queue,
        plugins=plugins,
        graceful_shutdown_timeout=grace,
    ):
        yield


@pytest.mark.slow
@pytest.mark.accepts("Y18")
@pytest.mark.parametrize("limit", [None, "100"])
async def test_cost_of_a_delegate_that_was_terminated_is_its_lease_or_unknown(
    perdure_server: str, limit: str | None
) -> None:
    """With a budget of money its lease bounds its spending; without one the report, the memo, the
    list and the log have no cost.
    """
    models = {
        "go": ScriptedModel(
            delegate("researcher", "Find.", used(300)), says("done", usage=used(300))
        ),
        "Find.": Held(says("never")),
    }
    app = AgentWorker(
        [editor(delegates=["researcher"]), researcher()],
        prices=PRICED,
        providers={"scripted": ByTask(models)},
    )
    async with queue(perdure_server) as work, listening() as records, earlier(work, app):
        client = work.client
        turn = await client.start("editor", "go", budget=Budget(usd=limit) if limit else None)
        await until(turn, ChildScheduled)
        child = await found(client, f"{turn.id}/researcher-1")
        await until(child, Scheduled)
        await client.temporal.get_workflow_handle(child.id).terminate()
        report = await report_of(turn)
        memo = await (await client.temporal.get_workflow_handle(turn.id).describe()).memo_value(
            "perdure"
        )
        read = (await until(turn, ChildRead)).fact

    [told] = [
        record
        for record in records
        if record["task"] == turn.id and record["event"] == "turn_completed"
    ]
    assert isinstance(read, ChildRead)
    assert (read.summary, report.outcome, report.children[0].outcome) == (
        None,
        Outcome.COMPLETED,
        Outcome.TERMINATED,
    )
    if limit:
        assert report.children[0].cost == report.children[0].spent.usd > 1
        assert report.cost == report.spent.usd == told["cost_usd"] > 1
    else:
        assert (report.children[0].cost, report.cost, told["cost_usd"], memo.get("cost")) == (
            None,
        ) * 4


@pytest.mark.accepts("Y18")
async def test_own_calls_are_logged_with_their_cost_after_a_delegate_was_lost(
    perdure_server: str,
) -> None:
    """An unknown cost of the tree does not hide that of a call, even of a failed one."""
    late = errors.LLMTimeoutError("too slow", context={"retry_after_s": 0.01})
    replies = delegate("researcher", "Find.", used(300)), fails(late), says("done", usage=used(300))
    models = {"go": ScriptedModel(*replies), "Find.": Held(says("never"))}
    app = AgentWorker(
        [editor(delegates=["researcher"]), researcher()],
        prices=PRICED,
        providers={"scripted": ByTask(models)},
    )
    async with queue(perdure_server) as work, listening() as records, earlier(work, app):
        client = work.client
        turn = await client.start("editor", "go")
        await until(turn, ChildScheduled)
        child = await found(client, f"{turn.id}/researcher-1")
        await until(child, Scheduled)
        await client.temporal.get_workflow_handle(child.id).terminate()
        report = await report_of(turn)

    own = [
        record for record in records if record["task"] == turn.id and record["event"] == "llm_call"
    ]
    assert report.cost is None
    assert [record["outcome"] for record in own] == ["tool_calls", "LLM_TIMEOUT", "end"]
    assert [record["cost_usd"] for record in own][::2] == [Decimal("0.3")] * 2
    assert own[1]["cost_usd"] > 1


@pytest.mark.accepts("Y71")
async def test_history_of_a_delegate_is_read_for_two_heartbeat_timeouts(
    perdure_server: str,
) -> None:
    """Where heartbeats are slow, a worker that is lost while it reads is noticed late; a second
    attempt then still has as much time.
    """
    models = {
        "go": ScriptedModel(delegate("researcher", "Find.", used(300)), says("done")),
        "Find.": Held(says("never")),
    }
    app = AgentWorker(
        [editor(delegates=["researcher"]), researcher()],
        prices=PRICED,
        providers={"scripted": ByTask(models)},
    )
    slow = WorkerSettings(
        heartbeat=timedelta(seconds=20),
        heartbeat_tolerance=timedelta(seconds=25),
        grace=timedelta(seconds=0.1),
    )
    async with queue(perdure_server) as work:
        client = work.client
        given = replace(app, task_queue=client.task_queue)
        async with given.running(client.temporal, settings=slow):
            turn = await client.start("editor", "go")
            await until(turn, ChildScheduled)
            child = await found(client, f"{turn.id}/researcher-1")
            await until(child, Scheduled)
            await client.temporal.get_workflow_handle(child.id).terminate()
            await report_of(turn)
        events = (await client.history(turn)).events

    [read] = [
        event.activity_task_scheduled_event_attributes
        for event in events
        if event.activity_task_scheduled_event_attributes.activity_type.name == READ_CHILD
    ]
    timeout = read.heartbeat_timeout.ToTimedelta()
    assert timeout == timedelta(seconds=45)
    assert read.schedule_to_close_timeout.ToTimedelta() == 2 * timeout
