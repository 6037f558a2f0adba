"""Batches: many tasks of one agent, with a limit of turns at once and one budget for all."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from perdure import Agent, Budget, Outcome, RequestOptions, Task, errors, limits, tool
from perdure.activities.provider import Heard, ModelRequest
from perdure.batch.wire import part_id
from perdure.clients import (
    AgentClient,
    Batch,
    BatchResult,
    BatchStatus,
    State,
    TaskState,
)
from perdure.clients.batches.handle import described
from perdure.clients.batches.items import read
from perdure.clients.batches.spool import Spool
from perdure.clients.batches.uploading import Uploader, Work
from perdure.clients.turns.updates import ask
from perdure.temporal import access
from perdure.temporal.data_converter import chosen
from perdure.temporal.histories.runs import describe
from perdure.temporal.names import (
    ADD_BUDGET,
    BATCH,
    BATCH_NEWS,
    BATCH_ORDER,
    BATCH_PART,
    MEMO_BATCH,
    READ_CHILD,
)
from perdure.temporal.payloads import pack
from perdure.temporal.start_request import turn_request
from perdure.testing import FunctionModel, call, calls, fails, says
from perdure.testing.scripted import Reply
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import BudgetUpdate
from perdure.values.messages import UserMessage
from perdure.values.reports import StopReason
from perdure.workflows import WORKFLOWS
from perdure.workflows.batch.agent_batch_part import OWN

from ...conftest import Runtime, assert_no_task_failed, eventually
from ...support import encrypting
from ...support.long_turns import Carries, holding
from ...support.resets import reset_to, task_ends
from ...support.skipping import skip_time_in
from ...support.spending import SOON_S, TOKEN, app, queue, usage


class Crowd:
    """A model that answers with the task, and counts how many turns ask it at once.

    It keeps the first requests until `at_once` of them have come.
    """

    def __init__(self, at_once: int, reply: Callable[[str], Reply] | None = None) -> None:
        self.asked: Counter[str] = Counter()
        self.running = self.most = 0
        self._at_once = at_once
        self._reply = reply or (lambda task: says(f"done: {task[:20]}", delay=_MOMENT))
        self.is_full = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer."""
        task = task_of(request)
        self.asked[task] += 1
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running >= self._at_once:
            self.is_full.set()
        try:
            await self.is_full.wait()
            return await FunctionModel(lambda _: self._reply(task)).complete(request)
        finally:
            self.running -= 1

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Answer."""
        return await self.complete(request)

    async def close(self) -> None:
        """Do nothing."""


_MOMENT = timedelta(milliseconds=20)


def task_of(request: ModelRequest) -> str:
    """The task of a request."""
    [task] = [message.text for message in request.messages if isinstance(message, UserMessage)]
    return task


def classifier(**fields: Any) -> Agent:
    """An agent without tools."""
    return Agent(**{"name": "classifier", "model": "scripted:classifier", **fields})


def new_id() -> str:
    """An id that no other test uses."""
    return f"batch-{secrets.token_hex(6)}"


def by_id(found: Sequence[BatchResult[Any]]) -> dict[str, BatchResult[Any]]:
    """The results by the ids of their tasks, each of which is there once."""
    assert Counter(one.id for one in found).most_common(1)[0][1] == 1
    return {one.id: one for one in found}


async def check(client: Client, batch: str) -> dict[str, int]:
    """Check the workflows of a batch: no workflow task failed, and they replay.

    Returns the number of events of each.
    """
    sizes = {}
    info = (await describe(client, batch)).workflow_execution_info
    memo = await client.get_workflow_handle(batch).describe()
    note = await memo.memo_value(MEMO_BATCH)
    assert info.type.name == BATCH
    ids = [batch] + [
        part_id(batch, number, one["digest"], part)
        for number, one in enumerate(note["rounds"], 1)
        for part in range(1, one["parts"] + 1)
    ]
    for workflow_id in ids:
        history = await client.get_workflow_handle(workflow_id).fetch_history()
        assert_no_task_failed(history)
        await Replayer(data_converter=chosen(), workflows=WORKFLOWS).replay_workflow(history)
        sizes[workflow_id] = len(history.events)
    return sizes


async def exists(client: Client, workflow_id: str) -> bool:
    """Whether a workflow exists."""
    try:
        await describe(client, workflow_id)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


LONG = "x" * 60_000
TASKS = [
    {"task": f"task {number} {LONG}", "id": f"ticket-{number}", "labels": {"row": str(number)}}
    for number in range(1, 9)
]
"""Two parts: their tasks are long."""


@pytest.mark.accepts("E75", "E76", "E77", "Y65")
async def test_each_task_runs_once_and_no_more_at_once_than_allowed(runtime: Runtime) -> None:
    """Also with a second start, which finds the batch; results can be read again from any place,
    without a worker, and turns are listed, but not the batch.
    """
    batch_id = new_id()
    answer = "y" * 40_000
    model = Crowd(4, lambda task: says(answer if " 7 " in task else task[:8], delay=_MOMENT))
    async with runtime(classifier(), model=model) as client:
        batch = await client.start_batch(
            batch_id, "classifier", TASKS, at_once=4, labels={"a": "b"}
        )
        found = [one async for one in batch.results()]
        status = await batch.wait()
        again = await client.start_batch(batch_id, "classifier", iter(TASKS), at_once=9)
        turn = client.turn(f"{batch_id}/ticket-1")
        report = await turn.result()
        with pytest.raises(errors.BatchConflictError, match="other tasks"):
            await client.start_batch(batch_id, "classifier", TASKS[:-1])
        with pytest.raises(errors.BatchConflictError, match="AgentTurn"):
            await client.start_batch(turn.id, "classifier", TASKS)
        with pytest.raises(errors.BatchNotFoundError):
            await client.batch(turn.id).status()
        with pytest.raises(errors.TurnNotFoundError, match="AgentBatch"):
            await client.turn(batch_id).status()
        sizes = await check(client.temporal, batch_id)
    # the worker is gone
    rest = [one async for one in again.results(found[4].cursor)]
    reader = AgentClient.from_temporal(client.temporal)
    listed = await eight(reader, batch_id)
    labelled = {
        one.id async for one in reader.turns(labels={"row": "3", "a": "b"}, parent=batch_id)
    }

    results = by_id(found)
    assert len(sizes) == 3
    assert (model.most, set(model.asked.values()), len(model.asked)) == (4, {1}, 8)
    assert {one.state for one in found} == {TaskState.DONE}
    assert (results["ticket-3"].output, report.output) == ("task 3 x", "task 1 x")
    assert results["ticket-3"].labels == {"row": "3"}
    assert results["ticket-7"].output == answer
    assert (status.state, status.done, status.total, status.running, status.pending) == (
        State.COMPLETED,
        8,
        8,
        0,
        0,
    )
    assert {one.id for one in rest} == {one.id for one in found[5:]}
    assert listed == {f"{batch_id}/ticket-{number}" for number in range(1, 9)}
    assert labelled == {f"{batch_id}/ticket-3"}


async def eight(client: AgentClient, batch_id: str) -> set[str]:
    """The turns of a batch when the list has eight of them; it may lag behind."""
    async with asyncio.timeout(60):
        while True:
            found = {entry.id async for entry in client.turns(parent=batch_id)}
            if len(found) >= 8:
                return found
            await asyncio.sleep(0.05)


@pytest.mark.accepts("E79")
async def test_broken_tasks_are_named_and_nothing_is_started(
    runtime: Runtime, tmp_path: Path
) -> None:
    """A line that is no task, an id that is there twice, a file that is not there, and options that
    are not valid.
    """
    good, model = json.dumps({"task": "t", "id": "a"}), Crowd(1)
    files = {
        '"t"\n\n{"task": \n': "line 3 of tasks.jsonl: no JSON",
        '"t"\n{"task": "t", "colour": 1}\n': "line 2 of tasks.jsonl: there is no field 'colour'",
        '"t"\n7\n': "line 2 of tasks.jsonl: a task must be a string",
        f'{good}\n"t"\n\n{good}\n': "line 4 of tasks.jsonl: the id 'a' is that of line 1",
        '"t"\n{"task": "u", "id": "1"}\n': "line 2 of tasks.jsonl: the id '1' is that of line 1",
        '"t"\n" "\n': "line 2 of tasks.jsonl: the task is empty",
        f'{{"task": "t", "id": "{"i" * 99}"}}': "line 1 of tasks.jsonl: a turn's id has 1 to 100",
        '{"task": "t", "id": "a\\nb"}': "line 1 of tasks.jsonl: a turn's id has printable",
        '{"task": {"content": "t", "budget": {"usd": 0.5}}}': "line 1 of tasks.jsonl: ",
        '"\\ud800"\n': "line 1 of tasks.jsonl: no JSON",
        '{"task": "t", "id": "a~2"}': "line 1 of tasks.jsonl: the id 'a~2' ends like",
        "\n\n": "the batch has no tasks",
        f'"{"x" * (limits.TASK_BYTES + 1)}"': "line 1 of tasks.jsonl: task, context",
    }
    options: dict[str, dict[str, Any]] = {
        "at_once must be a whole number": {"at_once": 0},
        "a batch runs at most 500 turns at once": {"at_once": 501},
        "on_error must be": {"on_error": "wait"},
        "priority must be": {"priority": 6},
        "turn_budget must be a Budget": {"turn_budget": 3},
        "budget must be a Budget": {"budget": "1"},
    }
    said = {}
    async with runtime(classifier(), model=model) as client:
        for text in files:
            path = tmp_path / "tasks.jsonl"
            path.write_text(text, encoding="utf-8")
            with pytest.raises((errors.InvalidRequestError, errors.TooLargeError)) as raised:
                await client.start_batch(new_id(), "classifier", path)
            said[text] = raised.value.message
        for words, given in options.items():
            with pytest.raises(errors.InvalidRequestError, match=words):
                await client.start_batch(new_id(), "classifier", ["t"], **given)
        with pytest.raises(errors.InvalidRequestError, match="cannot be read"):
            await client.start_batch(new_id(), "classifier", tmp_path / "missing.jsonl")
        with pytest.raises(errors.InvalidRequestError, match="must be a list"):
            await client.start_batch(new_id(), "classifier", "one string")
        with pytest.raises(errors.InvalidRequestError, match="task 2: a task must be"):
            await client.start_batch(new_id(), "classifier", ["t", None])  # type: ignore[list-item]
        with pytest.raises(errors.InvalidRequestError, match=r"task 1: .*JSON"):
            await client.start_batch(new_id(), "classifier", ["\ud800"])
        with pytest.raises(errors.InvalidRequestError, match="1 to 95 characters"):
            await client.start_batch("b" * 96, "classifier", ["t"])
        with pytest.raises(errors.BatchNotFoundError):
            await client.batch(new_id()).status()

    assert {text: words for text, words in files.items() if words not in said[text]} == {}
    assert not model.asked


@pytest.mark.accepts("E80", "E82", "Y66")
async def test_failure_stops_a_batch_and_the_rest_is_run_again(runtime: Runtime) -> None:
    """Nothing starts after the failure; the tasks without an answer get new turns, the others
    none.
    """
    broken = {"2"}

    def reply(task: str) -> Reply:
        if task in broken:
            return fails(errors.LLMAuthError("wrong key"))
        return says(f"answer {task}")

    model, batch_id = Crowd(1, reply), new_id()
    async with runtime(classifier(), model=model) as client:
        batch = await client.start_batch(
            batch_id, "classifier", ["1", "2", "3", "4"], at_once=1, on_error="stop"
        )
        stopped = await batch.wait()
        before = [one async for one in batch.results()]
        broken.clear()
        await batch.retry()
        after = [one async for one in batch.results()]
        rest = [one async for one in batch.results(before[1].cursor)]
        status = await batch.wait()
        asked = dict(model.asked)
        await batch.retry()
        unchanged = await batch.wait()
        await check(client.temporal, batch_id)

    states = [(one.id, one.state) for one in before]
    assert states == [
        ("1", TaskState.DONE),
        ("2", TaskState.FAILED),
        ("3", TaskState.NOT_STARTED),
        ("4", TaskState.NOT_STARTED),
    ]
    assert before[1].error is not None
    assert before[1].error.code == errors.LLMAuthError.code
    assert before[2].error is not None
    assert (before[2].error.code, before[2].error.context) == (
        errors.TaskNotStartedError.code,
        {"reason": "failed"},
    )
    assert (stopped.state, stopped.done, stopped.failed, stopped.not_started) == (
        State.STOPPED,
        1,
        1,
        2,
    )
    assert asked == {"1": 1, "2": 2, "3": 1, "4": 1}
    assert {one.id: (one.turn_id, one.output) for one in after} == {
        "1": (f"{batch_id}/1", "answer 1"),
        **{task: (f"{batch_id}/{task}~2", f"answer {task}") for task in ("2", "3", "4")},
    }
    assert [one.id for one in rest] == ["2", "3", "4"]
    assert (status.state, status.done, status.failed, status.round) == (
        State.COMPLETED,
        4,
        0,
        2,
    )
    assert unchanged == status


@pytest.mark.slow
@pytest.mark.accepts("E78", "E167")
async def test_budget_is_added_to_a_batch_that_runs(runtime: Runtime) -> None:
    """It is spent by the turns that would not have been started."""
    batch_id = new_id()
    model = Crowd(3, lambda task: says(task, usage=usage(300)))  # two wait until they are let go
    worker = app(classifier(options=RequestOptions(max_output_tokens=20)))
    tasks = [str(number) for number in range(20)]
    async with runtime(worker, model=model) as client:
        batch = await client.start_batch(
            batch_id, "classifier", tasks, at_once=2, budget=Budget(usd="5")
        )
        with pytest.raises(errors.InvalidRequestError, match="no limit of tokens"):
            await batch.add_budget(Budget(tokens=1))
        left = await batch.add_budget(Budget(usd="95"), by="anna")
        there = client.temporal, access.BATCH, [""], batch_id
        with pytest.raises(errors.InvalidRequestError, match="by must be one line"):
            await ask(*there, ADD_BUDGET, pack(BudgetUpdate(usd=Decimal(1), by="a\nb")))
        with pytest.raises(errors.InvalidRequestError, match="no limit of iterations"):
            await ask(*there, ADD_BUDGET, pack(BudgetUpdate(iterations=1)))
        meanwhile = await batch.status()
        model.is_full.set()
        status = await batch.wait()
        with pytest.raises(errors.InvalidRequestError, match="is over"):
            await batch.add_budget(Budget(usd="1"))
        await check(client.temporal, batch_id)

    assert left.usd == 100
    assert meanwhile.state == State.RUNNING
    assert (status.state, status.done) == (State.COMPLETED, 20)
    assert status.budget == Budget(usd="100")
    assert status.cost == 20 * 300 * TOKEN
    assert status.left.usd == 100 - status.cost


@pytest.mark.slow
@pytest.mark.accepts("E167")
async def test_budget_is_not_added_to_a_batch_without_a_limit(runtime: Runtime) -> None:
    """It may spend anything already."""
    model = Crowd(3)
    async with runtime(app(classifier()), model=model) as client:
        batch = await client.start_batch(new_id(), "classifier", ["one", "two"], at_once=2)
        with pytest.raises(errors.InvalidRequestError, match="the batch has no such limit"):
            await batch.add_budget(Budget(usd="1"))
        model.is_full.set()
        await batch.wait()


@pytest.mark.accepts("E78", "E81")
async def test_budget_of_a_batch_is_never_exceeded(runtime: Runtime) -> None:
    """Turns without a limit of their own share what is left; when it is spent, the rest is not
    started, and a retry with more money runs it.
    """
    batch_id = new_id()
    model = Crowd(2, lambda task: says(task, usage=usage(300)))
    worker = app(classifier(options=RequestOptions(max_output_tokens=20)))
    tasks = [str(number) for number in range(20)]
    async with runtime(worker, model=model) as client:
        batch = await client.start_batch(
            batch_id, "classifier", tasks, at_once=2, budget=Budget(usd="5")
        )
        spent = await batch.wait()
        before = [one async for one in batch.results()]
        with pytest.raises(errors.InvalidRequestError, match="no limit of tokens"):
            await batch.retry(Budget(tokens=1))
        await batch.retry(Budget(usd="5"))
        status = await batch.wait()
        after = [one async for one in batch.results()]
        await check(client.temporal, batch_id)

    assert spent.state == State.BUDGET_EXHAUSTED
    assert spent.cost is not None
    assert Decimal("3.6") <= spent.cost <= 5
    assert spent.cost == sum(one.cost or 0 for one in before)
    assert spent.left.usd == 5 - spent.cost
    assert spent.not_started > 0
    reasons = {
        one.error.context["reason"]
        for one in before
        if one.state == TaskState.NOT_STARTED and one.error
    }
    assert reasons == {"budget"}
    assert {one.outcome for one in before if one.state == TaskState.FAILED} <= {
        Outcome.BUDGET_EXHAUSTED
    }
    assert (status.state, status.cost, len(by_id(after))) == (
        State.COMPLETED,
        Decimal("6"),
        20,
    )


@pytest.mark.accepts("E83")
async def test_cancel_ends_running_turns_and_keeps_results(runtime: Runtime) -> None:
    """The turns that run are cancelled, the rest is not started, and a second cancel finds nothing
    to do.
    """
    batch_id, model = new_id(), Crowd(99)
    async with runtime(classifier(), model=model) as client:
        batch = await client.start_batch(batch_id, "classifier", TASKS, at_once=2)
        await eventually(lambda: model.running == 2, "two turns run")
        reading = asyncio.create_task(_all(batch.results()))
        with pytest.raises(errors.InvalidRequestError, match="still runs"):
            await batch.retry()
        asked = await batch.cancel("wrong prompt")
        status = await batch.wait()
        again = await batch.cancel()
        found = by_id(await reading)
        await check(client.temporal, batch_id)

    assert (asked, again) == (True, False)
    assert (status.state, status.reason, status.failed, status.not_started) == (
        State.CANCELLED,
        "wrong prompt",
        2,
        6,
    )
    assert [found[f"ticket-{number}"].outcome for number in (1, 2, 3)] == [
        Outcome.CANCELLED,
        Outcome.CANCELLED,
        None,
    ]
    error = found["ticket-1"].error
    assert error is not None
    assert "wrong prompt" in error.message


@pytest.mark.slow
@pytest.mark.accepts("E84")
async def test_terminated_batch_leaves_no_turn_running(runtime: Runtime) -> None:
    """Its parts learn that it is gone; results end, and a retry runs the rest."""
    batch_id, model = new_id(), Crowd(99)
    tasks = [str(number) for number in range(3)]
    async with runtime(classifier(), model=model) as client:
        batch = await client.start_batch(batch_id, "classifier", tasks, at_once=2)
        await eventually(lambda: model.running == 2, "two turns run")
        await client.temporal.get_workflow_handle(batch_id).terminate("by an operator")
        await client.turn(f"{batch_id}/1").cancel("to make its part report")
        found = by_id([one async for one in batch.results()])
        status = await batch.wait()
        model.is_full.set()
        await batch.retry()
        done = await batch.wait()

    assert status.state == State.TERMINATED
    assert {one.id: one.state for one in found.values()} == {
        "1": TaskState.FAILED,
        "2": TaskState.FAILED,
        "3": TaskState.NOT_STARTED,
    }
    assert (done.state, done.done) == (State.COMPLETED, 3)


@pytest.mark.slow
@pytest.mark.accepts("E85", "Y67")
async def test_interrupted_upload_starts_nothing_and_is_repeated(runtime: Runtime) -> None:
    """A part that is stored waits, and ends after a day; the same call later stores all parts, and
    starts the batch. A part of a batch that runs waits longer.
    """
    batch_id, model = new_id(), Crowd(3)
    async with runtime(classifier(), model=model) as client:
        common = turn_request("classifier", "")
        with Spool() as spool:
            digest = await read(batch_id, common, TASKS, spool)
            work = Work(batch_id, 1, digest, common, indexed=True, priority=None)
            uploader = Uploader(client.temporal, client.task_queue)
            await uploader.parts(work, itertools.islice(spool, 4))
        ids = [batch_id, *(part_id(batch_id, 1, digest, part) for part in (1, 2))]
        are_stored = [await exists(client.temporal, one) for one in ids]
        with pytest.raises(errors.BatchNotFoundError, match="upload was not finished"):
            await client.batch(batch_id).status()
        await skip_time_in(client, ids[1], timedelta(hours=25))
        expired = await client.temporal.get_workflow_handle(ids[1]).result()
        assert not model.asked

        batch = await client.start_batch(batch_id, "classifier", TASKS, at_once=2)
        await eventually(lambda: model.running == 2, "two turns run")
        await skip_time_in(client, ids[2], timedelta(hours=49))
        model.is_full.set()
        status = await batch.wait()
        await check(client.temporal, batch_id)

    assert are_stored == [False, True, False]
    assert expired == {"expired": True}
    assert (status.done, set(model.asked.values())) == (8, {1})


@pytest.mark.slow
@pytest.mark.accepts("E84")
async def test_batch_goes_on_without_a_part_that_was_terminated(runtime: Runtime) -> None:
    """It asks a part of which it has heard nothing; the tasks of that part can be run again."""
    batch_id, model = new_id(), Crowd(99)
    async with runtime(classifier(), model=model) as client:
        batch = await client.start_batch(batch_id, "classifier", TASKS, at_once=2)
        await eventually(lambda: model.running == 2, "two turns run")
        digest = (await described(client.temporal, batch_id))[1].rounds[0].digest
        first = client.temporal.get_workflow_handle(part_id(batch_id, 1, digest, 1))
        await first.terminate("by an operator")
        await eventually(lambda: model.running == 0, "its turns are cancelled")
        model.is_full.set()
        await skip_time_in(client, batch_id, timedelta(minutes=21))
        stopped = await batch.wait()
        before = by_id([one async for one in batch.results()])
        await batch.retry()
        status = await batch.wait()
        after = by_id([one async for one in batch.results()])

    assert (stopped.state, stopped.done, stopped.not_started) == (State.STOPPED, 4, 4)
    states = Counter(one.state for one in before.values())
    assert states == {TaskState.DONE: 4, TaskState.FAILED: 2, TaskState.NOT_STARTED: 2}
    reasons = {one.error.context.get("reason") for one in before.values() if one.error}
    assert reasons == {None, "lost"}
    assert (status.state, status.done, len(after)) == (State.COMPLETED, 8, 8)


class Halting(Crowd):
    """A model that answers so many requests at once, and keeps the others."""

    def __init__(self, answers: int) -> None:
        super().__init__(99, lambda task: says(task, usage=usage(300)))
        self._answers = answers
        self.is_full.set()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer."""
        if self.asked.total() == self._answers:
            self.is_full.clear()
        return await super().complete(request)


async def reset_part(client: AgentClient, batch_id: str, place: int) -> WorkflowHandle[Any, Any]:
    """Reset the first part of a batch to the end of one of its workflow tasks."""
    digest = (await described(client.temporal, batch_id))[1].rounds[0].digest
    there = part_id(batch_id, 1, digest, 1)
    handle = client.temporal.get_workflow_handle(there)
    run_id = await reset_to(
        client.temporal, there, "", task_ends(await handle.fetch_history())[place]
    )
    return client.temporal.get_workflow_handle(there, run_id=run_id)


async def reads(part: WorkflowHandle[Any, Any]) -> set[str]:
    """The turns whose ends a part waits for, as it had begun them before it was reset."""
    pending = (await part.describe()).raw_description.pending_activities
    return {one.activity_id for one in pending if one.activity_type.name == READ_CHILD}


@pytest.mark.slow
@pytest.mark.accepts("E144")
@pytest.mark.parametrize("place", [0, -1], ids=["first", "last"])
async def test_part_that_is_reset_finds_the_turns_again_that_it_had_begun(
    runtime: Runtime, place: int
) -> None:
    """Each task has its own answer and is asked once, and what all of them spent is counted once;
    some had ended, and two still run.
    """
    batch_id, model = new_id(), Halting(4)
    worker = app(classifier(options=RequestOptions(max_output_tokens=20)))
    tasks = [{"task": f"task {number}", "id": str(number)} for number in range(1, 9)]
    async with runtime(worker, model=model) as client:
        batch = await client.start_batch(
            batch_id, "classifier", tasks, at_once=2, budget=Budget(usd="100")
        )
        await eventually(lambda: model.asked.total() == 6 and model.running == 2, "two are kept")
        part = await reset_part(client, batch_id, place)
        if place == 0:
            await until_reads(part, {f"{batch_id}/5", f"{batch_id}/6"})
        model.is_full.set()
        status = await batch.wait()
        results = by_id([one async for one in batch.results()])
        await check(client.temporal, batch_id)

    assert model.asked == Counter(f"task {number}" for number in range(1, 9))
    assert {one.id: one.output for one in results.values()} == {
        str(number): f"task {number}" for number in range(1, 9)
    }
    assert (status.state, status.done, status.failed) == (State.COMPLETED, 8, 0)
    assert status.cost == sum(one.cost or 0 for one in results.values()) == Decimal("2.4")


async def until_reads(part: WorkflowHandle[Any, Any], turns: set[str]) -> None:
    """Wait until a part waits for the ends of these turns."""
    async with asyncio.timeout(SOON_S):
        while await reads(part) != turns:  # noqa: ASYNC110 - the server is asked
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.accepts("E144", "E83")
async def test_cancel_reaches_turns_that_a_part_has_found_again(runtime: Runtime) -> None:
    """They end as cancelled, and their tasks are told so."""
    batch_id, model = new_id(), Crowd(99)
    async with runtime(classifier(), model=model) as client:
        batch = await client.start_batch(batch_id, "classifier", ["one", "two", "three"], at_once=2)
        await eventually(lambda: model.running == 2, "two turns run")
        part = await reset_part(client, batch_id, 0)
        await until_reads(part, {f"{batch_id}/1", f"{batch_id}/2"})
        await batch.cancel("wrong prompt")
        status = await batch.wait()
        results = by_id([one async for one in batch.results()])
        await check(client.temporal, batch_id)

    assert (status.state, status.failed, status.not_started) == (State.CANCELLED, 2, 1)
    assert {one.id: one.outcome for one in results.values()} == {
        "1": Outcome.CANCELLED,
        "2": Outcome.CANCELLED,
        "3": None,
    }


@pytest.mark.slow
@pytest.mark.accepts("E144")
async def test_task_whose_id_another_workflow_has_is_failed(runtime: Runtime) -> None:
    """The turn of another caller is not taken for that of the task."""
    batch_id, model = new_id(), Crowd(1)
    async with runtime(classifier(), model=model) as client:
        await (await client.start("classifier", "other", id=f"{batch_id}/1")).result()
        batch = await client.start_batch(batch_id, "classifier", ["one", "two"], at_once=2)
        status = await batch.wait()
        results = by_id([one async for one in batch.results()])

    assert (status.done, status.failed) == (1, 1)
    assert {one.id: one.state for one in results.values()} == {
        "1": TaskState.FAILED,
        "2": TaskState.DONE,
    }
    assert results["1"].error is not None
    assert "a turn of its id is running" in results["1"].error.message


@pytest.mark.slow
@pytest.mark.accepts("E144")
async def test_cancel_does_not_reach_the_turn_of_another_caller(perdure_server: str) -> None:
    """It has the id of a task, and the part is cancelled before it knows whose turn that is."""
    batch_id, model = new_id(), Crowd(99)
    reading = Carries(kind=READ_CHILD)
    worker = replace(app(classifier()), providers={"scripted": model})
    async with queue(perdure_server) as work, holding(work, worker, reading):
        client = work.client
        other = await client.start("classifier", "other", id=f"{batch_id}/1")
        batch = await client.start_batch(batch_id, "classifier", ["one"], at_once=1)
        await asyncio.wait_for(reading.begun.wait(), SOON_S)
        await batch.cancel("wrong prompt")
        digest = (await described(client.temporal, batch_id))[1].rounds[0].digest
        part = client.temporal.get_workflow_handle(part_id(batch_id, 1, digest, 1))
        await until_reads(part, {other.id, f"{OWN}{other.id}"})
        reading.let_go.set()
        status = await batch.wait()
        model.is_full.set()
        report = await other.result()
        await check(client.temporal, batch_id)

    assert (status.state, status.failed) == (State.CANCELLED, 1)
    assert report.output == "done: other"


@pytest.mark.table(1)
@pytest.mark.accepts("Y53")
@pytest.mark.parametrize("kind", [BATCH, BATCH_PART])
async def test_input_that_is_no_batch_fails_typed(runtime: Runtime, kind: str) -> None:
    """Nothing, text, several inputs: started with Temporal's own client. Signals that are no news
    and no orders are ignored.
    """
    failed = []
    async with runtime(classifier(), model=Crowd(1)) as client:
        inputs: list[list[Any]] = [[], ["text"], [{"agent": 3}], [{}, {}]]
        for given in inputs:
            handle = await client.temporal.start_workflow(
                kind, args=given, id=new_id(), task_queue=client.task_queue
            )
            with pytest.raises(WorkflowFailureError) as raised:
                await handle.result()
            assert isinstance(raised.value.cause, ApplicationError)
            failed.append(raised.value.cause.type)
        batch = await client.start_batch(new_id(), "classifier", ["t"])
        for signal in (BATCH_NEWS, BATCH_ORDER):
            for args in (inputs[0], inputs[1], inputs[3]):
                with contextlib.suppress(RPCError):  # it may be over
                    handle = client.temporal.get_workflow_handle(batch.id)
                    await handle.signal(signal, args=args)
        status = await batch.wait()

    assert failed == [errors.InvalidRequestError.code] * 4
    assert status.state == State.COMPLETED


@pytest.mark.slow
@pytest.mark.accepts("E88", "Y65")
async def test_batch_with_a_long_history_goes_on_in_a_new_run(runtime: Runtime) -> None:
    """It takes over places, money and counters; its parts have one task each here."""
    batch_id, count = new_id(), 130
    tasks = [f"{number} {'x' * 130_000}" for number in range(count)]
    model = Crowd(10, lambda task: says(task[:3], usage=usage(20)))
    budget = Budget(model_calls=count)
    async with runtime(app(classifier()), model=model) as client:
        batch = await client.start_batch(batch_id, "classifier", tasks, at_once=10, budget=budget)
        found = by_id([one async for one in batch.results()])
        status = await batch.wait()
        runs = [run async for run in client.temporal.list_workflows(f"WorkflowId = '{batch_id}'")]
        sizes = await check(client.temporal, batch_id)

    assert len(runs) > 1
    assert sizes[batch_id] < limits.BATCH_EVENTS + 200
    assert len(sizes) == count + 1
    assert (status.state, status.done, len(found)) == (State.COMPLETED, count, count)
    assert status.cost == sum(one.cost or 0 for one in found.values()) == count * 20 * TOKEN
    assert status.left.model_calls == 0
    assert (model.most, set(model.asked.values())) == (10, {1})


class Verdict(BaseModel):
    """A typed answer."""

    spam: bool


@pytest.mark.slow
@pytest.mark.accepts("E76")
async def test_answers_have_the_requested_type(runtime: Runtime) -> None:
    """Tasks may come from an async iterable; an answer that does not fit has an error."""
    batch_id = new_id()
    model = Crowd(1, lambda task: says(json.dumps({"spam": task == "a"})))

    async def tasks() -> AsyncIterator[Task | str]:
        yield Task(content="a", type="mail")
        yield "b"

    async with runtime(classifier(), model=model) as client:
        batch = await client.start_batch(batch_id, "classifier", tasks(), output=Verdict)
        found = by_id([one async for one in batch.results()])
        untyped = by_id([one async for one in client.batch(batch_id).results()])

    assert {one: result.output for one, result in found.items()} == {
        "1": Verdict(spam=True),
        "2": Verdict(spam=False),
    }
    assert untyped["1"].output == {"spam": True}


@pytest.mark.accepts("E140", "E141", "P55")
async def test_failed_task_has_no_output_and_its_cost_is_that_of_all_rounds(
    runtime: Runtime,
) -> None:
    """The last text of the model is beside it, also in the report of the error; results after a
    cursor have the same cost.
    """
    batch_id, stops = new_id(), [StopReason.REFUSED]

    def reply(task: str) -> Reply:
        refuses = task == "b" and stops
        return (
            says("I will not.", stop=stops.pop(), usage=usage(100))
            if refuses
            else says('{"spam": true}', usage=usage(200))
        )

    async with runtime(app(classifier()), model=Crowd(1, reply)) as client:
        batch = await client.start_batch(batch_id, "classifier", ["a", "b"], output=Verdict)
        first = await _all(batch.results())
        with pytest.raises(errors.LLMRefusedError) as raised:
            await client.turn(f"{batch_id}/2").result()
        names = [repr(one) for one in (batch, client.turn(f"{batch_id}/2"), client)]
        await batch.wait(60)  # its results may come a moment before its end
        await batch.retry()
        second = by_id(await _all(batch.results()))
        after = [by_id(await _all(batch.results(one.cursor))) for one in first]

    assert names[:2] == [f"Batch('{batch_id}')", f"Turn('{batch_id}/2')"]
    assert names[2].startswith("AgentClient(namespace='default', task_queue=")
    failed, report = by_id(first)["2"], raised.value.report
    assert (failed.output, failed.last_text, failed.cost) == (None, "I will not.", 100 * TOKEN)
    assert report is not None
    assert (report.output, report.last_text) == (None, "I will not.")
    assert (second["2"].output, second["2"].last_text) == (Verdict(spam=True), "")
    assert (second["1"].cost, second["2"].cost) == (200 * TOKEN, 300 * TOKEN)
    assert [found["2"].cost for found in after] == [300 * TOKEN, 300 * TOKEN]


@pytest.mark.slow
@pytest.mark.accepts("P15")
async def test_batch_is_encrypted(perdure_runtime: Any, perdure_server: str) -> None:
    """No task, answer or reason can be read on the server; a client without the key says so."""
    batch_id, model = new_id(), Crowd(1, lambda task: says(f"an answer to {task}"))
    async with perdure_runtime(
        classifier(), model=model, data_converter=encrypting.converter
    ) as client:
        batch = await client.start_batch(batch_id, "classifier", ["a secret task"])
        [found] = [one async for one in batch.results()]
        plain = await AgentClient.connect(perdure_server)
        with pytest.raises(errors.PayloadDecodeError):
            await plain.batch(batch_id).status()
        digest = (await described(client.temporal, batch_id))[1].rounds[0].digest
        texts = [
            (await plain.temporal.get_workflow_handle(one).fetch_history()).to_json()
            for one in (batch_id, part_id(batch_id, 1, digest, 1), f"{batch_id}/1")
        ]

    assert found.output == "an answer to a secret task"
    readable = " ".join(
        base64.b64decode(data).decode("utf-8", "replace")
        for text in texts
        for data in re.findall(r'"data": "([^"]+)"', text)
    )
    assert [word for word in ("secret", "answer", "classifier") if word in readable] == [
        "classifier"
    ]


@tool(requires_approval=True)
def publish() -> str:
    """Publish."""
    return "published"


@pytest.mark.accepts("E86")
async def test_waiting_turn_keeps_its_place_and_status_counts_it(runtime: Runtime) -> None:
    """The turn after it starts when it was approved and has ended."""
    batch_id = new_id()

    def reply(request: ModelRequest) -> Reply:
        return calls(call("publish")) if len(request.messages) == 1 else says("done")

    async with runtime(classifier(tools=[publish]), model=FunctionModel(reply)) as client:
        batch = await client.start_batch(batch_id, "classifier", ["1", "2"], at_once=1)
        status = await seen(batch, lambda one: (one.waiting, one.running) == (1, 1))
        for number in (1, 2):
            turn_id = f"{batch_id}/{number}"
            await started(client, turn_id)
            turn = client.turn(turn_id)
            await turn.wait()
            [pending] = await turn.pending_approvals()
            await turn.approve(pending)
            await turn.result()
        done = await batch.wait()

    assert (status.waiting, status.pending, status.running) == (1, 1, 1)
    assert (done.state, done.done) == (State.COMPLETED, 2)


async def started(client: AgentClient, turn_id: str) -> None:
    """Wait until a turn exists."""
    async with asyncio.timeout(60):
        while True:
            if await exists(client.temporal, turn_id):
                return
            await asyncio.sleep(0.05)


async def seen(batch: Batch[Any], holds: Callable[[BatchStatus], bool]) -> BatchStatus:
    """Wait for a status of a batch."""
    async with asyncio.timeout(60):
        while True:
            status = await batch.status()
            if holds(status):
                return status
            await asyncio.sleep(0.05)


async def _all(results: AsyncIterator[BatchResult[Any]]) -> list[BatchResult[Any]]:
    return [one async for one in results]


@pytest.mark.accepts("G30")
async def test_web_ui_shows_a_card_of_the_batch(runtime: Runtime) -> None:
    """It has the counters, the money, and the ids of the parts, which have the turns."""
    model = FunctionModel(lambda _: says("done"))
    async with runtime(app(), model=model) as client:
        batch = await client.start_batch(f"batch-{secrets.token_hex(4)}", "spender", ["one", "two"])
        await batch.wait()
        handle = client.temporal.get_workflow_handle(batch.id)
        details: Any = await handle.query("__temporal_workflow_metadata")

    card = str(details.current_details)
    assert "**spender** — over" in card
    assert "Tasks: 2; 2 done, 0 failed, 0 running" in card
    assert "AgentBatchPart" in card
