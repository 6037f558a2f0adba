"""Turns and sessions that wait for times, events, people and jobs, while workers, gateways and the
Temporal server are killed.

`PERDURE_WAITING_LANES` is the number of sessions and of sequences of turns;
`PERDURE_WAITING_KILLS`, `PERDURE_WAITING_GATEWAYS` and `PERDURE_WAITING_OUTAGES` those of kills of
a worker, of a gateway and of the server; and `PERDURE_WAITING_SEED` the seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from temporalio.worker import Replayer

from perdure import Outcome, errors
from perdure.clients import Turn
from perdure.events import CallFinished, Decided, Emitted, ToolLost
from perdure.temporal.histories.runs import describe, runs_up_to
from perdure.testing.stub_provider import StubCall, StubProvider, StubReply
from perdure.workflows import WORKFLOWS
from perdure.workflows.single_input import OneInput

from ..conftest import assert_no_task_failed, check_history, eventually
from ..support.e2e.app import AGENT
from ..support.e2e.command_line import CommandLine, Started
from ..support.e2e.outages import Outage
from ..support.e2e.senders import (
    TOKEN,
    ByClient,
    ByGateway,
    Kind,
    Sending,
    UnknownError,
    Way,
    deliver,
)
from ..support.e2e.stories import UNKNOWN, Process, Story
from ..support.e2e.waiting_app import Jobs
from ..support.losses import timeless

LANES = int(os.environ.get("PERDURE_WAITING_LANES", "6"))
KILLS = int(os.environ.get("PERDURE_WAITING_KILLS", "2"))
GATEWAYS = int(os.environ.get("PERDURE_WAITING_GATEWAYS", "1"))
OUTAGES = int(os.environ.get("PERDURE_WAITING_OUTAGES", "1"))
SEED = os.environ.get("PERDURE_WAITING_SEED", "0")
TURNS = 2
RUN_EVENTS = 60
"""The number of events of a run after which the server suggests a new one; by default 4,096."""
OUTAGE_S = 2.0
FAULTS = KILLS + GATEWAYS + OUTAGES
PATIENCE_S = 180 + 10 * LANES + 60 * FAULTS
KINDS = ("time", "event", "twins", "question", "deploy", "order", "build")
MESSAGE = "psst"
WOKEN = "the user has sent a message"
TWO = 2

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """A call of the script: its kind, and its name, which no other call has."""

    kind: str
    what: str

    @property
    def requested(self) -> StubCall:
        """The call as the model makes it."""
        match self.kind:
            case "time":
                return {"name": "wait", "arguments": {"seconds": 1, "note": self.what}}
            case "event" | "twins":
                return {"name": "wait_for", "arguments": {"event": self.what, "note": self.what}}
            case "question":
                return {"name": "ask", "arguments": {"question": self.what}}
            case _:
                return {"name": self.kind, "arguments": {"what": self.what}}


def luck_of(*what: object) -> random.Random:
    """The choices of one part of the test."""
    return random.Random(" ".join(map(str, (SEED, *what))))


def script(task: str) -> list[list[Call]]:
    """The calls of a turn, by step. Twins are two calls that wait for the same event."""
    luck = luck_of("script", task)
    steps = []
    for step in range(luck.randint(2, 4)):
        calls: list[Call] = []
        for number in range(luck.randint(1, 3)):
            call = Call(luck.choice(KINDS), f"{task}.{step}.{number}")
            calls += [call] * (TWO if call.kind == "twins" else 1)
        steps.append(calls)
    return steps


class Watcher(StubProvider):
    """Makes the calls of the script of each task."""

    def __init__(self) -> None:
        super().__init__([])

    def reply(self, body: Mapping[str, Any]) -> StubReply:
        """The calls of the next step; a text after the last one."""
        task, since = list(parts(body))[-1]
        done = sum(message["role"] == "assistant" for message in since)
        steps = script(task)
        if done < len(steps):
            return {"calls": [call.requested for call in steps[done]]}
        return {"text": f"{task} is done"}


def parts(body: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each task in a request, with the messages after it."""
    task, since = "", list[dict[str, Any]]()
    for message in body["messages"]:
        if message["role"] == "user" and message["content"].startswith("go "):
            if task:
                yield task, since
            task, since = message["content"].removeprefix("go "), []
        else:
            since.append(message)
    yield task, since


@dataclass
class Storm:
    """What is killed, and what is recorded outside of it.

    Attributes:
        urls: The addresses of the gateways that run now.
        sendings: All that was sent.
        turns: The turns by their tasks.
        polled: The results of jobs that were looked up, by the names of the calls.
        answered: The questions that somebody has answered, by the names of the calls.
        over: The tasks whose turns are over.
    """

    story: Story
    jobs: Jobs
    urls: list[str]
    sendings: list[Sending] = field(default_factory=list)
    turns: dict[str, Turn] = field(default_factory=dict)
    polled: dict[str, str] = field(default_factory=dict)
    is_wrecked: asyncio.Event = field(default_factory=asyncio.Event)
    answered: set[str] = field(default_factory=set)
    over: set[str] = field(default_factory=set)

    @property
    def records(self) -> int:
        """How much has happened so far."""
        sent = sum(len(sending.ends) for sending in self.sendings)
        return len(self.story.stub.requests) + len(self.jobs.asked()) + sent

    def way(self, luck: random.Random) -> Way:
        """How somebody sends."""
        if luck.random() < 0.5:
            return ByClient(self.story.client)
        return ByGateway(self.urls, luck)

    def sending(self, kind: Kind, task: str, call: Call, content: str, id: str = "") -> Sending:
        """The record of what somebody is going to send."""
        made = Sending(kind, self.turns[task].id, call.what, content, id)
        self.sendings.append(made)
        return made


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
@pytest.mark.accepts("W60", "W61", "W62")
async def test_what_turns_wait_for_takes_effect_once_in_a_storm_of_kills(
    server: Outage, tmp_path: Path
) -> None:
    """Each event, answer and result that was acknowledged is what the model reads, once; what was
    refused is recorded nowhere, and each job is begun once.
    """
    print(f"PERDURE_WAITING_SEED={SEED}")
    async with (
        Story(server.address, tmp_path, stub=Watcher(), supervised=True) as story,
        contextlib.AsyncExitStack() as processes,
    ):
        story.app = "tests.support.e2e.waiting_app:make"
        workers = [await story.worker(), await story.worker()]
        gateways = [await serve(processes, story, server, tmp_path) for _ in range(TWO)]
        storm = Storm(story, Jobs(tmp_path), [await url_of(one) for one in gateways])
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for number in range(LANES):
                lane = in_session if number % 2 else one_by_one
                group.create_task(lane(storm, number))
            await wreck(storm, server, workers, gateways, processes, tmp_path)
            storm.is_wrecked.set()
        facts = {task: await facts_of(turn) for task, turn in storm.turns.items()}
        await check_histories(storm)
        reports = {task: await turn.result() for task, turn in storm.turns.items()}

    assert {report.outcome for report in reports.values()} == {Outcome.COMPLETED}
    told = results(story.stub.requests)
    ends = Counter[str]()
    for task in storm.turns:
        ends += check_turn(task, storm, told[task], facts[task])
    check_jobs(storm)
    print(dict(ends), Counter(end[:12] for one in storm.sendings for end in one.ends))
    assert ends.keys() >= set(KINDS)


async def serve(
    processes: contextlib.AsyncExitStack, story: Story, server: Outage, folder: Path
) -> Started:
    """Start a gateway."""
    here = CommandLine(folder)
    here.environment["PERDURE_TOKEN"] = TOKEN
    queue = ("--task-queue", story.client.task_queue)
    command = ("serve", "--address", server.address, "--port", "0", *queue)
    return processes.enter_context(here.started(*command))


async def url_of(started: Started) -> str:
    """The address that a gateway has printed."""
    return (await asyncio.to_thread(started.wait_for, r"(http://\S+); Ctrl-C"))[1]


async def wreck(
    storm: Storm,
    server: Outage,
    workers: list[Process],
    gateways: list[Started],
    processes: contextlib.AsyncExitStack,
    folder: Path,
) -> None:
    """Kill workers, gateways and the server, in a random order, each after some records."""
    luck = luck_of("kills")
    counts = [KILLS, GATEWAYS, OUTAGES]
    for what in luck.sample(["worker", "gateway", "server"], FAULTS, counts=counts):
        after = storm.records + luck.randint(LANES, 4 * LANES)
        await eventually(
            lambda after=after: storm.records >= after,  # type: ignore[misc]
            "the turns go on",
            within_s=PATIENCE_S,
        )
        match what:
            case "worker":
                workers.append(await storm.story.replace(workers.pop(0)))
            case "gateway":
                gateways.pop(0).process.kill()
                gateways.append(await serve(processes, storm.story, server, folder))
                storm.urls[:] = [storm.urls[1], await url_of(gateways[-1])]
            case _:
                await server.happen(OUTAGE_S)


async def one_by_one(storm: Storm, lane: int) -> None:
    """Turns that begin one after the other, as long as something is to be killed."""
    for number in itertools.count():
        if number >= TURNS and storm.is_wrecked.is_set():
            return
        task = f"turn-{lane}-{number}"
        turn = await patiently(
            lambda task=task: storm.story.start(f"go {task}", id=task)  # type: ignore[misc]
        )
        await drive(storm, task, turn)


async def in_session(storm: Storm, lane: int) -> None:
    """Messages of a session, two at a time; in every other one, a message ends waits early."""
    session = storm.story.client.session(f"session-{lane}", AGENT)
    for number in itertools.count(step=TWO):
        if number >= TURNS and storm.is_wrecked.is_set():
            return
        tasks = [f"{session.id}-{number + place}" for place in range(TWO)]
        for task in tasks:
            await patiently(
                lambda task=task: session.say(f"go {task}", id=task)  # type: ignore[misc]
            )
        for task in tasks:
            turn = await patiently(
                lambda task=task: session.turn_of(task)  # type: ignore[misc]
            )
            async with asyncio.TaskGroup() as group:
                group.create_task(drive(storm, task, turn))
                if lane % 4 == 1:
                    await asyncio.sleep(luck_of("psst", task).uniform(0, 3))  # a random moment
                    with contextlib.suppress(errors.TurnOverError):
                        await patiently(
                            lambda task=task, turn=turn: turn.steer(  # type: ignore[misc]
                                MESSAGE, id=f"{MESSAGE} {task}"
                            )
                        )


async def drive(storm: Storm, task: str, turn: Turn) -> None:
    """Send a turn all that it waits for, and wait for its end."""
    storm.turns[task] = turn
    async with asyncio.TaskGroup() as group:
        waits = [call for step in script(task) for call in dict.fromkeys(step)]
        for call in waits:
            group.create_task(serve_call(storm, task, call))
        await patiently(turn.result)
        storm.over.add(task)


async def serve_call(storm: Storm, task: str, call: Call) -> None:
    """Send a call what it waits for, once or twice, from one sender or two at once."""
    luck = luck_of("send", call.what)
    match call.kind:
        case "event":
            await send_event(storm, task, call, luck)
        case "twins":
            await asyncio.gather(*(send_event(storm, task, call, luck, n) for n in "ab"))
        case "question":
            people = "ab"[: luck.randint(1, TWO)]
            await asyncio.gather(*(answer(storm, task, call, who) for who in people))
        case "deploy" | "order":
            await send_result(storm, task, call, luck)
        case "build":
            await has_begun(storm, task, call)
            await asyncio.sleep(luck.uniform(0, 1))  # the job takes its time
            storm.polled[call.what] = f"{call.what} is built"
            storm.jobs.done(call.what, storm.polled[call.what])


async def send_event(
    storm: Storm, task: str, call: Call, luck: random.Random, number: str = ""
) -> None:
    """Send an event, perhaps before the call waits; some with one id and two contents."""
    turn_id, id = storm.turns[task].id, f"{call.what}{number}"
    await asyncio.sleep(luck.uniform(0, 3))  # a random moment

    async def send(who: str) -> None:
        body, way = f"{id} by {who}", storm.way(luck)
        sending = storm.sending("event", task, call, body, id)
        await deliver(sending, lambda: way.emit(turn_id, call.what, id, body))

    await asyncio.gather(*map(send, luck.choice(["a", "aa", "ab"])))


async def answer(storm: Storm, task: str, call: Call, who: str) -> None:
    """Look until the question is asked, and answer it."""
    luck, turn_id = luck_of("answer", call.what, who), storm.turns[task].id
    way, said = storm.way(luck), f"{call.what} by {who}"
    while call.what not in storm.answered and task not in storm.over:
        await asyncio.sleep(luck.uniform(0.1, 0.4))  # a person looks now and then
        asked = await patiently(lambda: way.question(turn_id, call.what))
        if asked is None:
            continue
        await asyncio.sleep(luck.uniform(0, 0.5))  # and thinks
        sending = storm.sending("answer", task, call, said)
        await deliver(sending, partial(way.answer, turn_id, asked, said))
        storm.answered.add(call.what)


async def send_result(storm: Storm, task: str, call: Call, luck: random.Random) -> None:
    """Send the result of a job, soon after it has begun or later."""
    token = await has_begun(storm, task, call)
    if token is None:
        return
    await asyncio.sleep(luck.choice([0, 0.1, 1, 2]))  # the job takes its time

    async def send(who: str) -> None:
        result, way = f"{call.what} by {who}", storm.way(luck)
        sending = storm.sending("result", task, call, result)
        await deliver(sending, lambda: way.finish(token, result))

    await asyncio.gather(*map(send, luck.choice(["a", "aa", "ab"])))


async def has_begun(storm: Storm, task: str, call: Call) -> str | None:
    """Wait until the service was asked to begin a job, and return its token.

    None if it never was: the worker was killed before.
    """
    token: str | None = None

    def is_known() -> bool:
        nonlocal token
        asked = (line.token for line in storm.jobs.asked() if line.what == call.what)
        token = next(asked, None)
        return token is not None or task in storm.over

    await eventually(is_known, f"{call} begins", within_s=PATIENCE_S)
    return token


async def patiently(does: Callable[[], Awaitable[T]]) -> T:
    """Do something until a server and a worker are there for it."""
    while True:
        try:
            return await does()
        except (errors.ServerUnreachableError, UnknownError):
            await asyncio.sleep(0.1)  # before the next attempt


def results(requests: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """The result of each call as the model read it, by task and id: the same in each request."""
    told: dict[str, dict[str, str]] = defaultdict(dict)
    for body in requests:
        for task, since in parts(body):
            for message in since:
                if message["role"] == "tool":
                    content = told[task].setdefault(message["tool_call_id"], message["content"])
                    assert content == message["content"], f"{task}: two results of one call"
    return told


async def facts_of(turn: Turn) -> list[Any]:
    """The facts of all runs of a turn."""
    return [event.fact async for event in turn.events()]


@dataclass
class Recorded:
    """What the history of a turn has of what was sent: contents by the id of an event, or by the
    name of a call.
    """

    events: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    results: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @staticmethod
    def of(task: str, told: Mapping[str, str], facts: list[Any]) -> Recorded:
        """What the facts of a turn say. `told` has the ids of its calls in order."""
        recorded, steps = Recorded(), script(task)
        names = dict(zip(told, (call.what for step in steps for call in step), strict=True))
        for fact in facts:
            match fact:
                case Emitted(event):
                    recorded.events[event.id].append(json.loads(event.body))
                case Decided(decision):
                    assert decision.answer is not None
                    answer = json.loads(decision.answer)
                    recorded.answers[names[decision.call_id]].append(answer)
                case CallFinished(key, output):
                    call = steps[key.step - 1][key.call - 1]
                    recorded.results[call.what].append(output.content)
        return recorded


def check_turn(task: str, storm: Storm, told: Mapping[str, str], facts: list[Any]) -> Counter[str]:
    """The model has read one result of each call: what its call waited for."""
    recorded, ends, given = Recorded.of(task, told, facts), Counter[str](), list[str]()
    lost = {(fact.key.step, fact.key.call) for fact in facts if isinstance(fact, ToolLost)}
    calls = [
        (call, (step, place))
        for step, made in enumerate(script(task), 1)
        for place, call in enumerate(made, 1)
    ]
    for (call, place), content in zip(calls, told.values(), strict=True):
        ends[call.kind] += 1
        sent = {one.content for one in storm.sendings if one.what == call.what}
        match call.kind:
            case "time":
                assert content.startswith("Waited "), content
            case "event" | "twins":
                if WOKEN in content:
                    assert any(getattr(fact, "text", "") == MESSAGE for fact in facts)
                    ends["woken"] += 1
                    continue
                [body] = [body for body in sent if body in content]
                given.append(body.rpartition(" by ")[0])
                assert recorded.events[given[-1]] == [body]
            case "question":
                assert recorded.answers[call.what] == [content]
            case "build":
                assert content == storm.polled[call.what]
            case "order" if timeless(content).endswith(UNKNOWN):
                assert place in lost
                assert not recorded.results[call.what]
                ends["unknown"] += 1
            case _:
                assert recorded.results[call.what] == [content]
    assert len(set(given)) == len(given), f"{task}: an event was given twice: {given}"
    check_sendings(task, storm, recorded)
    return ends


def check_sendings(task: str, storm: Storm, recorded: Recorded) -> None:
    """What was acknowledged is recorded once, and what was refused is not recorded."""
    sendings = [one for one in storm.sendings if one.turn_id == storm.turns[task].id]
    assert all(one.ends for one in sendings)
    groups: dict[tuple[str, str, str, str], list[Sending]] = defaultdict(list)
    for one in sendings:
        groups[one.kind, one.what, one.id, one.content].append(one)
    for (kind, what, id, content), same in groups.items():
        match kind:
            case "event":
                contents, is_one_event = recorded.events[id], True
            case "answer":
                contents, is_one_event = recorded.answers[what], False
            case _:
                contents, is_one_event = recorded.results[what], False
        assert len(contents) <= 1, f"{what}: {contents}"
        if any(one.is_acknowledged for one in same):
            # of two events with one id, the first counts
            assert contents == [content] or (is_one_event and contents), f"{same}: {contents}"
        elif all(one.is_refused for one in same):
            assert content not in contents, f"{same}: {contents}"


def check_jobs(storm: Storm) -> None:
    """Each job is begun once for its key, and one that may not run again is asked for once."""
    keys, tokens = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for line in storm.jobs.asked():
        keys[line.what].add(line.key)
        tokens[line.what].add(line.token)
    orders = {call.what for call in all_calls(storm) if call.kind == "order"}
    asked = Counter(line.what for line in storm.jobs.asked() if line.what in orders)
    assert all(len(found) == 1 for found in (*keys.values(), *tokens.values()))
    assert len(set().union(*keys.values())) == len(keys)
    assert not asked or max(asked.values()) == 1


def all_calls(storm: Storm) -> Iterator[Call]:
    """The calls of all turns."""
    return (call for task in storm.turns for step in script(task) for call in step)


async def check_histories(storm: Storm) -> None:
    """No workflow task failed, readers agree with the turns, and each run replays."""
    client, replayer = (
        storm.story.temporal,
        Replayer(workflows=WORKFLOWS, interceptors=[OneInput()]),
    )
    sessions = {turn.id.partition("/")[0] for turn in storm.turns.values() if "/" in turn.id}
    for turn in storm.turns.values():
        await check_history(client, turn.id, await turn.first_run())
    for id in (*sessions, *(turn.id for turn in storm.turns.values())):
        for run in await runs_up_to(client, await describe(client, id)):
            history = await client.get_workflow_handle(id, run_id=run).fetch_history()
            assert_no_task_failed(history)
            await replayer.replay_workflow(history)
