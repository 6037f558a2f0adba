"""What do many turns that wait cost? `python -m benchmarks.waiting [TURNS]`.

So many turns, by default 1,000, wait for an event. Measured are the memory of the worker before
and with them, and of another worker that takes over and has none of them in its cache; for a
minute, the events of their histories, the requests to the server and the CPU time of both; and
what the server takes. At the end, some of the turns get their event from the other worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.attacks import p50, p99
from benchmarks.bench import working
from benchmarks.processes import Process
from perdure.clients import AgentClient
from perdure.worker.dev.server import DevServer

MODULE, QUEUE = "benchmarks.with_waiting", "waiting"
TURNS, SAMPLES, AT_ONCE = 1_000, 50, 20
CACHE = 1_000
"""The number of workflows that a worker of Temporal's SDK keeps in its cache."""
MINUTE_S, SETTLE_S = 60.0, 5.0
POLLS = {"PollWorkflowTaskQueue", "PollActivityTaskQueue", "PollNexusTaskQueue"}
_REQUESTS = re.compile(
    r'^service_requests\{.*?operation="(\w+)".*?service_name="frontend".*?\} (\d+)$', re.MULTILINE
)


async def events_of(client: AgentClient, turns: list[str]) -> int:
    """The number of events in the histories of turns."""
    handles = [client.temporal.get_workflow_handle(turn) for turn in turns]
    return sum([(await handle.describe()).history_length for handle in handles])


async def start(client: AgentClient, name: str, count: int) -> list[str]:
    """Start turns, and return once all of them wait. Those of before wait too, or are over."""
    places, others = asyncio.Semaphore(AT_ONCE), await waiting(client)

    async def one(number: int) -> str:
        async with places:
            return (await client.start("waiter", "go", id=f"{name}-{number}")).id

    turns = await asyncio.gather(*map(one, range(count)))
    while await waiting(client) < others + count:  # noqa: ASYNC110 - a list has no events
        await asyncio.sleep(1)
    return turns


async def waiting(client: AgentClient) -> int:
    """How many turns wait, by Temporal's list."""
    return (await client.temporal.count_workflows('PerdureState="waiting"')).count


async def woken_ms(client: AgentClient, turn_id: str) -> float:
    """How long a turn takes from its event to its end."""
    began = time.perf_counter()
    turn = client.turn(turn_id)
    await turn.emit("go")
    await turn.result()
    return 1000 * (time.perf_counter() - began)


async def end(client: AgentClient, turns: list[str]) -> list[float]:
    """End turns one after the other, and return the milliseconds that each took."""
    ms = [await woken_ms(client, turn) for turn in turns]
    await asyncio.sleep(SETTLE_S)  # Temporal's list lags
    return ms


@dataclass(frozen=True)
class Scene:
    """A server with a database file, and a client of it."""

    client: AgentClient
    server: Process
    folder: Path
    metrics: str

    def file(self) -> float:
        """The megabytes of the database."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file()) / 2**20

    async def requests(self) -> Counter[str]:
        """The requests that the server has counted, by operation."""
        async with httpx.AsyncClient() as http:
            text = (await http.get(self.metrics)).text
        found = Counter[str]()
        for operation, count in _REQUESTS.findall(text):
            found[operation] += int(count)
        return found

    async def minute(self, turns: list[str], worker: Process) -> None:
        """Print what happens in a minute in which all turns wait."""
        sample = turns[:: max(1, len(turns) // SAMPLES)]
        events = await events_of(self.client, sample)
        await asyncio.sleep(SETTLE_S)  # the server adds up in intervals
        before = await self.requests()
        cpu = self.server.cpu(), worker.cpu()
        await asyncio.sleep(MINUTE_S)
        used = self.server.cpu() - cpu[0], worker.cpu() - cpu[1]
        asked = await self.requests() - before
        more = await events_of(self.client, sample) - events
        polls = sum(count for name, count in asked.items() if name in POLLS)
        others = {name: count for name, count in asked.items() if name not in POLLS}
        print(
            f"in {MINUTE_S:.0f} s: {more} events in {len(sample)} histories; {polls} polls of the"
            f" worker, other requests {others}; CPU {used[0]:.1f} s server, {used[1]:.1f} s worker",
            flush=True,
        )


@contextlib.asynccontextmanager
async def opened(queue: str = QUEUE) -> AsyncIterator[Scene]:
    """A server that counts its requests."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    args = [f"--metrics-port={port}"]
    with tempfile.TemporaryDirectory() as name:
        async with DevServer(folder=Path(name), port=0, ui=False, extra_args=args) as server:
            client = await AgentClient.connect(server.address.address, task_queue=queue)
            metrics = f"http://127.0.0.1:{port}/metrics"
            yield Scene(client, Process(server.address.pid), Path(name), metrics)


async def with_turns(scene: Scene, worker: Process, count: int) -> list[str]:
    """Measure before and while so many turns wait; return their ids."""
    warm = await start(scene.client, "warm", SAMPLES)
    await end(scene.client, warm)
    before = worker.megabytes(), scene.server.megabytes(), scene.file()
    print("without turns:", end=" ")
    await scene.minute(warm, worker)
    began = time.perf_counter()
    turns = await start(scene.client, "waits", count)
    print(f"{count} turns wait after {time.perf_counter() - began:.0f} s:", end=" ")
    await asyncio.sleep(SETTLE_S)
    after = worker.megabytes(), scene.server.megabytes(), scene.file()
    await scene.minute(turns, worker)
    cached = min(count, CACHE)
    print(
        f"worker {before[0]:.0f} -> {after[0]:.0f} MB,"
        f" {1024 * (after[0] - before[0]) / cached:.0f} kB for each of {cached} in its cache;"
        f" server {before[1]:.0f} -> {after[1]:.0f} MB;"
        f" its file {before[2]:.0f} -> {after[2]:.0f} MB,"
        f" {1024 * (after[2] - before[2]) / count:.0f} kB a turn",
        flush=True,
    )
    return turns


async def taken_over(scene: Scene, other: Process, turns: list[str]) -> None:
    """Measure a worker that has none of the turns in its cache, then end some of them."""
    again = await start(scene.client, "again", SAMPLES)
    await end(scene.client, again)
    print(f"another worker, with none of them: {other.megabytes():.0f} MB;", end=" ")
    ms = await end(scene.client, turns[:SAMPLES])
    print(f"an event ends a turn after {p50(ms):.0f} ms (p50), {p99(ms):.0f} (p99)")


async def main(count: int) -> None:
    """Measure and print."""
    async with opened() as scene:
        address = scene.client.temporal.service_client.config.target_host
        async with working(MODULE, address, QUEUE) as running:
            turns = await with_turns(scene, Process(running.process.pid), count)
        async with working(MODULE, address, QUEUE) as running:
            await taken_over(scene, Process(running.process.pid), turns)


if __name__ == "__main__":
    asyncio.run(main(int((sys.argv[1:] or [str(TURNS)])[0])))
