"""The process that runs the job with a library and a database: `python -m
benchmarks.peers.library_job MODULE:VARIANT URL`.

It reads lines: `run ID STEPS BYTES DELAY`, `again ID` to resume a turn after a crash, and `cpu`. It
writes `ready`, a line with the time for each model call, `done ID`, and CPU seconds. All turns
share one process and one event loop.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
import traceback
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, cast


class Turns(Protocol):
    """Runs the job."""

    async def run(self, turn_id: str, task: str) -> object: ...
    async def again(self, turn_id: str) -> object: ...


class Library(Protocol):
    """A module with an implementation."""

    def opened(self, url: str, variant: str) -> AbstractAsyncContextManager[Turns]: ...


def load(module: str) -> Library:
    return cast("Library", importlib.import_module(module))


async def told(turn_id: str, work: Awaitable[object]) -> None:
    """Run it, and report how it ended."""
    try:
        await work
        print(f"done {turn_id}", flush=True)
    except Exception as error:  # noqa: BLE001 - any way to end is a result here
        traceback.print_exc()
        print(f"failed {turn_id} {type(error).__name__}", flush=True)


async def main(named: str, url: str) -> None:
    """Work until the input ends."""
    module, variant = named.split(":")[:2]
    running = set()
    async with load(module).opened(url, variant) as turns:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            match line.split(maxsplit=2):
                case ["run", turn_id, task]:
                    running.add(asyncio.create_task(told(turn_id, turns.run(turn_id, task))))
                case ["again", turn_id]:
                    running.add(asyncio.create_task(told(turn_id, turns.again(turn_id))))
                case ["cpu"]:
                    print(f"cpu {time.process_time()}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
