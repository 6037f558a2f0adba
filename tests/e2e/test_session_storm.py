"""Many sessions at once, with messages of all kinds, while workers and the Temporal server are
killed, and sessions go on in new runs of their workflows.

`PERDURE_SESSIONS` is the number of sessions, `PERDURE_SESSION_KILLS` and `PERDURE_SESSION_OUTAGES`
those of kills of a worker and of the server, and `PERDURE_SESSION_SEED` the seed.
"""

import asyncio
import base64
import itertools
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from perdure import Media, Text, errors
from perdure.clients import Session
from perdure.temporal.histories.runs import describe, runs_up_to
from perdure.testing.stub_provider import StubProvider, StubReply
from perdure.values.messages import UserMessage
from perdure.workflows.session.agent_session import AgentSession
from perdure.workflows.single_input import OneInput

from ..conftest import assert_no_task_failed, eventually
from ..support.e2e.app import AGENT
from ..support.e2e.outages import Outage
from ..support.e2e.stories import Story, use
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor

__all__ = ["has_supervisor"]

SESSIONS = int(os.environ.get("PERDURE_SESSIONS", "10"))
KILLS = int(os.environ.get("PERDURE_SESSION_KILLS", "2"))
OUTAGES = int(os.environ.get("PERDURE_SESSION_OUTAGES", "1"))
SEED = os.environ.get("PERDURE_SESSION_SEED", "0")
MESSAGES, SLOW_S = 8, 3.0
RUN_EVENTS = 40
"""The number of events of a run after which the server suggests a new one; by default 4,096."""
BETWEEN = max(1, SESSIONS * MESSAGES // (4 * (KILLS + OUTAGES)))
"""The number of requests to the provider between two kills."""
OUTAGE_S = 2.0
PATIENCE_S = 120 + 3 * SESSIONS + 60 * (KILLS + OUTAGES)
POLICIES: Any = ["queue", "queue", "steer", "steer", "interrupt", "reject"]

T = TypeVar("T")


class Chatterbox(StubProvider):
    """Answers a message, now and then after a tool call, and not always at once."""

    def __init__(self, seed: str) -> None:
        super().__init__([])
        self._luck = random.Random(seed)

    def reply(self, body: Mapping[str, Any]) -> StubReply:
        """A reply by chance; words after a tool's result."""
        if body["messages"][-1]["role"] != "tool" and self._luck.random() < 0.4:
            return {"calls": [use("fetch", "it", first_s=0.2)]}
        return {"text": "ok", "delay_s": self._luck.choice([0, 0, 0.1, 0.5])}


@dataclass
class Talk:
    """What was sent to a session, and what it did with it.

    Attributes:
        ends_early: Whether it is closed while messages wait.
        accepted: The messages that it accepted, in order.
        recorded: Those that are in its conversation at the end.
        interrupted: Those of turns that were cancelled.
        unread: Those that no turn had read when it was closed.
        dispositions: How often it did what.
    """

    session: Session
    luck: random.Random
    ends_early: bool
    accepted: list[str] = field(default_factory=list)
    recorded: list[str] = field(default_factory=list)
    interrupted: set[str] = field(default_factory=set)
    unread: list[str] = field(default_factory=list)
    dispositions: Counter[str] = field(default_factory=Counter)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Outage]:
    """A server with a database file that suggests new runs soon."""
    soon = f"--dynamic-config-value=limit.historyCount.suggestContinueAsNew={RUN_EVENTS}"
    outage = Outage(tmp_path / "state", extra_args=[soon])
    try:
        await outage.begin()
        yield outage
    finally:
        await outage.end()


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.accepts("Y52", "E115", "E116")
async def test_every_accepted_message_is_read_once(
    server: Outage, tmp_path: Path, has_supervisor: bool
) -> None:
    """In the order of sending, but for those that were steered past the queue; or it is listed as
    unread when the session is closed.
    """
    print(f"PERDURE_SESSION_SEED={SEED}")
    stub = Chatterbox(SEED)
    async with Story(server.address, tmp_path, stub=stub, supervised=has_supervisor) as story:
        workers = [await story.worker(), await story.worker()]
        talks = [
            Talk(story.client.session(f"s-{number}", AGENT), luck_of(number), number % 3 == 0)
            for number in range(SESSIONS)
        ]
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            is_wrecked = asyncio.Event()
            for one in talks:
                group.create_task(talk(one, is_wrecked))
            await wreck(story, server, workers)
            is_wrecked.set()
        histories = [await histories_of(story.temporal, one.session.id) for one in talks]

    for one in talks:
        check_messages(one, stub.requests)
    await check_runs(histories)
    done = sum((one.dispositions for one in talks), Counter[str]())
    assert done.keys() == {"started", "queued", "steered", "interrupting", "rejected", "unread"}


def luck_of(what: object) -> random.Random:
    """The choices of one part of the test."""
    return random.Random(f"{SEED} {what}")


async def wreck(story: Story, server: Outage, workers: list[Any]) -> None:
    """Kill workers and the server, in a random order, each after some requests."""
    luck = luck_of("kills")
    for what in luck.sample(["worker", "server"], KILLS + OUTAGES, counts=[KILLS, OUTAGES]):
        asked = len(story.stub.requests)
        await eventually(
            lambda asked=asked: len(story.stub.requests) >= asked + BETWEEN,  # type: ignore[misc]
            "the sessions go on",
            within_s=PATIENCE_S,
        )
        if what == "server":
            await server.happen(OUTAGE_S)
        else:
            workers.append(await story.replace(workers.pop(0)))


async def talk(one: Talk, is_wrecked: asyncio.Event) -> None:
    """Send messages of all kinds, some twice, and close the session, some while messages wait.

    As long as something is to be killed, it goes on, slowly.
    """
    for number in itertools.count():
        if number >= MESSAGES and is_wrecked.is_set():
            break
        how = one.luck.choice(POLICIES)
        pause_s = one.luck.choice([0, 0.05, 0.3]) if number < MESSAGES else SLOW_S
        await asyncio.sleep(pause_s)  # the pace of the sender
        await send(one, f"{one.session.id} message {number} {how}", how)
    for end in ["almost the end", "too late"] if one.ends_early else ["the end"]:
        await send(one, f"{one.session.id} {end}", "queue")
    if not one.ends_early:
        await until_answered(one.session, one.accepted[-1])
    with suppress(errors.SessionClosedError):  # an earlier attempt has closed it
        await patiently(one.session.close)
    async for _ in one.session.events():
        pass
    messages, turns = await patiently(one.session.messages), await patiently(one.session.turns)
    one.recorded = [text_of(message) for message in messages if isinstance(message, UserMessage)]
    one.interrupted = {
        message for turn in turns if turn.outcome == "cancelled" for message in turn.messages
    }
    queue = (await patiently(one.session.status)).queue
    one.unread = [queued.text.partition(" [image/png, ")[0] for queued in queue]
    one.dispositions["unread"] += len(one.unread)


async def send(one: Talk, text: str, how: Any) -> None:
    """Send a message, now and then twice at the same time, and perhaps an earlier one again."""
    told = await asyncio.gather(
        *(said(one, text, how) for _ in range(one.luck.choice([1, 1, 1, 2])))
    )
    accepted = [disposition for disposition in told if disposition != "rejected"]
    if accepted:
        assert len(set(accepted)) == 1
        one.accepted.append(text)
    one.dispositions[accepted[0] if accepted else "rejected"] += 1
    if one.accepted and one.luck.random() < 0.3:
        await said(one, one.luck.choice(one.accepted), one.luck.choice(POLICIES))


async def said(one: Talk, text: str, how: Any) -> str:
    """Send a message, every other one with an image, and return what the session does with it."""
    try:
        sent = await patiently(lambda: one.session.say(content_of(text), id=text, if_busy=how))
    except errors.SessionBusyError:
        assert how == "reject"
        assert text not in one.accepted
        return "rejected"
    return str(sent.disposition)


async def until_answered(session: Session, text: str) -> None:
    """Wait for the end of the turn that answers a message. One that is cancelled does not."""
    while True:
        turn = await patiently(lambda: session.turn_of(text))
        try:
            await turn.result()
            return
        except errors.TurnCancelledError:
            continue


async def patiently(does: Callable[[], Awaitable[T]]) -> T:
    """Do something until a server and a worker are there for it."""
    while True:
        try:
            return await does()
        except errors.ServerUnreachableError:
            await asyncio.sleep(0.1)  # before the next attempt


def check_messages(one: Talk, requests: list[dict[str, Any]]) -> None:
    """Each accepted message was sent to the provider once, in order, or is unread. One whose turn
    was interrupted before it called its model is sent by the next turn, if there is one.
    """
    sent = [texts for body in requests if set(texts := said_in(body)) & set(one.accepted)]
    read = [text for text in (sent[-1] if sent else []) if text not in one.unread]

    assert Counter(one.recorded + one.unread) == Counter(one.accepted)
    assert all(len(set(texts)) == len(texts) for texts in sent)
    assert all(set(texts) <= set(one.accepted) for texts in sent)
    assert one.recorded[: len(read)] == read
    assert set(one.recorded[len(read) :]) <= one.interrupted
    for texts in (one.recorded, one.unread):
        queued = [text for text in texts if "steer" not in text]
        assert queued == [text for text in one.accepted if text in queued]


def content_of(text: str) -> str | tuple[Text, Media]:
    """The content of a message: of every other one, its text with an image that is its own."""
    if len(text) % 2:
        return text
    return Text(text=text), Media(media_type="image/png", data=image_of(text))


def image_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def text_of(message: UserMessage) -> str:
    """The text of a message, whose image, if it has one, is its own."""
    assert message.parts == UserMessage.of("", parts=parts_of(message.text)).parts
    return message.text


def parts_of(text: str) -> tuple[Text | Media, ...]:
    content = content_of(text)
    return (Text(text=content),) if isinstance(content, str) else content


def said_in(body: dict[str, Any]) -> list[str]:
    """The messages of the user in a request. Each has its image."""
    contents = [message["content"] for message in body["messages"] if message["role"] == "user"]
    return [said_with_image(content) for content in contents]


def said_with_image(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        assert isinstance(content_of(content), str)
        return content
    text, image = content
    assert image["image_url"]["url"] == f"data:image/png;base64,{image_of(text['text'])}"
    return str(text["text"])


async def histories_of(client: Client, session_id: str) -> list[WorkflowHistory]:
    """The histories of all runs of a session."""
    runs = await runs_up_to(client, await describe(client, session_id))
    return [
        await client.get_workflow_handle(session_id, run_id=run).fetch_history() for run in runs
    ]


async def check_runs(histories: list[list[WorkflowHistory]]) -> None:
    """The sessions went on in new runs, no workflow task failed, and each run replays."""
    replayer = Replayer(workflows=[AgentSession], interceptors=[OneInput()])
    assert sum(len(runs) > 1 for runs in histories) > len(histories) / 2
    for history in (one for runs in histories for one in runs):
        assert_no_task_failed(history)
        await replayer.replay_workflow(history)
