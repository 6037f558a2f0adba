"""Versions of an agent, on a real server: which one a turn gets, and what it keeps."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client

from perdure import Agent, Allow, Delegate, ProposedCall, Rollout, Skill, errors
from perdure.clients import AgentClient
from perdure.events import AgentResolved
from perdure.testing import FunctionModel, ModelRequest, Reply, ScriptedModel, call, calls, says
from perdure.values.messages import ToolMessage
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

from ...conftest import Runtime
from ...support.agent_versions import (
    FREE,
    HALF,
    NEW,
    OLD,
    chosen,
    look,
    looks,
    names,
    new_id,
    support,
    version_of,
    worker,
)
from ...support.approving import pending
from ...support.banking import Bank, payer, pays, refunder
from ...support.long_turns import begin, filling, runs_of
from ...support.resets import reset, task_ends
from ...support.scheduling import DAILY
from ...support.spending import look as numbered


@pytest.mark.accepts("V33")
async def test_turn_has_the_instructions_and_the_tools_of_its_version(runtime: Runtime) -> None:
    """What is chosen is recorded with the definition of the agent."""
    async with runtime(worker(), model=looks()) as client:
        turn = await client.start("support", "go")
        report = await turn.result()
        [resolved] = [
            event.fact async for event in turn.events() if isinstance(event.fact, AgentResolved)
        ]

        assert report.output == "You are v2. v2 looked"
        assert report.agent == "support"
        assert await version_of(turn) == "v2"
    assert resolved.agent.version.model_dump(exclude_defaults=True) == {
        "name": "v2",
        "started": "v2",
    }


@pytest.mark.accepts("V32", "V33")
async def test_half_of_the_turns_get_each_version_by_their_ids(runtime: Runtime) -> None:
    """Started again with the same id, a turn gets the same one."""
    ids = [new_id() for _ in range(8)]
    async with runtime(worker(rollouts=HALF), model=names()) as client:
        outputs = [(await client.run("support", "go", id=id)).output for id in ids]
        again = (await client.run("support", "go", id=ids[0], if_exists="restart")).output

    assert outputs == [f"You are {chosen(id)}." for id in ids]
    assert again == outputs[0]


def running(
    temporal: Client, queue: str, app: AgentWorker, model: Any
) -> AbstractAsyncContextManager[Any]:
    """A worker of a deploy."""
    settings = WorkerSettings(grace=timedelta(seconds=1))
    app = AgentWorker(
        app.registry,
        rollouts=app.rollouts,
        task_queue=queue,
        providers={"scripted": model},
        prices=FREE,
    )
    return app.running(temporal, settings=settings)


@pytest.mark.accepts("V33")
async def test_turn_that_waits_keeps_its_version_when_the_weights_change(
    perdure_server: str,
) -> None:
    """Another worker gives all turns the old version; the call of the turn is that of the new."""
    temporal, queue = await Client.connect(perdure_server), new_id("queue")
    client = AgentClient.from_temporal(temporal, task_queue=queue)

    def versions(rollouts: Any) -> AgentWorker:
        agents = [
            support(version, tools=[look(version, requires_approval=True)])
            for version in ("v1", "v2")
        ]
        return AgentWorker(agents, rollouts=rollouts)

    async with running(temporal, queue, versions(NEW), looks()):
        turn = await client.start("support", "go")
        [waits] = await pending(turn)
    async with running(temporal, queue, versions(OLD), looks()):
        await turn.approve(waits, by="anna")
        report = await turn.result()
        later = await client.start("support", "go")
        await pending(later)
        versions_of = await version_of(turn), await version_of(later)
        await later.cancel()

    assert report.output == "You are v2. v2 looked"
    assert versions_of == ("v2", "v1")


@pytest.mark.accepts("V44")
async def test_turn_whose_version_is_gone_has_the_code_of_the_default_version(
    perdure_server: str,
) -> None:
    """As after any later deploy: its instructions stay. New turns cannot have it."""
    temporal, queue = await Client.connect(perdure_server), new_id("queue")
    client = AgentClient.from_temporal(temporal, task_queue=queue)
    v1 = support("v1", tools=[look("v1", requires_approval=True)])
    v2 = support("v2", tools=[look("v2", requires_approval=True)])
    async with running(temporal, queue, AgentWorker([v1, v2], rollouts=OLD), looks()):
        turn = await client.start("support", "go")
        [waits] = await pending(turn)
    async with running(temporal, queue, AgentWorker(v2), looks()):
        await turn.approve(waits, by="anna")
        report = await turn.result()
        with pytest.raises(
            errors.UnknownAgentError, match=r"no version 'v1' in this worker; it has v2"
        ):
            await client.run("support", "go", version="v1")

    assert report.output == "You are v1. v2 looked"


@pytest.mark.accepts("V33")
async def test_later_run_and_reset_keep_the_version(runtime: Runtime) -> None:
    """The agent is not resolved again."""
    fields: dict[str, Any] = {"parallel_tools": True, "max_iterations": "unlimited"}
    async with runtime(
        worker(tools=[numbered], **fields), model=ScriptedModel(*filling(3), says("done"))
    ) as client:
        turn = await begin(client, "support")
        await turn.result()
        runs, version = await runs_of(client, turn), await version_of(turn)

    assert len(runs) > 1
    assert version == "v2"

    async with runtime(worker(), model=looks()) as client:
        turn = await client.start("support", "go")
        await turn.result()
        ends = task_ends(await client.history(turn))
        again = await reset(client, turn, ends[-2])
        report = await again.result()

    assert report.output == "You are v2. v2 looked"


@pytest.mark.accepts("V34")
async def test_caller_chooses_the_version_of_one_turn(runtime: Runtime) -> None:
    """Over the rollout; a name that there is not ends the turn with those that there are."""
    async with runtime(worker(), model=names()) as client:
        report = await client.run("support", "go", version="v1")
        with pytest.raises(errors.UnknownAgentError, match=r"no version 'v3'.*it has v1, v2"):
            await client.run("support", "go", version="v3")
        for address in ("support@v1", "support@", "support@v9"):
            with pytest.raises(errors.UnknownAgentError, match="and the version with version="):
                await client.run(address, "go")
        with pytest.raises(errors.InvalidRequestError, match="version must be 1 to 64 of"):
            await client.run("support", "go", version="v 3")

    assert report.output == "You are v1."


@pytest.mark.accepts("V34")
@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (Agent(name="support", model="scripted:x"), "it has no versions"),
        (support("v1"), "it has v1"),
    ],
)
async def test_version_of_an_agent_that_has_no_such_version(
    runtime: Runtime, agent: Agent, words: str
) -> None:
    """Without a rollout as well."""
    async with runtime(agent, model=names()) as client:
        with pytest.raises(errors.UnknownAgentError, match=words):
            await client.run("support", "go", version="v2")


@pytest.mark.accepts("V33")
async def test_only_version_of_an_agent_needs_no_rollout(runtime: Runtime) -> None:
    """And one of a factory may have any name."""

    def made(_: Any) -> Agent:
        return support("v7", name="made")

    async with runtime(AgentWorker([support("v1"), made], prices=FREE), model=looks()) as client:
        turns = [await client.start(name, "go") for name in ("support", "made")]
        outputs = [(await turn.result()).output for turn in turns]
        versions = [await version_of(turn) for turn in turns]

    assert outputs == ["You are v1. v1 looked", "You are v7. v7 looked"]
    assert versions == ["v1", "v7"]


def delegates(request: ModelRequest) -> Reply:
    """The lead delegates, and others look."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return says(f"{request.system} {last.results[0].content}")
    name = "delegate_to_agent" if "lead" in request.system else "look"
    asks = {"agent": "support", "task": "go"} if "lead" in request.system else {}
    return calls(call(name, **asks))


@pytest.mark.accepts("V36")
async def test_delegates_of_a_tree_have_the_version_of_its_root(runtime: Runtime) -> None:
    """It is chosen by the id of the turn at the root, not by their own."""
    below = Delegate("support", inherit=False)
    lead = Agent(name="lead", model="m", instructions="I lead.", delegates=[below])
    ids = [new_id() for _ in range(6)]
    async with runtime(worker(lead, rollouts=HALF), model=FunctionModel(delegates)) as client:
        outputs = [(await client.run("lead", "go", id=id)).output for id in ids]

    assert all(f"{chosen(id)} looked" in output for id, output in zip(ids, outputs, strict=True))


@pytest.mark.accepts("V36")
async def test_inherited_tool_and_policy_are_those_of_the_version_above(runtime: Runtime) -> None:
    """The policy is asked with the name of the agent."""
    asked: list[tuple[str, str]] = []

    def policy_of(version: str) -> Any:
        def policy(proposed: ProposedCall) -> Allow:
            asked.append((version, proposed.agent))
            return Allow()

        return policy

    helper = Agent(name="helper", model="m", instructions="I help.")

    def reply(request: ModelRequest) -> Reply:
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return says(last.results[0].content)
        if "help" in request.system:
            return calls(call("look"))
        return calls(call("delegate_to_agent", agent="helper", task="go"))

    agents = [
        support(version, policy=policy_of(version), delegates=["helper"])
        for version in ("v1", "v2")
    ]
    app = AgentWorker([*agents, helper], rollouts=NEW, prices=FREE)
    async with runtime(app, model=FunctionModel(reply)) as client:
        report = await client.run("support", "go")

    assert "v2 looked" in report.output
    assert asked == [("v2", "support")] * 2


@pytest.mark.accepts("V36")
async def test_agent_that_a_turn_is_handed_over_to_has_its_own_version(runtime: Runtime) -> None:
    """The turn is listed by the version of the agent that it was started with; its middleware and
    output stay those of that version.
    """
    given: dict[str, Any] = {"instructions": "I am the desk.", "handoffs": ["support"]}
    plain, *versions = [
        Agent(name="desk", model="m", version=version, **given) for version in ("", "a", "b")
    ]
    rollouts = {**NEW, "desk": Rollout({"b": 1.0})}

    def reply(request: ModelRequest) -> Reply:
        last = request.messages[-1]
        if "desk" in request.system:
            return calls(call("hand_over", agent="support", message="go on"))
        if isinstance(last, ToolMessage) and "looked" in last.results[0].content:
            return says(f"{request.system} {last.results[0].content}")
        return calls(call("look"))

    for app, version in (
        (worker(plain), ""),
        (worker(*versions, rollouts=rollouts), "b"),
    ):
        async with runtime(app, model=FunctionModel(reply)) as client:
            turn = await client.start("desk", "go")
            report, status = await turn.result(), await turn.status()

        assert report.output == "You are v2. v2 looked"
        assert (report.last_agent, status.version) == ("support", version)


@pytest.mark.accepts("V37")
async def test_all_turns_of_a_session_have_one_version(runtime: Runtime) -> None:
    """It is chosen by the id of the session, or by whoever begins it."""
    ids = [new_id("session") for _ in range(4)]
    async with runtime(worker(rollouts=HALF), model=names()) as client:
        outputs = []
        for id in ids:
            session = client.session(id, "support")
            sent = [await session.say("hello"), await session.say("again")]
            outputs.append({(await one.result()).output for one in sent})
            await session.close()
        named = client.session(new_id("session"), "support", version="v1")
        by_name = (await (await named.say("hello")).result()).output
        await named.close()

    assert outputs == [{f"You are {chosen(id)}."} for id in ids]
    assert by_name == "You are v1."


@pytest.mark.accepts("V37")
async def test_tasks_of_a_batch_are_chosen_each_or_by_the_caller(runtime: Runtime) -> None:
    """By the ids of their turns."""
    async with runtime(worker(rollouts=HALF), model=names()) as client:
        batch = await client.start_batch(new_id("batch"), "support", ["go"] * 6)
        results = [result async for result in batch.results()]
        named = await client.start_batch(new_id("batch"), "support", ["go"], version="v1")
        by_name = [result.output async for result in named.results()]

    assert {(one.turn_id, one.output) for one in results} == {
        (one.turn_id, f"You are {chosen(one.turn_id)}.") for one in results
    }
    assert by_name == ["You are v1."]


@pytest.mark.accepts("V37")
async def test_turns_of_a_schedule_are_chosen_each_or_by_the_caller(runtime: Runtime) -> None:
    """A change of the schedule changes it."""
    async with runtime(worker(), model=names()) as client:
        daily = await client.create_schedule(
            new_id("daily"), "support", "go", cron=DAILY["cron"], timezone="UTC", version="v1"
        )
        one = await client.turn(await daily.run_now()).result()
        await daily.change(version=None)
        two = await client.turn(await daily.run_now()).result()
        await daily.delete()

    assert (one.output, two.output) == ("You are v1.", "You are v2.")


@pytest.mark.accepts("V38")
async def test_fork_and_resumed_turn_have_the_version_of_the_first_turn(runtime: Runtime) -> None:
    """Or the one that the caller names, to compare them."""
    id = next(id for id in iter(new_id, "") if chosen(id) != chosen(f"{id}~1"))
    other = "v1" if chosen(id) == "v2" else "v2"
    async with runtime(worker(rollouts=HALF), model=looks()) as client:
        turn = await client.start("support", "go", id=id)
        await turn.result()
        fork = await turn.fork(0)
        outputs = [(await fork.result()).output]
        outputs.append((await (await fork.fork(0)).result()).output)
        named = await turn.fork(0, version=other)
        outputs.append((await named.result()).output)
        outputs.append((await (await named.fork(0)).result()).output)

    assert fork.id == f"{id}~1"
    assert outputs == [
        f"You are {version}. {version} looked" for version in (chosen(id), chosen(id), other, other)
    ]


@pytest.mark.accepts("V33")
async def test_skill_on_demand_is_that_of_the_version(runtime: Runtime) -> None:
    """Also where another process reads it: the pins are those of the version."""
    given: dict[str, Any] = {"name": "tone", "description": "How.", "on_demand": True}
    skills = {version: Skill(instructions=f"as {version}", **given) for version in ("v1", "v2")}

    def reply(request: ModelRequest) -> Reply:
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return says(last.results[0].content)
        return calls(call("load_skill", name="tone"))

    agents = [support(version, skills=[skills[version]]) for version in ("v1", "v2")]
    app = AgentWorker(agents, rollouts=NEW, prices=FREE)
    async with runtime(app, model=FunctionModel(reply)) as client:
        report = await client.run("support", "go")

    assert "as v2" in report.output


@pytest.mark.accepts("V47")
async def test_effect_is_taken_back_by_the_version_that_made_it(runtime: Runtime) -> None:
    """Whatever new turns get."""
    old, new = Bank(), Bank()
    agents = [
        support("v1", tools=[payer(old, undo=refunder(old))]),
        support("v2", tools=[payer(new, undo=refunder(new))]),
    ]
    app = AgentWorker(agents, rollouts=OLD, prices=FREE)
    async with runtime(app, model=ScriptedModel(pays(), says("paid"))) as client:
        turn = await client.start("support", "pay", version="v2")
        report = await turn.result()
        undo = await turn.undo(report.undoable[0].call_id)
        undone = await undo.result()
        status = await undo.status()

    assert "was taken back" in undone.output
    assert ([*old.refunds], len(new.refunds)) == ([], 1)
    assert (status.agent, status.version) == ("support", "v2")
