"""How late is the text of a model, over each way? `make -C benchmarks text`.

Two workers generate the text of so many turns at once, by default 100, twenty pieces a second each
for half a minute. Every piece is the time at which the provider gave it, and the first one comes
after 0.2 s, as those of real providers do at the earliest. A third of the turns is
followed over each way: over two gateways, which all ways share, and in this process. The text comes
first from the workers themselves, and then by heartbeats, which is the way where workers cannot be
reached.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from unittest import mock

from benchmarks.attacks import p50
from benchmarks.bench import working
from benchmarks.streams import TOKEN, Gateway, gateway
from perdure.clients import AgentClient, Turn
from perdure.worker.dev.server import DevServer

MODULE, QUEUE = "benchmarks.with_text", "streams"
TURNS, PIECES, EVERY_S = 100, 600, 0.05
START_S = 20.0
"""The turns begin within this time, and each generates text for 30 s."""
GOAL_MS = 100
_TIME = re.compile(rb"t(\d{19}) ")


def p95(values: list[float]) -> float:
    """The value that 95 in 100 do not exceed."""
    return sorted(values)[int(0.95 * (len(values) - 1))]


class Clock:
    """Notes how late pieces are."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.later: list[float] = []

    def hear(self, data: bytes, *, has_begun: bool) -> bool:
        """Note the pieces in some bytes; return whether the text has begun."""
        now = time.time_ns()
        for found in _TIME.finditer(data):
            late_ms = (now - int(found[1])) / 1e6
            (self.later if has_begun else self.first).append(late_ms)
            has_begun = True
        return has_begun

    def row(self, name: str) -> str:
        """A line of the table."""
        return (
            f"{name:<28}{p50(self.first):>9.0f}{p95(self.first):>8.0f}"
            f"{p50(self.later):>12.0f}{p95(self.later):>8.0f}{len(self.later):>9}"
        )


async def in_process(turn: Turn, clock: Clock) -> None:
    """Follow a turn with the Python client."""
    has_begun = False
    async for said in turn.text():
        if isinstance(said, str):
            has_begun = clock.hear(said.encode(), has_begun=has_begun)


def over(gateways: Sequence[Gateway], path: str) -> Callable[[Turn, Clock], Awaitable[None]]:
    """Return how to follow a turn over a path of one of the gateways, each in its turn."""
    following = itertools.cycle(gateways)

    async def follow(turn: Turn, clock: Clock) -> None:
        at = next(following)
        reading, writing = await asyncio.open_connection("127.0.0.1", at.port)
        who = f"Authorization: Bearer {TOKEN}\r\nConnection: close\r\n"
        head = f"GET {path.format(turn.id)} HTTP/1.1\r\nHost: localhost\r\n{who}\r\n"
        writing.write(head.encode())
        has_begun = False
        async for line in reading:
            # the record at the end repeats the whole text
            if line.startswith(b"data: ") and len(line) < 20 * PIECES:
                has_begun = clock.hear(line, has_begun=has_begun)
        writing.close()

    return follow


async def measured(
    client: AgentClient, name: str, turns: int, ways: dict[str, Callable[..., Awaitable[None]]]
) -> dict[str, Clock]:
    """Start turns, follow each over one way, and print how late its pieces were."""
    clocks = {way: Clock() for way in ways}

    async def one(number: int, way: str) -> None:
        await asyncio.sleep(number * START_S / turns)
        name = f"text-{secrets.token_hex(4)}"
        turn = await client.start("clock", f"{PIECES} {EVERY_S}", id=name, live=True)
        await ways[way](turn, clocks[way])

    chosen = itertools.islice(itertools.cycle(ways), turns)
    await asyncio.gather(*(one(number, way) for number, way in enumerate(chosen)))
    for way, clock in clocks.items():
        print(clock.row(f"{name}: {way}"), flush=True)
    return clocks


@contextlib.asynccontextmanager
async def workers(address: str, value: str) -> AsyncIterator[None]:
    """Two workers with a value of `PERDURE_LIVE_TEXT`."""
    with mock.patch.dict(os.environ, {"PERDURE_LIVE_TEXT": value}):
        async with working(MODULE, address, QUEUE), working(MODULE, address, QUEUE):
            yield


async def main(turns: int) -> bool:
    """Print the table, and return whether the goal is met."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(DevServer(folder=None, port=0, ui=False))
        address = server.address.address
        client = await AgentClient.connect(address, task_queue=QUEUE)
        gateways = [await stack.enter_async_context(gateway(address)) for _ in range(2)]
        ways = {
            "Python": in_process,
            "REST": over(gateways, "/v1/turns/{}/events"),
            "Responses": over(gateways, "/openai/v1/responses/{}?stream=true"),
        }
        print(
            f"{'milliseconds':<28}{'first p50':>9}{'p95':>8}"
            f"{'others p50':>12}{'p95':>8}{'pieces':>9}"
        )
        async with workers(address, "127.0.0.1:0"):
            await measured(client, "warm up", 6, ways)
            direct = await measured(client, "from the worker", turns, ways)
        async with workers(address, "off"):
            await measured(client, "warm up", 6, ways)
            await measured(client, "by heartbeats", turns, ways)
        return all(max(p95(each.first), p95(each.later)) <= GOAL_MS for each in direct.values())


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else TURNS)) else 1)
