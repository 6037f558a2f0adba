"""Perdure in a user's existing worker: its workflows run as before, next to turns."""

from __future__ import annotations

import asyncio
import gc
import importlib
import secrets
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import activity, exceptions, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

import perdure
from perdure import Agent, errors, tool, workflows
from perdure.agents.skills import Skill
from perdure.temporal.data_converter import chosen
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker, PerdurePlugin

from ...conftest import RecordingClient, check_history


@dataclass(frozen=True)
class Order:
    """The input of the user's workflow; a dataclass, for the default converter."""

    item: str
    count: int


@activity.defn
async def reserve(order: Order) -> str:
    """A user's async activity."""
    return f"{order.count} {order.item} reserved in {threading.current_thread().name}"


@activity.defn
def charge(order: Order) -> str:
    """A user's sync activity."""
    return f"{order.count} {order.item} charged in {threading.current_thread().name}"


@workflow.defn
class PlaceOrder:
    """A user's workflow."""

    @workflow.run
    async def run(self, order: Order) -> list[str]:
        """Reserve and charge."""
        limit = timedelta(seconds=10)
        reserved = await workflow.execute_activity(reserve, order, start_to_close_timeout=limit)
        return [
            reserved,
            await workflow.execute_activity(charge, order, start_to_close_timeout=limit),
        ]


@tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"{a + b} in {threading.current_thread().name}"


@tool
async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


ADDER = Agent(name="adder", model="scripted:adder", tools=[add, multiply])


def script() -> ScriptedModel:
    return ScriptedModel(calls(call("add", a=2, b=3), call("multiply", a=2, b=3)), says("done"))


@pytest.fixture
def queue() -> str:
    """A task queue that no other test uses."""
    return f"test-{secrets.token_hex(6)}"


async def run_both(client: Client, worker: Worker, queue: str) -> tuple[list[str], list[str]]:
    """Run an order and a turn concurrently on this worker."""
    turns = RecordingClient(client, queue)
    async with worker:
        order = client.execute_workflow(
            PlaceOrder.run, Order("bicycle", 2), id=f"order-{queue}", task_queue=queue
        )
        placed, report = await asyncio.gather(order, turns.run("adder", "2 + 3 and 2 * 3?"))
        for turn_id, run_id in turns.recorded:
            await check_history(client, turn_id, run_id)
    return placed, [result.content for result in report.steps[0].results]


@pytest.mark.slow
@pytest.mark.accepts("E10")
async def test_both_run_on_a_worker_without_an_executor(perdure_server: str, queue: str) -> None:
    """Perdure provides threads for the sync tools, and the user's sync activities run in
    them, too.
    """
    client = await Client.connect(perdure_server)
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[PlaceOrder],
        activities=[reserve, charge],
        plugins=[PerdurePlugin(AgentWorker(ADDER, providers={"scripted": script()}))],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )

    placed, results = await run_both(client, worker, queue)

    assert placed[0] == f"2 bicycle reserved in {threading.main_thread().name}"
    assert placed[1].startswith("2 bicycle charged in perdure-activity")
    assert results[0].startswith("5 in perdure-activity")
    assert results[1] == "6"


@pytest.mark.accepts("E10")
async def test_both_run_on_a_worker_with_an_executor_of_its_own(
    perdure_server: str, queue: str
) -> None:
    """The worker keeps it: activities and sync tools run in it, and it can still be used after the
    worker has stopped.
    """
    client = await Client.connect(perdure_server)
    with ThreadPoolExecutor(4, thread_name_prefix="theirs") as threads:
        worker = Worker(
            client,
            task_queue=queue,
            workflows=[PlaceOrder],
            activities=[reserve, charge],
            activity_executor=threads,
            max_concurrent_activities=4,
            plugins=[PerdurePlugin(AgentWorker(ADDER, providers={"scripted": script()}))],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        placed, results = await run_both(client, worker, queue)
        afterwards = threads.submit(lambda: "still there").result()

    assert placed[1].startswith("2 bicycle charged in theirs")
    assert results[0].startswith("5 in theirs")
    assert results[1] == "6"
    assert afterwards == "still there"


THEIR_MODULE = """
from datetime import datetime
import perdure
from perdure import Task
from temporalio import workflow

@workflow.defn(name="Sandboxed")
class Sandboxed:
    @workflow.run
    async def run(self) -> str:
        try:
            datetime.now()
        except workflow.NondeterminismError as error:
            return f"sandboxed: {Task(content='knows perdure').text} and {perdure.Skill.__name__}"
        return "free"
"""


@pytest.mark.accepts("E10")
async def test_workflow_of_theirs_stays_in_the_sandbox(
    perdure_server: str, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn runs outside of it, which does not apply to other workflows; in the sandbox they may
    use Perdure's values.
    """
    name = f"their_{secrets.token_hex(4)}"
    (tmp_path / f"{name}.py").write_text(THEIR_MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    theirs = importlib.import_module(name).Sandboxed
    client = await Client.connect(perdure_server)
    plugin = PerdurePlugin(AgentWorker(ADDER, providers={"scripted": script()}))
    monkeypatch.delattr(perdure, "Skill", raising=False)

    async with Worker(client, task_queue=queue, workflows=[theirs], plugins=[plugin]):
        where = await client.execute_workflow(
            "Sandboxed", id=f"theirs-{queue}", task_queue=queue, result_type=str
        )
        report = await RecordingClient(client, queue).run("adder", "2 + 3?")

    assert where == "sandboxed: knows perdure and Skill"
    # the sandbox has no copy of its own, although it was first imported there
    assert vars(perdure)["Skill"] is Skill
    assert report.output == "done"


async def test_plugin_that_never_ran_leaves_nothing_behind() -> None:
    """A plugin for a replayer, or for a worker that is refused, opens no loop, thread or socket."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PerdurePlugin(AgentWorker(ADDER, providers={"scripted": script()}))
        gc.collect()

    assert [str(warning.message) for warning in caught] == []


@pytest.mark.accepts("E10")
async def test_plugin_teaches_a_replayer_the_turn(perdure_server: str, queue: str) -> None:
    """Histories of a mixed worker, including turns, replay with the plugin."""
    client = await Client.connect(perdure_server)
    app = AgentWorker(ADDER, providers={"scripted": script()})
    turns = RecordingClient(client, queue)
    async with Worker(client, task_queue=queue, plugins=[PerdurePlugin(app)]):
        turn = await turns.start("adder", "2 + 3?")
        await turn.result()

    replayer = Replayer(
        workflows=[PlaceOrder],
        plugins=[PerdurePlugin(app)],
        workflow_runner=UnsandboxedWorkflowRunner(),
        data_converter=chosen(),
    )
    replayed = await replayer.replay_workflow(await turns.history(turn))

    assert replayed.replay_failure is None


@workflow.defn(name="AgentTurn", sandboxed=False)
class TheirTurn:
    """Registered under the name of the turn."""

    @workflow.run
    async def run(self) -> None:
        """Nothing."""


@workflow.defn(name="Negotiation", sandboxed=False)
class AgentTurn:
    """Named like the turn's class, but registered under another name."""

    @workflow.run
    async def run(self) -> str:
        """Say who ran."""
        return "theirs"


@pytest.mark.accepts("E10")
@pytest.mark.parametrize("theirs", [workflows.AgentTurn, TheirTurn], ids=["ours", "theirs"])
async def test_workflow_of_theirs_with_the_name_of_the_turn_is_refused(
    perdure_server: str, queue: str, theirs: type
) -> None:
    """When the worker is built, with both names; the registered name counts."""
    client = await Client.connect(perdure_server)
    plugin = PerdurePlugin(AgentWorker(ADDER, providers={"scripted": script()}))

    with pytest.raises(errors.ConfigurationError, match="'AgentTurn'") as caught:
        Worker(client, task_queue=queue, workflows=[theirs], plugins=[plugin])

    assert "Perdure" in caught.value.message
    assert theirs.__qualname__ in caught.value.message


@pytest.mark.slow
@pytest.mark.accepts("E10")
async def test_class_of_theirs_may_be_called_like_the_turn_if_it_is_registered_otherwise(
    perdure_server: str, queue: str
) -> None:
    """In Temporal there is no clash of names, so both run."""
    client = await Client.connect(perdure_server)
    plugin = PerdurePlugin(AgentWorker(ADDER, providers={"scripted": script()}))

    async with Worker(client, task_queue=queue, workflows=[AgentTurn], plugins=[plugin]):
        said = await client.execute_workflow(
            "Negotiation", id=f"theirs-{queue}", task_queue=queue, result_type=str
        )
        report = await RecordingClient(client, queue).run("adder", "2 + 3?")

    assert (said, report.output) == ("theirs", "done")


@pytest.mark.accepts("E10")
async def test_activity_of_theirs_with_a_name_of_perdure_is_refused(
    perdure_server: str, queue: str
) -> None:
    """When the worker is built, with both names."""

    @activity.defn(name="perdure.call_model")
    async def ask_somebody() -> None: ...

    client = await Client.connect(perdure_server)

    with pytest.raises(errors.ConfigurationError, match=r"perdure\.call_model") as caught:
        Worker(
            client,
            task_queue=queue,
            activities=[ask_somebody],
            plugins=[PerdurePlugin(AgentWorker(ADDER, providers={"scripted": script()}))],
        )

    assert "ask_somebody" in caught.value.message


@pytest.mark.slow
@pytest.mark.accepts("E10")
async def test_activities_of_theirs_get_no_heartbeats_from_perdure(
    perdure_server: str, queue: str
) -> None:
    """With a heartbeat timeout and without heartbeats it times out, as it would without Perdure."""
    client = await Client.connect(perdure_server)
    plugin = PerdurePlugin(AgentWorker(ADDER, providers={"scripted": script()}))

    async with Worker(
        client,
        task_queue=queue,
        workflows=[Watched],
        activities=[silent],
        plugins=[plugin],
        graceful_shutdown_timeout=timedelta(seconds=1),
    ):
        kind = await client.execute_workflow(
            "Watched", id=f"watched-{queue}", task_queue=queue, result_type=str
        )

    assert kind == "HEARTBEAT"


@activity.defn
async def silent() -> None:
    """Works for three seconds without a heartbeat."""
    await asyncio.sleep(3)


@workflow.defn(name="Watched", sandboxed=False)
class Watched:
    """Runs `silent` under a heartbeat timeout of a second."""

    @workflow.run
    async def run(self) -> str:
        """The kind of the timeout."""
        second = timedelta(seconds=1)
        try:
            await workflow.execute_activity(
                silent,
                start_to_close_timeout=10 * second,
                heartbeat_timeout=second,
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        except exceptions.ActivityError as error:
            if isinstance(error.cause, exceptions.TimeoutError) and error.cause.type is not None:
                return error.cause.type.name
        return "none"
