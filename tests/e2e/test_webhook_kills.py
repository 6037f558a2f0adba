"""Webhooks whose worker is killed while it sends them."""

from __future__ import annotations

import secrets
import threading

import pytest

from perdure.clients.gateway import A2AAgent

from ..conftest import eventually
from ..support.e2e.app import AGENT
from ..support.e2e.stories import GONE_S, Tell, asks, says, use
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor
from ..support.gateway.a2a import agent_of
from ..support.gateway.a2a_push import begin, told
from ..support.gateway.served import served
from ..support.receiver import SECRET, Answer, Receiver, receiving
from ..support.webhooks import delivered

__all__ = ["has_supervisor"]


def _environment(receiver: Receiver) -> dict[str, str]:
    hosts = f"private:127.0.0.1:{receiver.port}"
    return {"PERDURE_WEBHOOK_HOSTS": hosts, "PERDURE_WEBHOOK_SECRETS": SECRET}


@pytest.mark.slow
@pytest.mark.accepts("H86")
async def test_webhook_is_delivered_although_its_worker_is_killed(tell: Tell) -> None:
    """The receiver has the message when the worker is killed, and has not answered yet: it comes
    again, with the same id. The turn is over before and stays as it is.
    """
    held = threading.Event()
    with receiving() as receiver:
        story = await tell(says("done"))
        turn = await story.start(
            id=f"hook-{secrets.token_hex(4)}", on_done=receiver.url("/done", Answer(hold=held))
        )
        worker = await story.worker(**_environment(receiver))
        report = await story.report(turn)
        await receiver.until("/done")
        await story.replace(worker, **_environment(receiver))
        held.set()
        memo = await delivered(story.client, turn)
        first, second = receiver.of("/done")

    assert memo == {"state": "delivered", "status": 204, "attempts": 2}
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.verified() == second.verified()
    assert second.verified()["data"]["output"] == report.output
    assert story.requests() == {1: 1}


@pytest.mark.slow
@pytest.mark.accepts("H86", "H133")
async def test_webhook_of_a_session_is_delivered_although_its_worker_is_killed(tell: Tell) -> None:
    """As that of a turn by itself: it comes again with the same id, and the session goes on."""
    held = threading.Event()
    with receiving() as receiver:
        story = await tell(says("one"), says("two"))
        worker = await story.worker(**_environment(receiver))
        session = story.client.session(
            f"hook-{secrets.token_hex(4)}",
            AGENT,
            on_done=receiver.url("/done", Answer(hold=held)),
        )
        first = await (await session.say("first")).turn()
        await story.report(first)
        await receiver.until("/done")
        await story.replace(worker, **_environment(receiver))
        second = await (await session.say("second")).turn()
        await second.result()
        held.set()
        memos = [await delivered(story.client, turn) for turn in (first, second)]

    assert [memo["attempts"] for memo in memos] == [2, 1]
    ids = {turn.id: set[str]() for turn in (first, second)}
    for hook in receiver.of("/done"):
        ids[hook.verified()["data"]["id"]].add(hook.headers["webhook-id"])
    assert [len(found) for found in ids.values()] == [1, 1]
    assert story.requests() == {1: 1, 2: 1}


@pytest.mark.slow
@pytest.mark.accepts("H250")
async def test_wait_is_told_once_although_its_worker_is_killed(tell: Tell) -> None:
    """The receiver has the message when the worker is killed, and has not answered yet: it comes
    again, with the same id. The turn waits meanwhile, and tells its end once as well.
    """
    held = threading.Event()
    with receiving() as receiver:
        story = await tell(asks(use("fetch", "one")), says("done"))
        story.app = "tests.support.e2e.app:make_pausing"
        worker = await story.worker(**_environment(receiver))
        turn = await story.start(
            id=f"hook-{secrets.token_hex(4)}",
            on_wait=receiver.url("/waits", Answer(hold=held)),
            on_done=receiver.url("/done"),
        )
        await receiver.until("/waits")
        await story.replace(worker, **_environment(receiver))
        held.set()
        await receiver.until("/waits", 2, GONE_S)
        await turn.add_budget(iterations=5)
        await story.report(turn)
        memo = await delivered(story.client, turn)
        first, second = receiver.of("/waits")

    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.verified() == second.verified()
    assert second.verified()["data"]["kind"] == "iterations"
    assert memo == {"state": "delivered", "status": 204, "attempts": 1}
    assert story.requests() == {1: 1, 2: 1}


@pytest.mark.slow
@pytest.mark.accepts("H86")
async def test_slow_receiver_is_given_up_and_asked_again(tell: Tell) -> None:
    """After 15 seconds, and 5 seconds later."""
    held = threading.Event()
    with receiving() as receiver:
        story = await tell(says("done"))
        await story.worker(**_environment(receiver))
        turn = await story.start(
            id=f"hook-{secrets.token_hex(4)}", on_done=receiver.url("/slow", Answer(hold=held))
        )
        await story.report(turn)
        await receiver.until("/slow", 2)
        held.set()
        memo = await delivered(story.client, turn)

    assert memo == {"state": "delivered", "status": 204, "attempts": 2}


@pytest.mark.slow
@pytest.mark.accepts("H58")
async def test_push_notification_comes_although_gateway_and_workers_are_killed(tell: Tell) -> None:
    """The gateway ends when the task has begun. One worker is killed while it runs a tool, and the
    next one while it sends the message.
    """
    held = threading.Event()
    with receiving() as receiver:
        story = await tell(asks(use("fetch", "slow", first_s=60)), says("done"))
        worker = await story.worker(**_environment(receiver))
        async with served(
            story.client, name="root", a2a_agents=[A2AAgent(AGENT, "Fetches.")]
        ) as http:
            agent, url = await agent_of(http, agent=AGENT), receiver.url("/push", Answer(hold=held))
            task = await begin(agent, "go", f"kill-{secrets.token_hex(4)}", url=url)
        await eventually(lambda: ("slow", 1) in story.ran(), "the tool runs")
        worker = await story.replace(worker, **_environment(receiver))
        await receiver.until("/push")
        await story.replace(worker, **_environment(receiver))
        held.set()
        states = await told(receiver, "/push", 2)
        first, second = receiver.of("/push")

    assert states == [(task.id, "TASK_STATE_COMPLETED")] * 2
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert story.requests() == {1: 1, 2: 1}
