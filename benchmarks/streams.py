"""How late are events with 1,000 open streams, and what does a stream cost?

`make -C benchmarks streams`.

Two gateway processes, as `perdure serve` starts them, follow the same 50 running turns: one with a
stream for each turn, the other with 20. So both meet the same load of the machine, and each event
is compared with itself: the cost of many streams is how much later it arrives. It is late by the
time from its record in Temporal's history to its arrival. Then 1,000 streams of turns that wait are
opened, of 50 turns and of 1,000, for the memory that they take.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import secrets
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.attacks import p50, p99
from benchmarks.bench import working
from benchmarks.processes import Process
from perdure.clients import AgentClient
from perdure.worker.dev.server import DevServer

MODULE, QUEUE = "benchmarks.with_perdure", "streams"
STREAMS, TURNS, ROUNDS = 1000, 50, 3
ROUND_S, MODEL_S = 20.0, 4.0
"""A model call of an agent takes seconds."""
OPENING = 25
"""Streams that are opened at the same time."""
PROBES, PROBE_S = 100, 0.2
WAITS = timedelta(hours=1)
GOAL_MS = 100
TOKEN = secrets.token_urlsafe()
_AT = re.compile(rb'"turn": "([^"]+)".{0,200}?"at": "([^"]+)"')
_SERVING = re.compile(r"http://127\.0\.0\.1:(\d+)")


@dataclass(frozen=True)
class Gateway(Process):
    """A process of `perdure serve`."""

    port: int


Name = tuple[bytes, bytes]
"""The turn of an event, and the time at which it was recorded."""


class Stream(asyncio.Protocol):
    """A client that notes when events arrive, and does nothing else."""

    def __init__(self, path: str) -> None:
        self.is_live = asyncio.Event()
        self.is_over = False
        self.got: list[tuple[float, Name]] = []
        self._path = path
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        who = f"Authorization: Bearer {TOKEN}"
        transport.write(f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\n{who}\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        now = time.time()
        if self.is_live.is_set():
            self.got += [(now, (found[1], found[2])) for found in _AT.finditer(data)]
        elif b'"caught_up"' in data:
            self.is_live.set()

    def connection_lost(self, _: Exception | None) -> None:
        self.is_over = True

    def close(self) -> None:
        """Disconnect."""
        assert self._transport is not None
        self._transport.close()


@contextlib.asynccontextmanager
async def gateway(
    address: str, *arguments: str, root: Path | None = None
) -> AsyncIterator[Gateway]:
    """A gateway process of this tree, or of another one, which is ended with the block."""
    most = str(2 * STREAMS)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", "serve", "--port", "0"),
        *("--address", address, "--task-queue", QUEUE),
        *(arguments or ("--max-streams", most, "--max-streams-of-caller", most)),
        env={**os.environ, "PERDURE_TOKEN": TOKEN},
        cwd=root,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        found = None
        while found is None:
            line = await process.stderr.readline()
            assert line, "the gateway has ended"
            found = _SERVING.search(line.decode())
        yield Gateway(process.pid, int(found[1]))
    finally:
        with contextlib.suppress(ProcessLookupError):  # it was killed
            process.terminate()
        await process.wait()


async def opened(at: Gateway, turns: Sequence[str], count: int) -> list[Stream]:
    """Open streams, spread over the turns, and wait until they are live."""
    places = asyncio.Semaphore(OPENING)

    async def one(turn: str) -> Stream:
        async with places, asyncio.timeout(60):
            path = f"/v1/turns/{turn}/events"
            _, stream = await asyncio.get_running_loop().create_connection(
                lambda: Stream(path), "127.0.0.1", at.port
            )
            await stream.is_live.wait()
            return stream

    chosen = itertools.islice(itertools.cycle(turns), count)
    return await asyncio.gather(*(one(turn) for turn in chosen))


async def request_ms(at: Gateway, path: str, token: str = TOKEN) -> float:
    """How long a request of another client takes, with its connection."""
    began = time.perf_counter()
    reading, writing = await asyncio.open_connection("127.0.0.1", at.port)
    who = f"Authorization: Bearer {token}\r\n"
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{who}Connection: close\r\n\r\n"
    writing.write(head.encode())
    answer = await reading.read()
    writing.close()
    assert b" 200 " in answer[:20], answer
    return 1000 * (time.perf_counter() - began)


@dataclass
class Figures:
    """What was measured on one gateway.

    Attributes:
        late_ms: How late each event was, on each of its streams.
        others_ms: How long requests of others took.
        cpu_s: The CPU time of the gateway.
    """

    late_ms: dict[Name, list[float]] = field(default_factory=dict)
    others_ms: list[float] = field(default_factory=list)
    cpu_s: float = 0

    def add(self, streams: Sequence[Stream], since: float) -> None:
        """Add the events that were recorded after a time, and close the streams."""
        for stream in streams:
            stream.close()
            for now, name in stream.got:
                recorded = datetime.fromisoformat(name[1].decode()).timestamp()
                if recorded > since:
                    self.late_ms.setdefault(name, []).append(1000 * (now - recorded))

    def row(self, name: str) -> str:
        """A line of the table."""
        late = [one for found in self.late_ms.values() for one in found]
        cpu = 100 * self.cpu_s / (ROUNDS * ROUND_S)
        return (
            f"{name:<24}{p50(late):>9.0f}{p99(late):>7.0f}{len(late):>10}"
            f"{p50(self.others_ms):>13.0f}{p99(self.others_ms):>7.0f}{cpu:>7.0f} %"
        )


HEADER = f"{'':<24}{'late p50':>9}{'p99':>7}{'messages':>10}{'request p50':>13}{'p99':>7}{'CPU':>9}"


async def both(few: Gateway, many: Gateway, turns: Sequence[str]) -> bool:
    """Follow running turns with both, print the table, and return whether the goal is met."""
    found = {few: Figures(), many: Figures()}
    for _ in range(ROUNDS):
        streams = {few: await opened(few, turns, TURNS), many: await opened(many, turns, STREAMS)}
        cpu, since = {at: at.cpu() for at in found}, time.time()
        while time.time() < since + ROUND_S:
            for at, figures in found.items():
                figures.others_ms.append(await request_ms(at, "/v1/turns/quick"))
            await asyncio.sleep(PROBE_S)
        for at, figures in found.items():
            figures.cpu_s += at.cpu() - cpu[at]
            figures.add(streams[at], since)
    print(f"milliseconds\n{HEADER}")
    print(found[few].row(f"{TURNS} streams, one a turn"))
    print(found[many].row(f"{STREAMS} streams, {STREAMS // TURNS} a turn"))
    single = found[few].late_ms
    later = [
        late - single[name][0]
        for name, measured in found[many].late_ms.items()
        if name in single
        for late in measured
    ]
    print(
        f"the same event is later by {p50(later):.0f} (p50) and {p99(later):.0f} (p99)", flush=True
    )
    return p99(later) <= GOAL_MS


async def running(client: AgentClient) -> list[str]:
    """Start turns that run as long as the benchmark, spread over the time of a model call."""
    turns = []
    for number in range(TURNS):
        task = f"100000 100 {MODEL_S}"
        turns.append((await client.start("job", task, id=f"running-{number}")).id)
        await asyncio.sleep(MODEL_S / TURNS)
    return turns


async def idle(at: Gateway, turns: Sequence[str]) -> None:
    """Open streams of turns that wait, and print what they cost."""
    before, began = at.megabytes(), time.perf_counter()
    streams = await opened(at, turns, STREAMS)
    opening_s, after = time.perf_counter() - began, at.megabytes()
    cpu, since = at.cpu(), time.perf_counter()
    others = [await request_ms(at, "/v1/turns/quick") for _ in range(PROBES)]
    busy = (at.cpu() - cpu) / (time.perf_counter() - since)
    kept = sum(not stream.is_over for stream in streams)
    for stream in streams:
        stream.close()
    print(
        f"{kept} streams of {len(turns)} turns that wait: opened in {opening_s:.1f} s;"
        f" {before:.0f} -> {after:.0f} MB, {1024 * (after - before) / STREAMS:.0f} kB a stream;"
        f" requests p50 {p50(others):.0f} ms, p99 {p99(others):.0f} ms; CPU {100 * busy:.0f} %",
        flush=True,
    )


async def main() -> bool:
    """Print the tables, and return whether the goal is met."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(DevServer(folder=None, port=0, ui=False))
        address = server.address.address
        client = await AgentClient.connect(address, task_queue=QUEUE)
        await stack.enter_async_context(working(MODULE, address, QUEUE))
        await client.run("job", "1 100 0", id="quick")
        waiting = [
            (await client.start("job", "1 1 0", id=f"waits-{number}", delay=WAITS)).id
            for number in range(STREAMS)
        ]
        for turns in (waiting[:TURNS], waiting):
            async with gateway(address) as at:
                await request_ms(at, "/v1/turns/quick")
                await idle(at, turns)
        few, many = [await stack.enter_async_context(gateway(address)) for _ in range(2)]
        return await both(few, many, await running(client))


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main()) else 1)
