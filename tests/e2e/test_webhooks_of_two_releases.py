"""Webhooks during a deploy: workers of the previous release and of this one share a task queue."""

from __future__ import annotations

import asyncio
import secrets
import threading
from pathlib import Path
from typing import Any

import pytest

from perdure import AgentReport
from perdure.clients import Turn
from perdure.values.approvals import PendingApproval

from ..conftest import check_history
from ..support.e2e.releases import PREVIOUS, THIS, Deploy, hands_in, previous_release
from ..support.e2e.stories import GONE_S, Story, Tell, asks, says, use
from ..support.e2e.two_releases_app import SELLER
from ..support.receiver import SECRET, Answer, Receiver, receiving
from ..support.webhooks import delivered, delivery

__all__ = ["previous_release"]

pytestmark = pytest.mark.slow

SALES = (asks(use("sell", "one")), asks(use("sell", "two")), says("sold"))
TURNS = 8


def deploy_of(story: Story, previous: Path, receiver: Receiver) -> Deploy:
    """Workers of both releases that send webhooks to a receiver."""
    hosts = f"private:127.0.0.1:{receiver.port}"
    return Deploy(story, previous, PERDURE_WEBHOOK_HOSTS=hosts, PERDURE_WEBHOOK_SECRETS=SECRET)


async def start(story: Story, **options: Any) -> Turn[str]:
    """Start a turn of the seller."""
    id = f"sale-{secrets.token_hex(4)}"
    return await story.client.start(SELLER, "go", id=id, **options)


async def waiting(turn: Turn[str]) -> PendingApproval:
    """The call that a turn waits for, once there is one; a worker may just have been killed."""
    async with asyncio.timeout(GONE_S):
        while not (found := await turn.pending_approvals()):  # noqa: ASYNC110 - history is polled
            await asyncio.sleep(0.1)
    return found[0]


async def approve(turn: Turn[str]) -> None:
    """Approve the call that a turn waits for."""
    await turn.approve(await waiting(turn))


async def sold(story: Story, turn: Turn[str]) -> AgentReport:
    """The report of a turn that completes; its history replays on this release."""
    async with asyncio.timeout(GONE_S):
        report = await turn.result()
    await check_history(story.temporal, turn.id, await turn.first_run())
    return report


def ids(receiver: Receiver, path: str, turn: Turn[str]) -> list[str]:
    """The ids of the messages about a turn, in the order of their requests."""
    return [
        hook.headers["webhook-id"]
        for hook in receiver.of(path)
        if hook.verified()["data"]["id"] == turn.id
    ]


@pytest.mark.accepts("H251")
async def test_end_of_each_turn_is_told_once_by_workers_of_two_releases(
    tell: Tell, previous_release: Path
) -> None:
    """Turns and deliveries go from one release to the other. One loses a worker while turns wait,
    and the other while messages are on their way.
    """
    held = threading.Event()
    story = await tell(*SALES)
    with receiving() as receiver:
        deploy = deploy_of(story, previous_release, receiver)
        await asyncio.gather(deploy.start(PREVIOUS), deploy.start(THIS))
        url = receiver.url("/done", *(Answer(hold=held) for _ in range(TURNS)))
        turns = [await start(story, on_done=url) for _ in range(TURNS)]
        await asyncio.gather(*map(approve, turns))
        await story.asked(2 * TURNS)
        await asyncio.gather(*map(waiting, turns))
        await deploy.replace(PREVIOUS)
        await asyncio.gather(*map(approve, turns))
        reports = await asyncio.gather(*(sold(story, turn) for turn in turns))
        await receiver.until("/done", TURNS, GONE_S)
        await deploy.replace(THIS)
        held.set()
        memos = [await delivered(story.client, turn) for turn in turns]
        histories = [await (await delivery(story.client, turn)).fetch_history() for turn in turns]
        told = [set(ids(receiver, "/done", turn)) for turn in turns]

    assert [report.output.partition(" #")[0] for report in reports] == ["sold"] * TURNS
    assert {memo["state"] for memo in memos} == {"delivered"}
    assert [len(found) for found in told] == [1] * TURNS
    assert any(hands_in(history.events).decided_by_both for history in histories)


@pytest.mark.accepts("H252")
async def test_waits_are_told_of_turns_that_this_release_has_begun(
    tell: Tell, previous_release: Path
) -> None:
    """The previous release did not know `on_wait`. A turn that it has begun goes on with this one,
    and tells its end alone; one that begins later tells each of its waits once.
    """
    story = await tell(*SALES)
    with receiving() as receiver:
        deploy = deploy_of(story, previous_release, receiver)
        urls = {"on_wait": receiver.url("/waits"), "on_done": receiver.url("/done")}
        await deploy.start(PREVIOUS)
        before = await start(story, **urls)
        await waiting(before)
        await deploy.stop(PREVIOUS)
        await deploy.start(THIS)
        after = await start(story, **urls)
        for _ in range(2):
            await asyncio.gather(approve(before), approve(after))
        reports = [await sold(story, turn) for turn in (before, after)]
        await receiver.until("/done", 2)
        [waits, ends] = [
            [ids(receiver, path, turn) for turn in (before, after)] for path in ("/waits", "/done")
        ]

    assert [report.output.partition(" #")[0] for report in reports] == ["sold"] * 2
    assert (waits[0], len(set(waits[1])), len(waits[1])) == ([], 2, 2)
    assert [len(told) for told in ends] == [1, 1]
