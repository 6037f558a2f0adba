"""Workers that are killed with `kill -9` while turns wait for events by key and are told of one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.turn.facts import WaitBegan

from ..support.e2e.stories import Tell, asks, kill, results, says
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor
from ..support.keyed_events import key_of_test
from ..support.spending import until

__all__ = ["has_supervisor"]

WAITING = "tests.support.e2e.app:make_waiting"


def wait_for(key: str) -> Any:
    """A call that waits for an event by key."""
    return {"name": "wait_for", "arguments": {"event": "built", "key": key, "note": "the build"}}


@pytest.mark.slow
@pytest.mark.accepts("W49")
async def test_event_by_key_comes_after_the_worker_was_killed(tell: Tell) -> None:
    """Killed between the registration and the event: another worker takes it in, and the turn gets
    it once.
    """
    key = key_of_test()
    story = await tell(asks(wait_for(key)), says("done"))
    story.app = WAITING
    worker = await story.worker()
    turn = await story.start()
    await until(turn, WaitBegan)
    await kill(worker)
    sending = asyncio.create_task(story.client.emit("built", key=key, body=1, id="e-1"))
    await story.following(worker)
    await sending
    report = await story.report(turn)

    assert results(report) == [results(report)[0]]
    assert results(report)[0].endswith("It holds:\n1")
    assert story.requests() == {1: 1, 2: 1}


@pytest.mark.slow
@pytest.mark.accepts("W49")
async def test_each_event_comes_once_while_workers_are_killed(tell: Tell) -> None:
    """Killed as turns are registered and told, again and again: every turn gets every event, in
    their order.
    """
    key, events = key_of_test(), 6
    story = await tell(*[asks(wait_for(key))] * events, says("done"))
    story.app = WAITING
    worker = await story.worker()
    turn = await story.start()
    for number in range(events):
        await until(turn, WaitBegan, number + 1)
        sending = asyncio.create_task(
            story.client.emit("built", key=key, body=number, id=f"e-{number}")
        )
        await asyncio.sleep(number * 0.03)
        worker = await story.replace(worker)
        await sending
        await story.client.emit("built", key=key, body=number, id=f"e-{number}")
    report = await story.report(turn)

    assert [result[-1] for result in results(report)] == [str(number) for number in range(events)]
