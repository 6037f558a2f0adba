"""What encryption adds to a step: `make -C benchmarks encryption`.

The job runs alternately on a worker with a key and on one without, in an order that changes with
each round. Prints the CPU milliseconds of the worker, and of worker and server together, with the
ratios, and the bytes of the history.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from temporalio.client import Client
from temporalio.converter import DataConverter

from benchmarks.before import ROOT, app_of, cpu_ms, report, turns, worker
from perdure.temporal.data_converter import encrypting
from perdure.temporal.encryption.hiding import VARIABLE
from perdure.temporal.encryption.keys import new_entry, parsed
from perdure.worker.dev.server import DevServer

ROUNDS, STEPS = 14, 40
PLAIN, ENCRYPTED = "before", "now"
"""The task queues, as `report` calls them: before encryption, and with it."""


async def compare(rounds: int) -> None:
    """Run both alternately and print the results."""
    workers: dict[str, list[float]] = {PLAIN: [], ENCRYPTED: []}
    together: dict[str, list[float]] = {PLAIN: [], ENCRYPTED: []}
    size: dict[str, int] = {}
    entry = new_entry("k1")
    encrypted = encrypting(DataConverter.default, parsed(entry, "the benchmark"))
    async with DevServer(folder=None, port=0, ui=False) as server:
        address = server.address.address
        clients = {
            PLAIN: await Client.connect(address),
            ENCRYPTED: await Client.connect(address, data_converter=encrypted),
        }
        async with contextlib.AsyncExitStack() as stack:
            pids = {}
            for queue, keys in ((PLAIN, {}), (ENCRYPTED, {VARIABLE: entry})):
                running = worker(ROOT, app_of(ROOT), address, queue, **keys)
                pids[queue] = await stack.enter_async_context(running)
                await turns(clients[queue], queue, STEPS, 1)
            for number in range(rounds):
                for queue in pids if number % 2 else reversed(pids):
                    began, server_began = cpu_ms(pids[queue]), cpu_ms(server.address.pid)
                    _, size[queue] = await turns(clients[queue], queue, STEPS, 1)
                    used = cpu_ms(pids[queue]) - began
                    served = cpu_ms(server.address.pid) - server_began
                    workers[queue].append(used / STEPS)
                    together[queue].append((used + served) / STEPS)
    report("worker CPU ms", workers)
    report("with server", together)
    print(f"history bytes  {size[PLAIN]} before, {size[ENCRYPTED]} now")


if __name__ == "__main__":
    asyncio.run(compare(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
