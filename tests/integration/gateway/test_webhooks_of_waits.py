"""Webhooks about waits: real turns, and a receiver on loopback that verifies them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, Budget, ModelRetryPolicy, errors, tool
from perdure.__main__ import run as command
from perdure.clients import Turn, WebhookDelivery
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.worker import AgentWorker

from ...conftest import Runtime, check_history
from ...support.banking import Bank, payer, pays, refunder
from ...support.carrying import clerk, letters
from ...support.gateway.served import as_, served
from ...support.long_turns import begin, filling, runs_of
from ...support.receiver import Answer, Receiver
from ...support.resets import reset, task_ends
from ...support.scheduling import DAILY, new_id
from ...support.spending import app


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


REFUNDS = calls(call("refund", euros=5))


def desk(**fields: Any) -> AgentWorker:
    """A worker of an agent, and of one that it delegates to."""
    agent = Agent(**{"name": "desk", "model": "scripted:m", "tools": [refund], **fields})
    clerk = Agent(name="clerk", model="scripted:m", description="Pays back.", tools=[refund])
    return AgentWorker([agent, clerk])


async def told(receiver: Receiver, path: str) -> Mapping[str, Any]:
    """The data of the first message about a wait."""
    [hook, *_] = await receiver.until(path)
    message = hook.verified()
    assert message["type"] == "turn.waiting"
    data: Mapping[str, Any] = message["data"]
    return data


@pytest.mark.slow
@pytest.mark.accepts("H160")
async def test_receiver_decides_with_what_it_was_told(runtime: Runtime, receiver: Receiver) -> None:
    """The message has the call and its token; the wait lasts until the receiver has decided."""
    async with runtime(desk(), model=ScriptedModel(REFUNDS, says("done"))) as client:
        turn = await client.start(
            "desk", "go", on_wait=receiver.url("/waits"), labels={"ticket": "4711"}
        )
        data = await told(receiver, "/waits")
        [pending] = data["pending"]
        shown = await turn.pending_approvals()
        await turn.approve(pending["call_id"], token=pending["token"], by="anna")
        report = await turn.result()
        deliveries = await until_listed(turn, 1)
        await check_history(client.temporal, turn.id, await turn.first_run())

    assert (data["id"], data["root"], data["agent"]) == (turn.id, turn.id, "desk")
    assert (data["kind"], data["labels"]) == ("approval", {"ticket": "4711"})
    assert (pending["tool"], pending["arguments"]) == ("refund", '{"euros": 5}')
    assert [one.token for one in shown] == [pending["token"]]
    assert report.output == "done"
    assert [(one.event, one.state, one.status) for one in deliveries] == [
        ("on_wait", "delivered", 204)
    ]
    assert len(receiver.of("/waits")) == 1


@pytest.mark.slow
@pytest.mark.accepts("H160")
async def test_every_kind_of_wait_is_told_once(runtime: Runtime, receiver: Receiver) -> None:
    """A spent budget, iterations, and a provider that is down, however often it is asked."""
    down = fails(errors.LLMUnavailableError("slow down"))
    model = ByTask(
        {
            "dear": ScriptedModel(calls(call("unknown")), says("never")),
            "long": ScriptedModel(calls(call("unknown")), says("never")),
            "down": ScriptedModel(*[down] * 5, says("back")),
        }
    )
    options: dict[str, dict[str, Any]] = {
        "dear": {"budget": Budget(model_calls=1)},
        "long": {"max_iterations": 1},
        "down": {"model_retry": ModelRetryPolicy(initial_interval=timedelta(seconds=0.1))},
    }
    async with runtime(desk(on_exhausted="pause"), model=model) as client:
        turns = {
            task: await client.start("desk", task, on_wait=receiver.url(f"/{task}"), **more)
            for task, more in options.items()
        }
        data = {task: await told(receiver, f"/{task}") for task in turns}
        assert (await turns["down"].result()).output == "back"
        for task in ("dear", "long"):
            await turns[task].cancel()

    assert {task: one["kind"] for task, one in data.items()} == {
        "dear": "budget",
        "long": "iterations",
        "down": "provider",
    }
    assert data["down"]["until"] is not None
    assert [len(receiver.of(f"/{task}")) for task in turns] == [1, 1, 1]


@pytest.mark.accepts("H160")
async def test_delay_before_a_turn_is_not_told(runtime: Runtime, receiver: Receiver) -> None:
    """It waits for nobody."""
    async with runtime(desk(), model=ScriptedModel(says("done"))) as client:
        turn = await client.start(
            "desk", "go", on_wait=receiver.url("/waits"), delay=timedelta(seconds=0.5)
        )
        await turn.result()
        children = await turn.webhooks()

    assert (children, receiver.hooks) == ((), [])


@pytest.mark.accepts("H161")
async def test_delegate_that_waits_is_told_and_a_fork_is_not(
    runtime: Runtime, receiver: Receiver
) -> None:
    """The message names the delegate's turn, which is decided about, and the root."""
    model = ByTask(
        {
            "go": ScriptedModel(
                calls(call("delegate_to_agent", agent="clerk", task="pay back")), says("done")
            ),
            "pay back": ScriptedModel(REFUNDS, says("paid")),
        }
    )
    async with runtime(desk(delegates=["clerk"]), model=model) as client:
        turn = await client.start("desk", "go", on_wait=receiver.url("/waits"))
        data = await told(receiver, "/waits")
        await client.turn(data["id"]).approve(
            data["pending"][0]["call_id"], token=data["pending"][0]["token"]
        )
        await turn.result()
        fork = await turn.fork(0)
        await fork.wait(60)
        await fork.cancel()
        listed = await until_listed(turn, 1)

    assert (data["root"], data["agent"]) == (turn.id, "clerk")
    assert data["id"].startswith(f"{turn.id}/")
    assert [f"{turn.id}/{one.id}".rpartition("/")[0] for one in listed] == [data["id"]]
    assert len(receiver.of("/waits")) == 1


@pytest.mark.slow
@pytest.mark.accepts("H161")
async def test_wait_of_several_runs_is_told_once(runtime: Runtime, receiver: Receiver) -> None:
    """A turn that continues in new runs while it waits has begun to wait once, and the token of the
    message stays valid.
    """
    async with runtime(app(clerk(on_exhausted="pause")), model=letters()) as client:
        turn = await begin(client, on_wait=receiver.url("/waits"))
        data = await told(receiver, "/waits")
        while len(await runs_of(client, turn)) < 3:
            await asyncio.gather(*(turn.add_budget(iterations=1) for _ in range(20)))
        shown = await turn.pending_approvals()
        for pending in data["pending"]:
            await turn.approve(pending["call_id"], token=pending["token"])
        report = await turn.result()

    assert [one.token for one in shown] == [one["token"] for one in data["pending"]]
    assert len(receiver.of("/waits")) == 1
    assert report.output == "done"


@pytest.mark.slow
@pytest.mark.accepts("H160", "H161")
async def test_wait_that_begins_in_a_later_run_has_the_token_of_the_turn(
    runtime: Runtime, receiver: Receiver
) -> None:
    """A token names the first run, whatever run the call waits in."""
    letter = calls(call("send", call_id="a", to="Ann"))
    model = ScriptedModel(*filling(4), letter, says("done"))
    async with runtime(app(clerk(on_exhausted="pause")), model=model) as client:
        turn = await begin(client, on_wait=receiver.url("/waits"))
        data = await told(receiver, "/waits")
        runs = await runs_of(client, turn)
        shown = await turn.pending_approvals()
        for pending in data["pending"]:
            await turn.approve(pending["call_id"], token=pending["token"])
        report = await turn.result()

    assert len(runs) > 1
    assert [one.token for one in shown] == [one["token"] for one in data["pending"]]
    assert report.output == "done"


@pytest.mark.slow
@pytest.mark.accepts("H161")
async def test_turn_that_is_reset_tells_of_its_wait_again(
    runtime: Runtime, receiver: Receiver
) -> None:
    """With another id and another token, since it waits anew."""
    async with runtime(desk(), model=ScriptedModel(REFUNDS, REFUNDS, says("done"))) as client:
        turn = await client.start("desk", "go", on_wait=receiver.url("/waits"))
        await receiver.until("/waits")
        ends = task_ends(await client.history(turn))
        again = await reset(client, turn, ends[0])
        first, second = await receiver.until("/waits", 2)
        [pending] = second.verified()["data"]["pending"]
        await again.approve(pending["call_id"], token=pending["token"])
        report = await again.result()

    assert first.headers["webhook-id"] != second.headers["webhook-id"]
    assert report.output == "done"


@pytest.mark.accepts("H162")
async def test_webhook_that_failed_is_listed_and_sent_again(
    runtime: Runtime, receiver: Receiver
) -> None:
    """With the same id and the same message; one that is delivered is not sent again."""
    async with runtime(desk(), model=ScriptedModel(REFUNDS, says("done"))) as client:
        turn = await client.start("desk", "go", on_wait=receiver.url("/waits", Answer(404)))
        [first] = await receiver.until("/waits")
        await until_state(turn, "failed")
        [failed] = await turn.webhooks()
        await turn.send_webhook(failed)
        _, second = await receiver.until("/waits", 2)
        await until_state(turn, "delivered")
        with pytest.raises(errors.InvalidRequestError, match="is delivered"):
            await turn.send_webhook(failed.id)
        with pytest.raises(errors.InvalidRequestError, match="has no delivery 'on_wait-0'"):
            await turn.send_webhook("on_wait-0")
        await turn.cancel()

    assert (failed.event, "answered 404" in failed.error) == ("on_wait", True)
    assert first.verified() == second.verified()
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


@pytest.mark.slow
@pytest.mark.accepts("H162")
async def test_deliveries_over_http(runtime: Runtime, receiver: Receiver) -> None:
    """Listed below the turn, and sent again; not for a caller of another tenant."""
    async with (
        runtime(desk(), model=ScriptedModel(REFUNDS, says("done"))) as client,
        served(client) as gateway,
    ):
        start = {"agent": "desk", "task": "go", "on_wait": receiver.url("/waits", Answer(404))}
        turn = client.turn((await gateway.post("/v1/turns", json=start)).json()["id"])
        await until_state(turn, "failed")
        path = f"/v1/turns/{turn.id}"
        [listed] = (await gateway.get(f"{path}/webhooks")).json()["webhooks"]
        again = {"webhook": listed["id"]}
        sent = await gateway.post(f"{path}/send-webhook", json=again)
        await receiver.until("/waits", 2)
        foreign = [
            await gateway.get(f"{path}/webhooks", headers=as_("otto")),
            await gateway.post(f"{path}/send-webhook", json=again, headers=as_("otto")),
        ]
        await turn.cancel()

    assert (listed["state"], listed["event"], sent.status_code) == ("failed", "on_wait", 204)
    assert [answer.status_code for answer in foreign] == [404, 404]


@pytest.mark.accepts("H162")
async def test_deliveries_on_the_command_line(
    runtime: Runtime,
    receiver: Receiver,
    perdure_server: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line for each, with the reason of a failure, and one that is sent again."""
    address = ("--address", perdure_server)
    async with runtime(desk(), model=ScriptedModel(REFUNDS, says("done"))) as client:
        turn = await client.start("desk", "go", on_wait=receiver.url("/waits", Answer(404)))
        await until_state(turn, "failed")
        [failed] = await turn.webhooks()
        capsys.readouterr()
        await asyncio.to_thread(command, ["webhooks", turn.id, *address])
        shown = capsys.readouterr().out
        again = ["webhooks", turn.id, "--send", failed.id, "--json", *address]
        await asyncio.to_thread(command, again)
        sent = capsys.readouterr().out
        await receiver.until("/waits", 2)
        await turn.cancel()

    assert shown.startswith(f"{failed.id}  {failed.began_at:%Y-%m-%d %H:%M:%S} UTC  failed: ")
    assert shown.endswith("127.0.0.1 answered 404\n")
    assert json.loads(sent) == {"turn": turn.id, "webhook": failed.id}


@pytest.mark.accepts("H163")
async def test_receiver_that_is_not_allowed_ends_the_turn(
    runtime: Runtime, receiver: Receiver
) -> None:
    """Before any call of a model, as for `on_done`."""
    model = ScriptedModel(says("never"))
    async with runtime(desk(), model=model) as client:
        with pytest.raises(errors.WebhookRefusedError):
            await client.run("desk", "go", on_wait="https://other.example.com/")

    assert model.requests == []


@pytest.mark.accepts("S10")
async def test_end_is_told_of_a_turn_whose_url_for_waits_is_refused(
    runtime: Runtime, receiver: Receiver
) -> None:
    """The worker sends to `on_done`, and not to `on_wait`; before, nobody was told anything."""
    async with runtime(desk(), model=ScriptedModel(says("never"))) as client:
        turn = await client.start(
            "desk", "go", on_done=receiver.url("/done"), on_wait="https://other.example.com/"
        )
        with pytest.raises(errors.WebhookRefusedError):
            await turn.result()
        [hook] = await receiver.until("/done")

    message = hook.verified()
    assert message["type"] == "turn.failed"
    assert message["data"]["error"]["code"] == errors.WebhookRefusedError.code


@pytest.mark.slow
@pytest.mark.accepts("H164")
async def test_turns_of_sessions_schedules_and_batches_tell_of_their_waits(
    runtime: Runtime, receiver: Receiver
) -> None:
    """Each of their turns has the option."""
    url = receiver.url("/waits")
    async with runtime(desk(), model=ScriptedModel(*[REFUNDS] * 3)) as client:
        session = client.session(new_id("hook"), "desk", on_wait=url)
        await session.say("go")
        daily = await client.create_schedule(new_id("hook"), "desk", "go", **DAILY, on_wait=url)
        await daily.run_now()
        batch = await client.start_batch(new_id("hook"), "desk", ["go"], on_wait=url)
        hooks = await receiver.until("/waits", 3)
        told_of = {hook.verified()["data"]["id"] for hook in hooks}
        for turn_id in told_of:
            await client.turn(turn_id).cancel()
        await session.close()
        await daily.delete()

    assert {f"{session.id}/1", f"{batch.id}/1"} <= told_of
    assert len(told_of) == 3


@pytest.mark.slow
@pytest.mark.accepts("H164")
async def test_unknown_outcome_and_its_undo_are_told(runtime: Runtime, receiver: Receiver) -> None:
    """A person is asked what became of a payment, and later whether it may be taken back."""
    bank = Bank(loses=1)
    refund_payment = tool(requires_approval=True)(refunder(bank))
    pay = payer(bank, on_unknown="pause", undo=refund_payment)
    agent = Agent(name="clerk", model="scripted:x", tools=[pay])
    async with runtime(agent, model=ScriptedModel(pays(), says("done"))) as client:
        turn = await client.start(agent, "pay", on_wait=receiver.url("/waits"))
        data = await told(receiver, "/waits")
        [pending] = data["pending"]
        await turn.settle(pending["call_id"], "done", "paid i-1", token=pending["token"])
        report = await turn.result()
        undo = await turn.undo(report.undoable[0])
        [_, hook] = await receiver.until("/waits", 2)
        about_undo = hook.verified()["data"]
        await undo.cancel()

    assert (pending["tool"], pending["is_unknown"]) == ("pay", True)
    assert (about_undo["id"], about_undo["kind"]) == (undo.id, "approval")


async def until_state(turn: Turn[Any], state: str) -> None:
    """Wait until Temporal lists one delivery, in this state."""
    async with asyncio.timeout(60):
        while [one.state for one in await turn.webhooks()] != [state]:  # noqa: ASYNC110 - Temporal lists it
            await asyncio.sleep(0.05)


async def until_listed(turn: Turn[Any], count: int) -> Sequence[WebhookDelivery]:
    """The deliveries, once Temporal lists this many that have ended."""
    async with asyncio.timeout(60):
        while True:
            listed = await turn.webhooks()
            if sum(one.ended_at is not None for one in listed) == count:
                return listed
            await asyncio.sleep(0.05)
