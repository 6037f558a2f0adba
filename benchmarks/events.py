"""What a flood of events by key does to other keys and turns: `make -C benchmarks events`.

Another process sends 1,000 events a second, for a key that nobody waits for. Meanwhile and before,
turns wait for events of other keys, one after the other. Measured are the time from the sending of
an event to the end of its turn, what became of the flood, and what it left in history and memory.
"""

from __future__ import annotations

import asyncio
import collections
import json
import resource
import secrets
import statistics
import sys
import time

from benchmarks.bench import working
from benchmarks.measures import size
from perdure.clients import AgentClient
from perdure.errors import PerdureError
from perdure.events import WaitBegan
from perdure.turn.event_keys import workflow_id
from perdure.worker.dev.server import DevServer

MODULE, QUEUE = "benchmarks.with_events", "events"
ROUNDS, PER_SECOND, FLOOD_S = 30, 1_000, 30
NOBODY = "nobody"


async def flood(address: str) -> None:
    """Send events for a key that nobody waits for, and print what became of them."""
    client = await AgentClient.connect(address, task_queue=QUEUE)
    ends: collections.Counter[str] = collections.Counter()

    async def send() -> None:
        try:
            await client.emit("built", key=NOBODY, body="x" * 100)
            ends["taken"] += 1
        except PerdureError as error:
            ends[error.code] += 1

    began, sending = time.monotonic(), set[asyncio.Task[None]]()
    for number in range(PER_SECOND * FLOOD_S):
        await asyncio.sleep(max(0, began + number / PER_SECOND - time.monotonic()))
        task = asyncio.create_task(send())
        sending.add(task)
        task.add_done_callback(sending.discard)
    took = time.monotonic() - began
    await asyncio.gather(*sending)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"ends": ends, "took_s": round(took, 1), "peak_mb": round(peak_mb)}))


async def latencies(client: AgentClient) -> list[float]:
    """The milliseconds from the sending of events to the ends of the turns that wait for them."""
    measured = []
    for _ in range(ROUNDS):
        key = secrets.token_hex(4)
        turn = await client.start("watcher", key)
        async for event in turn.events():
            if isinstance(event.fact, WaitBegan):
                break
        began = time.perf_counter()
        await client.emit("built", key=key)
        await turn.result()
        measured.append(1000 * (time.perf_counter() - began))
    return measured


def told(name: str, measured: list[float]) -> None:
    """Print the median and the slowest of ten."""
    median, slow = statistics.median(measured), statistics.quantiles(measured, n=10)[-1]
    print(f"{name:8} p50 {median:.0f} ms, p90 {slow:.0f} ms")


async def main() -> None:
    """Measure without the flood, with it, and without it again."""
    async with DevServer(folder=None, port=0, ui=False) as server:
        address = server.address.address
        client = await AgentClient.connect(address, task_queue=QUEUE)
        async with working(MODULE, address, QUEUE):
            await latencies(client)
            told("before", await latencies(client))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.events", address
            )
            told("flood", await latencies(client))
            await process.wait()
            told("after", await latencies(client))
            kept = client.temporal.get_workflow_handle(workflow_id("built", NOBODY))
            history = await kept.fetch_history()
            print(f"keeper   {len(history.events)} events, {size(history)} bytes")


if __name__ == "__main__":
    asyncio.run(flood(sys.argv[1]) if sys.argv[1:] else main())
