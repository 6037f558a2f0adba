"""What a local tool saves: `make -C benchmarks local`, or `make -C benchmarks local ARGS=COMMIT`.

The job runs alternately with an ordinary and with a local tool, each on a worker of its own, in an
order that changes with each round; with a commit, also with the ordinary tool on its tree. Prints
the milliseconds, the CPU milliseconds of worker and server, and the events of a step, with the
ratios to the ordinary tool. Then the same for many turns at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from temporalio.client import Client

from benchmarks.before import ROOT, app_of, cpu_ms, worker
from perdure import limits
from perdure.worker.dev.server import DevServer

ROUNDS, STEPS = 12, 40
ROUNDS_AT_ONCE, TURNS, STEPS_OF_EACH = 6, 20, 8
SIZE = 5_000
USUAL, LOCAL, BEFORE = "usual", "local", "before"

Figures = dict[str, dict[str, list[float]]]


class Bench:
    """A server with a worker for each kind.

    Attributes:
        pids: The worker's process by kind.
    """

    def __init__(self, client: Client, server_pid: int, pids: dict[str, int]) -> None:
        self.pids = pids
        self._client = client
        self._server_pid = server_pid

    async def turn(self, kind: str, steps: int) -> int:
        """Run the job; return the number of events."""
        handle = await self._client.start_workflow(
            "AgentTurn",
            {"agent": "job", "task": f"{steps} {SIZE} 0"},
            id=f"{kind}-{time.monotonic_ns()}",
            task_queue=kind,
            task_timeout=limits.TASK_TIMEOUT,
        )
        await handle.result()
        return (await handle.describe()).history_length

    async def measure(self, kind: str, turns: int, steps: int) -> dict[str, float]:
        """Run the job in a number of turns at once; return the figures of a step."""
        before = cpu_ms(self.pids[kind]), cpu_ms(self._server_pid)
        began = time.perf_counter()
        events = await asyncio.gather(*(self.turn(kind, steps) for _ in range(turns)))
        took = 1000 * (time.perf_counter() - began)
        total = turns * steps
        return {
            "ms": took / total,
            "worker CPU ms": (cpu_ms(self.pids[kind]) - before[0]) / total,
            "server CPU ms": (cpu_ms(self._server_pid) - before[1]) / total,
            "events": sum(events) / total,
        }

    async def compare(self, rounds: int, turns: int, steps: int) -> Figures:
        """Measure all kinds alternately."""
        figures: Figures = defaultdict(lambda: defaultdict(list))
        for _ in range(rounds):
            for kind in random.sample(list(self.pids), len(self.pids)):
                for what, value in (await self.measure(kind, turns, steps)).items():
                    figures[what][kind].append(value)
        return figures


def report(title: str, figures: Figures) -> None:
    """Print the medians, and the medians of the ratios of the rounds."""
    print(title)
    for what, values in figures.items():
        shown = [f"{kind} {median(measured):.1f}" for kind, measured in values.items()]
        ratios = [
            f"{kind}/{other} {ratio(values, kind, other):.2f}"
            for kind, other in ((LOCAL, USUAL), (USUAL, BEFORE))
            if other in values
        ]
        print(f"  {what:14} {', '.join(shown)}: {', '.join(ratios)}")


def ratio(values: dict[str, list[float]], kind: str, other: str) -> float:
    """Return the median ratio of the rounds."""
    pairs = zip(values[kind], values[other], strict=True)
    return median(one / its for one, its in pairs if its)


async def compare(before: Path | None) -> None:
    """Compare the trees and the tools."""
    apps = {USUAL: (ROOT, app_of(ROOT)), LOCAL: (ROOT, "benchmarks.with_local_tools:make")}
    if before is not None:
        apps[BEFORE] = (before, app_of(before))
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(DevServer(folder=None, port=0, ui=False))
        address = server.address.address
        pids = {
            kind: await stack.enter_async_context(worker(tree, app, address, kind))
            for kind, (tree, app) in apps.items()
        }
        bench = Bench(await Client.connect(address), server.address.pid, pids)
        for kind in apps:
            await bench.turn(kind, 5)
        report("one turn at a time", await bench.compare(ROUNDS, 1, STEPS))
        at_once = await bench.compare(ROUNDS_AT_ONCE, TURNS, STEPS_OF_EACH)
        report(f"{TURNS} turns at once", at_once)


def main() -> None:
    """Check out the commit's tree, if one is given, and compare."""
    if len(sys.argv) < 2:
        asyncio.run(compare(None))
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", sys.argv[1]], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        asyncio.run(compare(Path(folder)))


if __name__ == "__main__":
    main()
