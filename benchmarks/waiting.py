"""What do many turns that wait cost? `python -m benchmarks.waiting [TURNS]`.

So many turns, by default 1,000, wait for an event. Measured are the memory of the worker before
and with them, and of another worker that takes over and has none of them in its cache; for a
minute, the events of their histories, the requests to the server and the CPU time of both; and
what the server takes. At the end, some of the turns get their event from the other worker.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.attacks import p50, p99
from benchmarks.bench import working
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
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A process that is looked at from outside."""

    pid: int

    def megabytes(self) -> float:
        """Its resident memory."""
        with Path(f"/proc/{self.pid}/status").open(encoding="utf-8") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def cpu(self) -> float:
        """Its CPU time in seconds."""
        with Path(f"/proc/{self.pid}/stat").open(encoding="utf-8") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


async def requests(metrics: str) -> Counter[str]:
    """The requests that the server has counted, by operation."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(metrics)).text
    found = Counter[str]()
    for operation, count in _REQUESTS.findall(text):
        found[operation] += int(count)
    return found


async def events_of(client: AgentClient, turns: list[str]) -> int:
    """The number of events in the histories of turns."""
    handles = [client.temporal.get_workflow_handle(turn) for turn in turns]
    return sum([(await handle.describe()).history_length for handle in handles])


async def start(client: AgentClient, name: str, count: int) -> list[str]:
    """Start turns, and return once all of them wait."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> str:
        async with places:
            turn = await client.start("waiter", "go", id=f"{name}-{number}")
            await turn.wait()
            return turn.id

    return await asyncio.gather(*map(one, range(count)))


async def woken_ms(client: AgentClient, turn_id: str) -> float:
    """How long a turn takes from its event to its end."""
    began = time.perf_counter()
    turn = client.turn(turn_id)
    await turn.emit("go")
    await turn.result()
    return 1000 * (time.perf_counter() - began)


async def minute(
    client: AgentClient, metrics: str, turns: list[str], server: Process, worker: Process
) -> None:
    """Print what happens in a minute in which all turns wait."""
    sample = turns[:: max(1, len(turns) // SAMPLES)]
    events, before = await events_of(client, sample), await requests(metrics)
    cpu = server.cpu(), worker.cpu()
    await asyncio.sleep(MINUTE_S)
    asked = await requests(metrics) - before
    used = [at.cpu() - was for at, was in zip((server, worker), cpu, strict=True)]
    more = await events_of(client, sample) - events
    polls = sum(count for name, count in asked.items() if name in POLLS)
    others = {name: count for name, count in asked.items() if name not in POLLS}
    print(
        f"in {MINUTE_S:.0f} s: {more} events in {len(sample)} histories; {polls} polls of the"
        f" worker, other requests {others}; CPU {used[0]:.1f} s server, {used[1]:.1f} s worker",
        flush=True,
    )


def size_of(folder: Path) -> float:
    """The megabytes of the files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20


async def main(count: int) -> None:
    """Measure and print."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    metrics = f"http://127.0.0.1:{port}/metrics"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        args = [f"--metrics-port={port}"]
        async with DevServer(folder=folder, port=0, ui=False, extra_args=args) as started:
            address = started.address.address
            server, client = (
                Process(started.address.pid),
                await AgentClient.connect(address, task_queue=QUEUE),
            )
            async with working(MODULE, address, QUEUE) as process:
                worker = Process(process.process.pid)
                warm = await start(client, "warm", SAMPLES)
                for turn in warm:
                    await woken_ms(client, turn)
                await asyncio.sleep(SETTLE_S)
                before = worker.megabytes(), server.megabytes(), size_of(folder)
                print("without turns:", end=" ")
                await minute(client, metrics, warm, server, worker)
                began = time.perf_counter()
                turns = await start(client, "waits", count)
                took = time.perf_counter() - began
                await asyncio.sleep(SETTLE_S)
                after = worker.megabytes(), server.megabytes(), size_of(folder)
                print(f"{count} turns wait after {took:.0f} s:", end=" ")
                await minute(client, metrics, turns, server, worker)
            cached = min(count, CACHE)
            print(
                f"worker {before[0]:.0f} -> {after[0]:.0f} MB,"
                f" {1024 * (after[0] - before[0]) / cached:.0f} kB for each of {cached} in its"
                f" cache; server {before[1]:.0f} -> {after[1]:.0f} MB, its file"
                f" {before[2]:.0f} -> {after[2]:.0f} MB,"
                f" {1024 * (after[2] - before[2]) / count:.0f} kB a turn",
                flush=True,
            )
            async with working(MODULE, address, QUEUE) as process:
                other = Process(process.process.pid)
                again = f"again-{secrets.token_hex(4)}"
                turn = await client.start("waiter", "go", id=again)
                await turn.wait()
                await woken_ms(client, again)
                await asyncio.sleep(SETTLE_S)
                print(f"another worker, with none of them: {other.megabytes():.0f} MB;", end=" ")
                ms = [await woken_ms(client, turn) for turn in turns[:SAMPLES]]
                print(f"an event ends a turn after {p50(ms):.0f} ms (p50), {p99(ms):.0f} (p99)")


if __name__ == "__main__":
    asyncio.run(main(int((sys.argv[1:] or [TURNS])[0])))
