"""Waits of each kind move to another build and end there, and so do calls of providers' queues."""

import asyncio
import secrets

import pytest
from temporalio.client import Client

from perdure import Agent, Budget
from perdure.activities.provider import ModelRequest
from perdure.clients import State, Turn
from perdure.delivery.push import PushCall
from perdure.temporal.names import PUSH
from perdure.temporal.payloads import pack
from perdure.testing import FunctionModel, Reply, ScriptedModel, call, calls, says
from perdure.toolboxes import asking, waiting
from perdure.values.messages import ToolMessage
from perdure.worker import ModelQueue

from ...support.approving import agent, pending
from ...support.client_tools import LOCATE, guide, until_calls
from ...support.jobs import Service, deployer
from ...support.receiver import Receiver
from ...support.versioned import Versions, builds_of, until, until_begun

pytestmark = pytest.mark.slow


@pytest.fixture
async def versions(perdure_server: str) -> Versions:
    """A deployment of its own."""
    return Versions(await Client.connect(perdure_server))


def replies(request: ModelRequest) -> Reply:
    """Begin the wait of the agent, and then answer with its result."""
    results = [each for each in request.messages if isinstance(each, ToolMessage)]
    if results:
        return says(results[-1].results[-1].content)
    match request.model:
        case "deployer":
            return calls(call("deploy", target="shop"))
        case "guide":
            return calls(call("locate", precise=True))
        case "sleeper":
            return calls(call("wait_for", event="built", note="the build"))
        case "asker":
            return calls(call("ask", question="Which?", options=["this", "that"]))
        case _:
            return says("paid")


@pytest.mark.accepts("V25")
async def test_waits_of_each_kind_move_and_end_on_the_other_build(versions: Versions) -> None:
    """A job, a call of the client, an event, a question and a budget, with their tokens and ids."""
    client, service = versions.client, Service()
    agents = [
        deployer(service, name="deployer"),
        guide(),
        Agent(name="sleeper", model="scripted:sleeper", toolboxes=[waiting()]),
        Agent(name="asker", model="scripted:asker", toolboxes=[asking()]),
        Agent(name="payer", model="scripted:payer", on_exhausted="pause"),
    ]
    model = {"scripted": FunctionModel(replies)}
    async with versions.worker("v1", agents, providers=model):
        await versions.promote("v1")
        job = await client.start("deployer", "go")
        of_client = await client.start("guide", "go", client_tools=[LOCATE])
        event = await client.start("sleeper", "go")
        question = await client.start("asker", "go")
        budget = await client.start("payer", "go", budget=Budget(tokens=1))
        turns = [job, of_client, event, question, budget]
        token = await service.token()
        (asked_of_client,) = await until_calls(of_client)
        for turn in turns:
            await shown_waiting(turn)
        async with versions.worker("v2", agents, providers=model):
            await versions.promote("v2")
            drained = await versions.drain("v1")
            await client.finish_call(token, "deployed")
            await client.finish_call(asked_of_client.token, "here")
            await event.emit("built", {"ok": True})
            (asked,) = await question.pending_approvals()
            await question.answer(asked.call_id, "that")
            await budget.add_budget(Budget(tokens=100_000))
            outputs = [str((await asyncio.wait_for(turn.result(), 60)).output) for turn in turns]
    builds = [await builds_of(client.temporal, turn.id) for turn in turns]

    assert drained.drained
    words = ("deployed", "here", "ok", "that", "paid")
    assert [word in output for word, output in zip(words, outputs, strict=True)] == [True] * 5
    assert builds == [["v1", "v2"]] * 5
    assert service.started == ["shop"]


async def shown_waiting(turn: Turn) -> None:
    """Wait until a turn shows that it waits."""

    async def waits() -> bool:
        return (await turn.status()).state in (State.WAITING, State.PAUSED)

    await until(waits)


@pytest.mark.accepts("V26")
async def test_pinned_turns_are_answered_by_the_queue_of_a_provider(versions: Versions) -> None:
    """The workers of that queue have no build."""
    talker = Agent(name="talker", model="slow:talker")
    answers = {"slow": ScriptedModel(says("hello"))}
    async with versions.worker("v1", talker, providers=answers, queues={"slow": ModelQueue()}):
        await versions.promote("v1")
        turn = await versions.client.start("talker", "hi")
        report = await asyncio.wait_for(turn.result(), 60)

    assert report.output == "hello"
    assert await builds_of(versions.client.temporal, turn.id) == ["v1"]


@pytest.mark.accepts("V27")
async def test_schedule_starts_turns_on_the_current_build(versions: Versions) -> None:
    """Also one that was created while another build was current."""
    reporter = Agent(name="reporter", model="scripted:reporter")
    first, second = ({"scripted": ScriptedModel(says(text))} for text in ("one", "two"))
    name = f"daily-{secrets.token_hex(4)}"
    async with versions.worker("v1", reporter, providers=first):
        await versions.promote("v1")
        schedule = await versions.client.create_schedule(
            name, "reporter", "Report.", cron="0 7 * * *", timezone="Europe/Berlin"
        )
        old = versions.client.turn(await schedule.run_now())
        await until_begun(old)
        answers = [(await asyncio.wait_for(old.result(), 60)).output]
        async with versions.worker("v2", reporter, providers=second):
            await versions.promote("v2")
            new = versions.client.turn(await schedule.run_now())
            await until_begun(new)
            answers += [(await asyncio.wait_for(new.result(), 60)).output]
    await schedule.delete()

    assert answers == ["one", "two"]


@pytest.mark.accepts("V31")
async def test_webhooks_and_push_notifications_of_a_turn_that_moves_come_once(
    versions: Versions, receiver: Receiver
) -> None:
    """The follower moves, too, and both tell the wait and the end once each."""
    client, temporal = versions.client, versions.client.temporal
    model = {"scripted": ScriptedModel(calls(call("send", to="ann")))}
    later = {"scripted": ScriptedModel(says("done"))}
    done, wait = receiver.url("/done"), receiver.url("/wait")
    async with versions.worker("v1", agent(), providers=model):
        await versions.promote("v1")
        turn = await client.start("clerk", "write", on_done=done, on_wait=wait)
        await pending(turn)
        follower = PushCall(id="1", url=receiver.url("/push"), turn_id=turn.id, task="c/1")
        push = await temporal.start_workflow(
            PUSH, pack(follower), id=f"{turn.id}/push-1", task_queue=client.task_queue
        )
        await receiver.until("/push")
        await receiver.until("/wait")
        async with versions.worker("v2", agent(), providers=later):
            await versions.promote("v2")
            drained = await versions.drain("v1")
            await turn.approve((await pending(turn))[0].call_id)
            await asyncio.wait_for(turn.result(), 60)
            await asyncio.wait_for(push.result(), 60)
            await receiver.until("/done")

    assert drained.drained
    assert [len(receiver.of(path)) for path in ("/push", "/wait", "/done")] == [2, 1, 1]
    assert (await builds_of(temporal, push.id))[:2] == ["v1", "v2"]
