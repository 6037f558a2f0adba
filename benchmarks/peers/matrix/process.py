"""The processes of a system: `… benchmarks.peers.matrix.process MODULE VARIANT ADDRESS QUEUE`.

It loads the system and writes `loaded`. For each line with the path of a socket it forks a process
that has everything loaded, so that nobody is measured by their imports. That connects to the
socket, writes `pid PID` to it, works, and writes `ready`. A library reads `run ID TASK`, and `again
ID` to continue a turn by hand; it writes `ended ID` and the end as JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, cast

from temporalio.client import Client
from temporalio.worker import Worker


class OnTemporal(Protocol):
    """A module of a system that runs on Temporal."""

    async def connect(self, address: str, variant: str) -> Client: ...
    def worker(self, client: Client, queue: str, variant: str) -> Worker: ...


class Turns(Protocol):
    """Turns of a library. `recover` continues what a process that died has left, and returns the
    turns that it continues.
    """

    async def run(self, turn_id: str, task: str) -> str: ...
    async def again(self, turn_id: str) -> str: ...
    async def recover(self) -> list[str]: ...


class Library(Protocol):
    """A module of a library with a database of its own."""

    def opened(self, url: str, variant: str) -> AbstractAsyncContextManager[Turns]: ...


async def line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


async def told(turn_id: str, work: Awaitable[str]) -> None:
    """Run it, and report how it ended."""
    try:
        end = {"outcome": "completed", "text": await work}
    except Exception as error:  # noqa: BLE001 - any way to end is a result here
        traceback.print_exc()
        end = {"outcome": "failed", "text": f"{type(error).__name__}: {error}"}
    print(f"ended {turn_id} {json.dumps(end)}", flush=True)


async def on_temporal(system: OnTemporal, variant: str, address: str, queue: str) -> None:
    """Work until the input ends."""
    client = await system.connect(address, variant)
    async with system.worker(client, queue, variant):
        print("ready", flush=True)
        while await line():
            pass


async def with_library(system: Library, variant: str, url: str) -> None:
    """Work until the input ends."""
    running = set()
    async with system.opened(url, variant) as turns:
        print("ready", flush=True)
        for turn_id in await turns.recover():
            running.add(asyncio.create_task(told(turn_id, turns.again(turn_id))))
        while asked := await line():
            match asked.split(maxsplit=2):
                case ["run", turn_id, task]:
                    running.add(asyncio.create_task(told(turn_id, turns.run(turn_id, task))))
                case ["again", turn_id]:
                    running.add(asyncio.create_task(told(turn_id, turns.again(turn_id))))


async def work(system: object, variant: str, address: str, queue: str) -> None:
    """Work until the input ends."""
    if hasattr(system, "worker"):
        await on_temporal(cast("OnTemporal", system), variant, address, queue)
    else:
        await with_library(cast("Library", system), variant, address)


def main(module: str, *settings: str) -> None:
    """Load, and fork a process for each line; a fork works and ends."""
    system = importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("loaded", flush=True)
    while path := sys.stdin.readline().strip():
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connected = socket.socket(socket.AF_UNIX)
            connected.connect(path)
            os.dup2(connected.fileno(), sys.stdin.fileno())
            os.dup2(connected.fileno(), sys.stdout.fileno())
            print(f"pid {os.getpid()}", flush=True)
            asyncio.run(work(system, *settings))
            return


if __name__ == "__main__":
    main(*sys.argv[1:5])
