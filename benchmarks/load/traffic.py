"""Turns and sessions that are kept open: as one turn ends, another one begins."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.load.app import Job
from benchmarks.load.cluster import Cluster, Memory, Used, cluster
from benchmarks.load.judging import Ended, Line, read_lines
from perdure.clients import AgentClient, Sent, Session, Turn
from perdure.errors import PerdureError

AGENT = "load"
SHORTEST_RAMP_S = 5.0
EACH_FOLLOWED = 10
"""One place in so many is followed, event by event."""
SAMPLES = 20
WARM = Job(steps=2, tools=1, seconds=0)
WARM_TURNS = 4
PATIENCE_S = 60.0
AFTER_AN_ERROR_S = 1.0


@dataclass(frozen=True)
class Load:
    """What is run.

    Attributes:
        turns: Turns that are open at once.
        sessions: Sessions that are sent a message as soon as the last one is answered.
        seconds: For how long it is measured, after all have begun.
        kills: Worker processes that are killed in this time.
    """

    workers: int = 2
    turns: int = 100
    sessions: int = 0
    seconds: float = 60
    kills: int = 0
    job: Job = field(default=Job(steps=4, tools=1, seconds=0.5))

    @property
    def ramp_s(self) -> float:
        """The time over which the turns begin: that of one turn, so that they end apart too."""
        return max(SHORTEST_RAMP_S, self.job.steps * self.job.seconds)


@dataclass(frozen=True)
class Histories:
    """Means of some turns, and of all sessions.

    Attributes:
        events, bytes: Of a turn of its own.
        message_events, message_bytes: Of a message: of its turn, and of its session by message.
    """

    events: float
    bytes: float
    message_events: float
    message_bytes: float


@dataclass(frozen=True)
class Run:
    """What was seen of a load.

    Attributes:
        turns: All turns that were accepted, in the order of their ends.
        errors: Why starts and turns failed, and how often.
        late: When events arrived, in seconds since 1970, and how many milliseconds after their
            record in history.
        lost_tasks: Workflow tasks that the server gave out and did not send.
        began, window: When the measured time began, and what was used in it.
        total: What was used from the first turn to the end of the last one, and the actions.
    """

    load: Load
    turns: list[Ended]
    errors: Counter[str]
    late: list[tuple[float, float]]
    lines: list[Line]
    began: float
    window: Used
    total: Used
    actions: Counter[str]
    memory: Memory
    histories: Histories
    kills: int
    lost_tasks: int


class Traffic:
    """The places of a load, each with an open turn or with a session."""

    def __init__(self, client: AgentClient, load: Load) -> None:
        self.ended: list[Ended] = []
        self.late: list[tuple[float, float]] = []
        self.errors: Counter[str] = Counter()
        self.is_over = False
        self._client = client
        self._load = load
        self._places = load.turns + load.sessions

    async def run(self) -> None:
        """Keep all places open until it is over, and until their last turns have ended."""
        chats = [self._client.session(f"chat-{n}", AGENT) for n in range(self._load.sessions)]
        owners: list[Session[str] | None] = [*chats, *[None] * self._load.turns]
        await asyncio.gather(*(self._place(place, owner) for place, owner in enumerate(owners)))

    async def _place(self, place: int, session: Session[str] | None) -> None:
        await asyncio.sleep(self._load.ramp_s * place / self._places)
        number = 0
        while not self.is_over:
            number += 1
            name = f"{place}-{number}"
            try:
                await self._turn(name, session, is_followed=place % EACH_FOLLOWED == 0)
            except PerdureError as error:
                self.errors[error.code] += 1
                await asyncio.sleep(AFTER_AN_ERROR_S)

    async def _turn(self, name: str, session: Session[str] | None, *, is_followed: bool) -> None:
        began, task = time.time(), self._load.job.task(name)
        accepted: Turn[str] | Sent[str] = (
            await session.say(task, id=name)
            if session
            else await self._client.start(AGENT, task, id=name)
        )
        id, answer, following = "", None, None
        try:
            turn = await accepted.turn() if isinstance(accepted, Sent) else accepted
            id = turn.id
            following = asyncio.create_task(self._follow(turn)) if is_followed else None
            answer = (await turn.result()).output
            if following:
                await following
        finally:
            if following:
                following.cancel()
            owner = session.id if session else ""
            self.ended.append(Ended(name, id, self._load.job, began, time.time(), answer, owner))

    async def _follow(self, turn: Turn[str]) -> None:
        async for event in turn.events():
            now = time.time()
            self.late.append((now, 1000 * (now - event.at.timestamp())))


async def run(load: Load) -> Run:
    """Run a load on a new server with new workers."""
    async with cluster(load.workers) as on:
        warm = [on.client.run(AGENT, WARM.task(f"warm-{n}")) for n in range(WARM_TURNS)]
        await asyncio.gather(*warm)
        actions, before = await on.actions(), on.used()
        traffic = Traffic(on.client, load)
        running = asyncio.create_task(traffic.run())
        await asyncio.sleep(load.ramp_s)
        first = on.used()
        async with on.watched() as memory:
            kills = await _measured(on, load)
        window = on.used().since(first)
        traffic.is_over = True
        with contextlib.suppress(TimeoutError):  # what has not ended is lost
            await asyncio.wait_for(running, PATIENCE_S + 3 * load.job.steps * load.job.seconds)
        total = on.used().since(before)
        return Run(
            load=load,
            turns=traffic.ended,
            errors=traffic.errors,
            late=traffic.late,
            lines=read_lines(on.lines),
            began=first.at,
            window=window,
            total=total,
            actions=await on.actions() - actions,
            memory=memory,
            histories=await _histories(on.client, traffic.ended),
            kills=kills,
            lost_tasks=await on.lost_tasks(),
        )


async def _measured(on: Cluster, load: Load) -> int:
    """Let the time pass, with the kills spread over it; return how many there were."""
    luck, kills = random.Random(load.kills), 0
    for _ in range(load.kills):
        await asyncio.sleep(load.seconds / (load.kills + 1))
        kills += on.kill(luck)
    await asyncio.sleep(load.seconds / (load.kills + 1))
    return kills


async def _histories(client: AgentClient, ended: list[Ended]) -> Histories:
    """Measure some turns of their own, some of sessions, and all sessions."""
    done = [turn for turn in ended if turn.answer is not None]
    own = await _mean(client, [turn.id for turn in done if not turn.session][-SAMPLES:])
    answers = await _mean(client, [turn.id for turn in done if turn.session][-SAMPLES:])
    sessions = await sizes(client, sorted({turn.session for turn in done if turn.session}))
    messages = max(1, sum(bool(turn.session) for turn in done))
    events, size = (of_all / messages for of_all in sessions)
    return Histories(*own, answers[0] + events, answers[1] + size)


async def _mean(client: AgentClient, ids: list[str]) -> tuple[float, float]:
    events, size = await sizes(client, ids)
    return events / max(1, len(ids)), size / max(1, len(ids))


async def sizes(client: AgentClient, ids: list[str]) -> tuple[int, int]:
    """The events and the bytes of workflows together, by the server's count."""
    events = size = 0
    for id in ids:
        found = await client.temporal.get_workflow_handle(id).describe()
        events += found.history_length
        size += found.raw_description.workflow_execution_info.history_size_bytes
    return events, size
