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
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from perdure import Outcome, errors
from perdure.clients import Turn

from ..conftest import eventually
from ..support.e2e.app import AGENT
from ..support.e2e.command_line import Started
from ..support.e2e.gateways import serve, url_of
from ..support.e2e.outages import Outage
from ..support.e2e.stories import Process, Story
from ..support.storms.judging import (
    MESSAGE,
    check_histories,
    check_jobs,
    check_turn,
    facts_of,
    results,
)
from ..support.storms.scripts import KINDS, SEED, TWO, Call, Watcher, luck_of, script
from ..support.storms.senders import UnknownError, deliver
from ..support.storms.storm import Storm
from ..support.storms.waiting_app import Jobs

LANES = int(os.environ.get("PERDURE_WAITING_LANES", "6"))
KILLS = int(os.environ.get("PERDURE_WAITING_KILLS", "2"))
GATEWAYS = int(os.environ.get("PERDURE_WAITING_GATEWAYS", "1"))
OUTAGES = int(os.environ.get("PERDURE_WAITING_OUTAGES", "1"))
TURNS = 2
RUN_EVENTS = 60
"""The number of events of a run after which the server suggests a new one; by default 4,096."""
OUTAGE_S = 2.0
FAULTS = KILLS + GATEWAYS + OUTAGES
PATIENCE_S = 180 + 10 * LANES + 60 * FAULTS

T = TypeVar("T")


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
        story.app = "tests.support.storms.waiting_app:make"
        workers = [await story.worker(), await story.worker()]
        gateways = [await serve(processes, story, server.address, tmp_path) for _ in range(TWO)]
        storm = Storm(story, Jobs(tmp_path), [await url_of(one, PATIENCE_S) for one in gateways])
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
                gateways.append(await serve(processes, storm.story, server.address, folder))
                storm.urls[:] = [storm.urls[1], await url_of(gateways[-1], PATIENCE_S)]
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
