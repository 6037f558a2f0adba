"""Many sessions at once, with messages of all kinds, while their workers are killed.

`PERDURE_SESSIONS` and `PERDURE_SESSION_KILLS` say how many sessions and kills there are.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure import errors
from perdure.clients import Session
from perdure.testing.stub_provider import Reply, StubProvider

from ..conftest import eventually
from .app import AGENT
from .stories import Story, kill, use

SESSIONS = int(os.environ.get("PERDURE_SESSIONS", "6"))
KILLS = int(os.environ.get("PERDURE_SESSION_KILLS", "2"))
MESSAGES = 8
PATIENCE_S = 120 + 3 * SESSIONS + 60 * KILLS
POLICIES: Any = ["queue", "queue", "steer", "steer", "interrupt", "reject"]


class Chatterbox(StubProvider):
    """Answers a message, now and then after a tool call, and not always at once."""

    def __init__(self, seed: int) -> None:
        super().__init__([])
        self._luck = random.Random(seed)

    def reply(self, body: Mapping[str, Any]) -> Reply:
        """A reply by chance; words after a tool's result."""
        if body["messages"][-1]["role"] != "tool" and self._luck.random() < 0.4:
            return {"calls": [use("fetch", "it", first_s=0.2)]}
        return {"text": "ok", "delay_s": self._luck.choice([0, 0, 0.1, 0.5])}


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.accepts("Y52")
async def test_every_accepted_message_is_read_once(perdure_server: str, tmp_path: Path) -> None:
    """In the order of sending, but for those that were steered past the queue."""
    stub = Chatterbox(SESSIONS)
    async with Story(perdure_server, tmp_path, stub=stub) as story:
        workers = [await story.worker(), await story.worker()]
        sessions = [
            story.client.session(f"s-{number}-{tmp_path.name}", AGENT) for number in range(SESSIONS)
        ]
        async with asyncio.timeout(PATIENCE_S):
            talks = [
                asyncio.create_task(talk(session, random.Random(number)))
                for number, session in enumerate(sessions)
            ]
            for number in range(KILLS):
                await goes_on(stub)
                await kill(workers[number % 2])
                workers[number % 2] = await story.worker()
            sent = await asyncio.gather(*talks)

    for accepted, last in zip(sent, [last_request(stub, texts) for texts in sent], strict=True):
        read = [one["content"] for one in last if one["role"] == "user"]
        assert Counter(read) == Counter(accepted)
        queued = [text for text in accepted if "steer" not in text]
        assert [text for text in read if "steer" not in text] == queued


async def goes_on(stub: StubProvider) -> None:
    """Wait until the sessions have asked their model for a while."""
    asked = len(stub.requests)
    await eventually(
        lambda: len(stub.requests) >= asked + SESSIONS, "the sessions go on", within_s=PATIENCE_S
    )


async def talk(session: Session, luck: random.Random) -> list[str]:
    """Send messages of all kinds, some twice; returns those that were accepted, in order."""
    accepted: list[str] = []
    for number in range(MESSAGES):
        how = luck.choice(POLICIES)
        text = f"{session.id} message {number} {how}"
        await asyncio.sleep(luck.choice([0, 0.05, 0.3]))
        try:
            await said(session, text, how)
        except errors.SessionBusyError:
            assert how == "reject"
            continue
        accepted.append(text)
        if luck.random() < 0.3:
            await said(session, luck.choice(accepted), luck.choice(POLICIES[:5]))
    final = f"{session.id} the end"
    await said(session, final, "queue")
    accepted.append(final)
    turn = await session.turn_of(final)
    while True:
        try:
            await turn.result()
            return accepted
        except errors.TurnCancelledError:
            turn = await session.turn_of(final)


async def said(session: Session, text: str, how: Any) -> None:
    """Send a message until it is accepted: a worker may be away for longer than a call waits."""
    while True:
        try:
            await session.say(text, id=text, if_busy=how)
        except errors.ServerUnreachableError:
            continue
        return


def last_request(stub: StubProvider, accepted: list[str]) -> list[dict[str, Any]]:
    """The messages of the last request with the last message of a session."""
    return next(
        body["messages"]
        for body in reversed(stub.requests)
        if any(one["content"] == accepted[-1] for one in body["messages"])
    )
