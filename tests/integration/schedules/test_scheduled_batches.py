"""Schedules that run a batch at each time: one start, one total, and what people see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.worker import Replayer

from perdure import Budget, Outcome, errors
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient, Batch, BatchOf, BatchResult, Schedule, State
from perdure.clients.schedules.definition import turn_id_of
from perdure.temporal.data_converter import chosen
from perdure.temporal.histories.runs import describe, runs_up_to
from perdure.temporal.names import BATCH
from perdure.testing import FunctionModel, ScriptedModel, fails, says
from perdure.testing import Runtime as PlainRuntime
from perdure.values.budgets import Spending
from perdure.workflows import WORKFLOWS

from ...conftest import Runtime, assert_no_task_failed, eventually
from ...support import encrypting
from ...support.scheduled_batches import existing
from ...support.scheduling import DAILY, REPORTER, SOON_S, at, new_id
from ...support.spending import Held, app, usage


async def batches_of(
    client: AgentClient, schedule: Schedule, slots: Sequence[datetime]
) -> list[Batch[Any]]:
    """The batches of these slots, once they exist."""
    return [await existing(client, turn_id_of(schedule.id, slot)) for slot in slots]


async def results(batch: Batch[Any]) -> dict[str, BatchResult[Any]]:
    """The results of a batch by the ids of their tasks."""
    return {one.id: one async for one in batch.results()}


def echo(request: ModelRequest) -> Any:
    """Answer with the whole question."""
    return says(request.messages[0].text, usage=usage(1_000))  # type: ignore[union-attr]


@pytest.mark.accepts("B17", "B18")
async def test_schedule_runs_its_tasks_as_a_batch_at_each_time(runtime: Runtime) -> None:
    """Each turn knows the time; the batch is found by its slot, and status and lists show it."""
    async with runtime(app(REPORTER), model=FunctionModel(echo)) as client:
        tasks: list[Any] = ["one", {"id": "b", "task": "two", "labels": {"k": "v"}}]
        daily = await client.create_schedule(
            new_id("many"),
            REPORTER,
            batch=BatchOf(tasks, at_once=2, turn_budget=Budget(usd="3")),
            budget=Budget(usd="9"),
            context={"who": "Jo"},
            labels={"a": "b"},
            **DAILY,
        )
        again = await client.create_schedule(
            daily.id,
            REPORTER,
            batch=BatchOf(tasks, at_once=2, turn_budget=Budget(usd="3")),
            budget=Budget(usd="9"),
            context={"who": "Jo"},
            labels={"a": "b"},
            **DAILY,
        )
        slots = await daily.backfill(at(2), at(4))
        batches = await batches_of(client, daily, slots)
        found = [await results(batch) for batch in batches]
        over = [await batch.wait() for batch in batches]
        repeated = await daily.backfill(at(2), at(4))
        by_hand = client.batch(await daily.run_now())
        last = await by_hand.wait()
        status = await daily.status()
        [entry] = [one async for one in client.schedules() if one.id == daily.id]
        turn = client.turn(f"{batches[0].id}/b")
        report = await turn.result()
        listed: set[str] = set()
        async with asyncio.timeout(SOON_S):
            while len(listed) < 6:
                listed = {one.id async for one in client.turns(schedule=daily.id)}
        turns = {one.id async for one in daily.turns()}
        info = await describe(client.temporal, batches[0].id)
        for run in await runs_up_to(client.temporal, info):
            handle = client.temporal.get_workflow_handle(batches[0].id, run_id=run)
            history = await handle.fetch_history()
            assert_no_task_failed(history)
            await Replayer(data_converter=chosen(), workflows=WORKFLOWS).replay_workflow(history)
        await daily.delete()

    assert again.id == daily.id
    assert repeated == ()
    assert [sorted(one) for one in found] == [["1", "b"], ["1", "b"]]
    assert "Scheduled for Monday, 2026-03-02 07:00 Europe/Berlin" in str(found[0]["1"].output)
    assert "Scheduled for Tuesday, 2026-03-03 07:00 Europe/Berlin" in str(found[1]["b"].output)
    assert "Jo" in str(found[1]["b"].output)
    assert str(found[1]["b"].output).endswith("two")
    assert [one.state for one in over] == [State.COMPLETED] * 2
    assert over[0].budget == Budget(usd="9")
    assert (last.done, last.cost) == (2, Decimal(2))
    assert info.workflow_execution_info.type.name == BATCH
    assert report.outcome is Outcome.COMPLETED
    assert turns == listed == {f"{one.id}/{key}" for one in (*batches, by_hand) for key in "1b"}
    assert (entry.tasks, entry.agent, entry.task) == (2, "reporter", "")
    assert (status.tasks, status.at_once, status.turn_budget, status.on_error) == (
        2,
        2,
        Budget(usd="3"),
        "go on",
    )
    assert [one.id for one in status.last] == [by_hand.id, *[one.id for one in batches[::-1]]]
    assert [one.spent for one in status.last] == [Decimal(2)] * 3
    assert status.last[0].is_by_hand
    assert status.last[1].batch == over[1]


@pytest.mark.slow
@pytest.mark.accepts("B19")
async def test_batches_count_in_the_total_of_their_schedule(runtime: Runtime) -> None:
    """Each gets what is left. When nothing is, the schedule pauses; what is started all the same
    ends at once.
    """
    async with runtime(app(REPORTER), model=FunctionModel(echo)) as client:
        daily = await client.create_schedule(
            new_id("total"),
            "reporter",
            batch=BatchOf(["one", "two"], at_once=1, turn_budget=Budget(usd="2")),
            budget=Budget(usd="4"),
            total=Budget(usd="5"),
            **DAILY,
        )
        first = await (await existing(client, await daily.run_now())).wait()
        between = await daily.status()
        second = await (await existing(client, await daily.run_now())).wait()
        third = await (await existing(client, await daily.run_now())).wait()
        short = await daily.status()
        await daily.change(total=Budget(model_calls=6), batch=BatchOf(["one", "two"], at_once=1))
        await daily.resume()
        fourth = await (await existing(client, await daily.run_now())).wait()
        paused = await daily.status()
        await daily.resume()
        refused = await existing(client, await daily.run_now())
        ended, nothing = await refused.wait(), await results(refused)
        again = await daily.status()
        with pytest.raises(errors.InvalidRequestError, match="before its tasks were stored"):
            await refused.retry()
        await daily.change(total=Budget(model_calls=9))
        await daily.resume()
        sixth = await (await existing(client, await daily.run_now())).wait()
        after = await daily.status()
        await daily.delete()

    assert (first.state, first.budget, first.cost) == (
        State.COMPLETED,
        Budget(usd="4"),
        Decimal(2),
    )
    assert between.spent == Spending(usd=Decimal(2), tokens=2_000, model_calls=2)
    assert (second.budget, second.cost) == (Budget(usd="3"), Decimal(2))
    assert (third.state, third.budget) == (State.BUDGET_EXHAUSTED, Budget(usd="1"))
    assert (short.is_paused, short.spent.model_calls) == (True, 4)
    assert "does not suffice for another turn" in short.reason
    assert (fourth.state, fourth.done) == (State.COMPLETED, 2)
    assert paused.is_paused
    assert "is spent: 6 model calls of 6" in paused.reason
    assert (ended.state, ended.not_started, nothing) == (State.BUDGET_EXHAUSTED, 2, {})
    assert "the total budget of schedule" in ended.reason
    assert (again.is_paused, again.spent) == (True, paused.spent)
    assert sixth.state is State.COMPLETED
    assert after.spent.model_calls == 8


@pytest.mark.accepts("B19", "E167")
async def test_budget_that_is_added_to_a_batch_counts_in_the_total(runtime: Runtime) -> None:
    """A person may add more than the total has left; the schedule pauses after that."""
    model = Held(*[says(f"{number}", usage=usage(1_000)) for number in range(3)])
    async with runtime(app(REPORTER), model=model) as client:
        daily = await client.create_schedule(
            new_id("added"),
            "reporter",
            batch=BatchOf(["one", "two", "three"], at_once=1),
            total=Budget(usd="2"),
            **DAILY,
        )
        batch = await existing(client, await daily.run_now())
        await eventually(lambda: len(model.requests) == 1, "the model is asked")
        left = await batch.add_budget(Budget(usd="10"))
        model.let_go.set()
        over = await batch.wait()
        status = await daily.status()
        await daily.delete()

    assert left.usd == 12
    assert (over.state, over.done, over.cost) == (State.COMPLETED, 3, Decimal(3))
    assert status.spent.usd == 3
    assert status.is_paused
    assert "is spent: $3 of $2" in status.reason


@pytest.mark.slow
@pytest.mark.accepts("B19")
async def test_cancelled_and_terminated_batches_count_once(runtime: Runtime) -> None:
    """A batch that was terminated counts at the end of the next one."""
    model = Held(*[says(f"{number}", usage=usage(1_000)) for number in range(9)])
    async with runtime(app(REPORTER), model=model) as client:
        daily = await client.create_schedule(
            new_id("lost"),
            "reporter",
            batch=BatchOf(["one"]),
            total=Budget(tokens=100_000),
            **DAILY,
        )
        cancelled = await existing(client, await daily.run_now())
        await eventually(lambda: len(model.requests) == 1, "the model is asked")
        await cancelled.cancel("enough")
        stopped = await cancelled.wait()
        one = await daily.status()
        killed = await existing(client, await daily.run_now())
        await eventually(lambda: len(model.requests) == 2, "the model is asked again")
        await client.temporal.get_workflow_handle(killed.id).terminate()
        turn = client.turn(f"{killed.id}/1")
        await turn.cancel()
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()
        model.let_go.set()
        await (await existing(client, await daily.run_now())).wait()
        two = await daily.status()
        await (await existing(client, await daily.run_now())).wait()
        three = await daily.status()
        await daily.delete()

    assert (stopped.state, stopped.reason) == (State.CANCELLED, "enough")
    assert not one.is_paused
    assert one.spent.tokens > 1_000  # a call without an answer costs what was reserved for it
    assert two.spent.tokens > one.spent.tokens + 2_000  # so does the one that was terminated
    assert two.spent.model_calls == 3
    assert three.spent.tokens == two.spent.tokens + 1_000


@pytest.mark.accepts("B20")
async def test_batch_without_all_answers_pauses_a_schedule_that_asks_for_it(
    runtime: Runtime,
) -> None:
    """Its results can be read, and the rest is run again, outside the total. A cancel is no
    failure.
    """
    replies = [says("fine"), fails(errors.LLMRefusedError("no")), says("better")]
    model = ScriptedModel(*replies)
    async with runtime(REPORTER, model=model) as client:
        daily = await client.create_schedule(
            new_id("pauses"),
            "reporter",
            batch=BatchOf(["one", "two"], at_once=1),
            on_failure="pause",
            **DAILY,
        )
        [slot] = await daily.backfill(at(2), at(3))
        [batch] = await batches_of(client, daily, [slot])
        ended = await batch.wait()
        with pytest.raises(WorkflowFailureError) as failed:
            await client.temporal.get_workflow_handle(batch.id).result()
        by_hand = await daily.status()
        await batch.retry()
        again, found = await batch.wait(), await results(batch)
        await daily.delete()

    assert (ended.state, ended.done, ended.failed) == (State.COMPLETED, 1, 1)
    assert "1 of the 2 tasks have no answer" in str(failed.value.cause)
    assert not by_hand.is_paused  # neither a backfill nor a start by hand pauses
    assert (again.round, again.done) == (2, 2)
    assert found["2"].output == "better"


@pytest.mark.accepts("B21")
async def test_running_batch_is_skipped_queued_behind_or_cancelled(
    perdure_runtime: PlainRuntime,
) -> None:
    """As a turn would be; here everything is encrypted."""
    model = Held(*[says("done") for _ in range(9)])
    async with perdure_runtime(
        REPORTER, model=model, data_converter=encrypting.converter
    ) as client:
        daily = await client.create_schedule(
            new_id("overlap"), "reporter", batch=BatchOf(["one"]), **DAILY
        )
        first = await existing(client, await daily.run_now())
        await eventually(lambda: len(model.requests) == 1, "the model is asked")
        with pytest.raises(errors.ScheduleBusyError) as busy:
            await daily.run_now()
        await daily.change(if_running="cancel")
        second_id = await daily.run_now()
        cancelled = await first.wait()
        await existing(client, second_id)
        model.let_go.set()
        second = await client.batch(second_id).wait()
        await daily.delete()

    assert first.id in busy.value.message
    assert (cancelled.state, second.state) == (State.CANCELLED, State.COMPLETED)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"batch": BatchOf([])}, "the batch has no tasks"),
    ({"batch": BatchOf(["a", {"id": "1", "task": "b"}])}, "the id '1' is that of task 1"),
    ({"batch": BatchOf([" "])}, "task 1: the task is empty"),
    ({"batch": BatchOf(["a"], at_once=0)}, "at_once"),
    ({"batch": BatchOf(["a"], at_once=501)}, "at most 500 turns at once"),
    ({"batch": BatchOf(["a"], turn_budget="1")}, "turn_budget"),  # type: ignore[arg-type]
    ({"batch": ["a"]}, "batch must be a BatchOf or None, not list"),
    ({"batch": BatchOf(["a"]), "task": "b"}, "give a task or a batch, not both"),
    ({"batch": BatchOf(["a"]), "session": "s"}, "session cannot be combined with a batch"),
    ({"batch": BatchOf(["a"]), "remember_last": True}, "remember_last cannot be combined"),
    ({"batch": BatchOf([{"id": "x" * 90, "task": "a"}])}, "task 1: "),
    ({"batch": BatchOf(Path("/nowhere.jsonl"))}, "/nowhere.jsonl cannot be read"),
    ({}, "the task is empty"),
]


@pytest.mark.accepts("B22")
async def test_batch_that_cannot_be_scheduled_is_refused_at_once(runtime: Runtime) -> None:
    """Before anything exists; a change too. A schedule goes from turns to batches and back."""
    async with runtime(REPORTER, model=ScriptedModel()) as client:
        name = new_id("never")
        for given, said in REFUSED:
            with pytest.raises(errors.InvalidRequestError) as raised:
                await client.create_schedule(name, "reporter", **{**DAILY, **given})
            assert said in raised.value.message, (given, raised.value.message)
        with pytest.raises(errors.TooLargeError):
            await client.create_schedule(
                name, "reporter", batch=BatchOf(["x" * 60_000] * 30), **DAILY
            )
        with pytest.raises(errors.ScheduleNotFoundError):
            await client.schedule(name).status()
        daily = await client.create_schedule(name, "reporter", "Go.", **DAILY)
        await daily.change(batch=BatchOf(["one", "two"]))
        with pytest.raises(errors.InvalidRequestError, match="task 1: "):
            await daily.change(batch=BatchOf([" "]))
        with pytest.raises(errors.ScheduleConflictError) as other:
            await client.create_schedule(name, "reporter", batch=BatchOf(["one"]), **DAILY)
        many = await daily.status()
        await daily.change(task="Go on.")
        one = await daily.status()
        await daily.delete()

    assert other.value.context["differs"] == ["batch"]
    assert (many.tasks, many.task) == (2, "")
    assert (one.tasks, one.at_once, one.task) == (None, None, "Go on.")
