"""The job that every loop does, and the process that works on it:
`python -m benchmarks.job MODULE ADDRESS QUEUE`.

What a turn is to do stands in its task, `STEPS BYTES DELAY`: so many tool calls with results of so
many bytes, a model that takes so many seconds. The worker writes a line for each model call with
the time, and answers `cpu` on its input with the CPU seconds it has used.

No loop is imported here, so that a process holds the one that it runs and no other.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from typing import Protocol, cast

from temporalio.client import Client
from temporalio.worker import Replayer, Worker

PROMPT = "p" * 20_000


class Loop(Protocol):
    """A module that can do the job."""

    async def connect(self, address: str) -> Client: ...
    def worker(self, client: Client, queue: str) -> Worker: ...
    def replayer(self) -> Replayer: ...


def load(module: str) -> Loop:
    return cast("Loop", importlib.import_module(module))


async def next_call(task: str, asked: int) -> str | None:
    """What the model says after `asked` answers: the arguments of the next tool call, or None when
    it is done.
    """
    steps, size, delay = task.split()
    print(f"asked {time.time()}", flush=True)
    await asyncio.sleep(float(delay))
    return None if asked == int(steps) else f'{{"number": {asked}, "size": {size}}}'


async def main(module: str, address: str, queue: str) -> None:
    """Work until the input ends."""
    loop = load(module)
    client = await loop.connect(address)
    async with loop.worker(client, queue):
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() == "cpu":
                print(f"cpu {time.process_time()}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
