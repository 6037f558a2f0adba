"""What does a session cost that nobody writes to?

So many sessions get one message each. Measured are the CPU of server and worker in a time in which
nothing happens, without them and with them, the memory of both, and the bytes of the histories and
of the server's database. Then the worker is killed: the next one has none of them in its cache.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.attacks import p50
from benchmarks.load.app import Job
from benchmarks.load.cluster import Cluster, cluster
from benchmarks.load.traffic import AGENT, WARM, sizes
from perdure.clients import AgentClient

ANSWER = Job(steps=1, tools=0, seconds=0)
AT_ONCE = 20
SAMPLES = 20
QUIET_S = 10.0
"""The server goes on with its own work for a while after the last message."""


async def say(client: AgentClient, session: str, message: str) -> tuple[float, str]:
    """Send a message and wait for its answer; return the milliseconds, and the id of its turn."""
    began = time.perf_counter()
    sent = await client.session(session, AGENT).say(ANSWER.task(message), id=message)
    turn = await sent.turn()
    await turn.result()
    return 1000 * (time.perf_counter() - began), turn.id


async def idle(sessions: int, seconds: float) -> dict[str, Any]:
    """Measure, and return the figures: CPU in seconds an hour, memory in megabytes."""
    async with cluster(workers=1) as on:
        for number in range(2 * AT_ONCE):
            await on.client.run(AGENT, WARM.task(f"warm-{number}"))
        names = [f"idle-{number}" for number in range(sessions)]
        without, file = await _quiet(on, seconds), on.scene.file()
        turns = await _begin(on.client, names)
        with_them, grown = await _quiet(on, seconds), on.scene.file() - file
        cached = [(await say(on.client, name, f"{name}-more"))[0] for name in names[:SAMPLES]]
        _, own = await sizes(on.client, names[-SAMPLES:])
        _, of_turns = await sizes(on.client, turns[-SAMPLES:])
        on.supervisor.children()[0].kill()
        await on.served(2)
        again = [(await say(on.client, name, f"{name}-again"))[0] for name in names[:SAMPLES]]
        return {
            "sessions": sessions,
            "without": without,
            "with": with_them,
            "session_bytes": round(own / SAMPLES),
            "turn_bytes": round(of_turns / SAMPLES),
            "database_kb": round(1024 * grown / sessions, 1),
            "next_worker": round(on.memory()[1][0]),
            "message_cached": round(p50(cached)),
            "message_not_cached": round(p50(again)),
        }


async def _begin(client: AgentClient, names: list[str]) -> list[str]:
    """Send a message to each session, and return the ids of their turns."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> str:
        async with places:
            return (await say(client, name, f"{name}-first"))[1]

    return await asyncio.gather(*map(one, names))


async def _quiet(on: Cluster, seconds: float) -> dict[str, float]:
    """CPU in seconds an hour while nothing happens, and the memory at the end."""
    await asyncio.sleep(QUIET_S)
    before = on.used()
    await asyncio.sleep(seconds)
    used = on.used().since(before)
    server, workers = on.memory()
    return {
        "server_cpu": round(3600 * used.server / used.at),
        "workers_cpu": round(3600 * used.workers / used.at),
        "server": round(server),
        "worker": round(sum(workers)),
    }
