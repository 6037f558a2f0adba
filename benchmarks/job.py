"""The job that every implementation does, and its worker process: `python -m benchmarks.job MODULE
ADDRESS QUEUE`.

The task of a turn is `STEPS BYTES DELAY`: the number of tool calls, the bytes of each result, and
the seconds of each model call. The worker writes a line with the time for each model call, and
answers `cpu` on its input with its CPU time in seconds.

No implementation is imported here, so that a process loads only the one that it runs.
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
    """A module that implements the job."""

    async def connect(self, address: str) -> Client: ...
    def worker(self, client: Client, queue: str) -> Worker: ...
    def replayer(self) -> Replayer: ...


def load(module: str) -> Loop:
    return cast("Loop", importlib.import_module(module))


async def next_call(task: str, asked: int) -> str | None:
    """The model's reply after `asked` answers: the arguments of the next tool call, or None at the
    end.
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
