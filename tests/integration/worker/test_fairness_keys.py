"""Fairness keys: turns of several tenants share the workers."""

from __future__ import annotations

import asyncio
import importlib
import secrets
import sys
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from perdure import Agent, UserMessage, errors
from perdure.activities.provider import ModelRequest
from perdure.testing import FunctionModel, ScriptedModel, call, calls, says
from perdure.worker import AgentWorker, PerdurePlugin

from ...conftest import Runtime
from ...support.delegating import FREE, delegate
from ...support.long_turns import filling, reader
from ...support.spending import Queue, app, look


def order_of(priority: Any) -> tuple[int, str, float]:
    """Temporal's priority, fairness key and weight."""
    return priority.priority_key, priority.fairness_key, priority.fairness_weight


@pytest.mark.slow
@pytest.mark.accepts("Y55")
async def test_fairness_of_a_turn_is_that_of_its_activities_and_delegates(
    runtime: Runtime,
) -> None:
    """Temporal has the key and the weight of each; without a key there is none."""
    agents = [
        Agent(name="asker", model="slow:m", delegates=["helper"]),
        Agent(name="helper", model="quick:m", tools=[look]),
    ]
    answers = [calls(call("look")), says("helped")]
    providers = {
        "slow": ScriptedModel(*[delegate("helper", "help"), says("done")] * 2),
        "quick": ScriptedModel(*answers * 2),
    }
    given: dict[str, Any] = {"priority": 2, "fairness": "tenant-7", "weight": 2.5}
    found = []
    async with runtime(AgentWorker(agents, providers=providers, prices=FREE)) as client:
        for start in (given, {}):
            turn = await client.start("asker", "go", **start)
            await turn.result()
            for one in (turn.id, f"{turn.id}/helper-1"):
                handle = client.temporal.get_workflow_handle(one)
                info = (await handle.describe()).raw_description.workflow_execution_info
                found.append(order_of(info.priority))
                for event in (await handle.fetch_history()).events:
                    # an empty field means that it is that of the workflow
                    if event.HasField("activity_task_scheduled_event_attributes"):
                        own = event.activity_task_scheduled_event_attributes.priority
                        assert order_of(own) in ((0, "", 0), found[-1])

    assert found == [(2, "tenant-7", 2.5)] * 2 + [(0, "", 0)] * 2


@pytest.mark.slow
@pytest.mark.accepts("Y55")
async def test_fairness_of_a_turn_is_that_of_its_later_runs(runtime: Runtime) -> None:
    """After a continue-as-new."""
    agent = reader(parallel_tools=True)
    async with runtime(
        AgentWorker(agent, prices=FREE), model=ScriptedModel(*filling(3), "done")
    ) as (client):
        turn = await client.start("reader", "go", fairness="tenant-7", weight=3)
        await turn.result()
        info = (
            await client.temporal.get_workflow_handle(turn.id).describe()
        ).raw_description.workflow_execution_info

    assert order_of(info.priority) == (0, "tenant-7", 3)


@pytest.mark.slow
@pytest.mark.accepts("Y55")
async def test_fork_has_the_order_of_what_it_continues(runtime: Runtime) -> None:
    """Of a turn and of a session; a handle that names a key of its own keeps the priority."""
    given: dict[str, Any] = {"priority": 2, "fairness": "tenant-7"}
    id = f"ordered-{secrets.token_hex(4)}"
    async with runtime(
        Agent(name="clerk", model="scripted:m"), model=FunctionModel(lambda _: says("done"))
    ) as client:
        turn = await client.start("clerk", "go", **given, weight=2.5)
        await turn.result()
        session = client.session(id, "clerk", **given)
        await (await session.say("go")).result()
        forks: list[Any] = [
            await turn.fork(0),
            await client.session(id).fork(id=f"{id}-a"),
            await client.session(id, fairness="tenant-8").fork(id=f"{id}-b"),
            await session.fork(id=f"{id}-c"),
        ]
        handles = [client.temporal.get_workflow_handle(fork.id) for fork in forks]
        infos = [
            (await handle.describe()).raw_description.workflow_execution_info for handle in handles
        ]
        for fork in forks:
            await fork.cancel()

    assert [order_of(info.priority) for info in infos] == [
        (2, "tenant-7", 2.5),
        (2, "tenant-7", 0),
        (2, "tenant-8", 0),
        (2, "tenant-7", 0),
    ]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"fairness": ""}, "fairness must be a string of 1 to 64 bytes of visible characters"),
    ({"fairness": "ä" * 33}, "fairness must be a string of 1 to 64 bytes"),
    ({"fairness": "a\nb"}, "fairness must be a string of 1 to 64 bytes"),
    ({"fairness": "\ud800"}, "fairness must be a string of 1 to 64 bytes"),
    ({"fairness": 7}, "fairness must be a string of 1 to 64 bytes"),
    ({"fairness": "t", "weight": 0}, "weight must be a number from 0.001 to 1000"),
    ({"fairness": "t", "weight": 1001}, "weight must be a number from 0.001 to 1000"),
    ({"fairness": "t", "weight": float("nan")}, "weight must be a number from 0.001 to 1000"),
    ({"fairness": "t", "weight": True}, "weight must be a number from 0.001 to 1000"),
    ({"fairness": "t", "weight": "2"}, "weight must be a number from 0.001 to 1000"),
    ({"weight": 2}, "weight is the share of a fairness key; name the key as fairness"),
]


@pytest.mark.accepts("Y57")
async def test_fairness_that_there_is_not_is_refused(runtime: Runtime) -> None:
    """Before anything is started."""
    async with runtime(app(), model=ScriptedModel()) as client:
        for given, words in WRONG:
            with pytest.raises(errors.InvalidRequestError) as caught:
                await client.start("spender", "go", **given)
            assert caught.value.message.startswith(f"the turn: {words}"), given
        assert client.recorded == set()


@pytest.mark.accepts("E96", "Y55")
async def test_turn_of_their_workflow_has_its_own_order_and_moments(
    perdure_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run_turn` takes the same options; what it is not given is inherited from the workflow."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "tests/support/workflows"))
    workflows = importlib.import_module("their_workflows")
    client, name = await Client.connect(perdure_server), f"test-{secrets.token_hex(6)}"
    model = ScriptedModel("done", "done")
    plugin = PerdurePlugin(AgentWorker(workflows.CLERK, providers={"scripted": model}, prices=FREE))
    async with Worker(client, task_queue=name, workflows=[workflows.Ordered], plugins=[plugin]):
        said = await client.execute_workflow("Ordered", "How long?", id=name, task_queue=name)
        infos = [
            (await client.get_workflow_handle(f"{name}/{place}").describe()).raw_description
            for place in ("own", "plain")
        ]
        started = (await client.get_workflow_handle(f"{name}/own").fetch_history()).events[0]

    assert said == [
        "done",
        "done",
        "the deadline, 2026-01-01 00:00:00 UTC, has passed; name a later one",
    ]
    assert [order_of(one.workflow_execution_info.priority) for one in infos] == [
        (1, "tenant-7", 2),
        (0, "", 0),
    ]
    given = started.workflow_execution_started_event_attributes.input.payloads[0].data
    assert b'"delay":"PT0.01S"' in given
    assert b'"deadline":"PT1H"' in given


class Sorted(ScriptedModel):
    """Records whose call it answers, by the tenant in the task."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    async def complete(self, request: ModelRequest) -> Any:
        [asked] = request.messages
        assert isinstance(asked, UserMessage)
        self.order.append(asked.text.split()[0])
        return await ScriptedModel("done").complete(request)


@pytest.mark.slow
@pytest.mark.accepts("Y56")
async def test_keys_take_turns_where_work_waits_for_workers() -> None:
    """On a server with fairness switched on: a tenant that starts five turns after a hundred of
    another does not wait for all of them. Without, they are among the last.
    """
    flags = ("matching.useNewMatcher=true", "matching.enableFairness=true")
    arguments = [part for flag in flags for part in ("--dynamic-config-value", flag)]
    model = Sorted()
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(Path(sys.executable).parent / "temporal"),
        dev_server_extra_args=arguments,
        dev_server_log_level="error",
    ) as environment:
        work = Queue(environment.client)
        busy = [
            await work.client.start("spender", f"busy {number}", fairness="busy")
            for number in range(100)
        ]
        quiet = [
            await work.client.start("spender", f"quiet {number}", fairness="quiet")
            for number in range(5)
        ]
        async with work.worker(app(), model):
            async with asyncio.timeout(120):
                await asyncio.gather(*(turn.result() for turn in (*busy, *quiet)))

    places = [place for place, name in enumerate(model.order) if name == "quiet"]
    assert len(model.order) == 105
    assert sum(places) / len(places) < 50, places
