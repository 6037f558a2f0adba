"""The cost of a change: the job on this tree and on that of an earlier commit, interleaved on one
server. `python -m benchmarks.before COMMIT [STEPS [TURNS]]`.

The earlier tree comes from git, and its worker is a separate process. Prints milliseconds per step,
the CPU milliseconds per step of the worker and the server, and the bytes of the history, each with
the ratio. Two workers of the same tree differ by up to 2 %: compare a commit with itself to see the
noise. A round is one turn of 60 steps, or this many turns of this many: `HEAD~1 1 15` is what a
turn costs besides its steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from temporalio.client import Client

from perdure.worker.dev.server import DevServer

ROOT = Path(__file__).parents[1]
ROUNDS, STEPS, TURNS, SIZE = 20, 60, 1, 5_000


@contextlib.asynccontextmanager
async def worker(
    tree: Path, app: str, address: str, queue: str, **environment: str
) -> AsyncIterator[int]:
    """A worker process of a tree. Yields its id."""
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(tree),
        "PERDURE_TASK_QUEUE": queue,
        **environment,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "perdure", "worker", app, "--address", address,
        cwd=tree, env=variables,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process.pid
    finally:
        process.kill()
        await process.wait()


async def turns(client: Client, queue: str, steps: int, count: int) -> tuple[float, int]:
    """Milliseconds per step of turns one after another, and the bytes of the last history."""
    ran = [await turn(client, queue, steps) for _ in range(count)]
    return statistics.mean(ms for ms, _ in ran), ran[-1][1]


async def turn(client: Client, queue: str, steps: int) -> tuple[float, int]:
    """Milliseconds per step, and the bytes of the history."""
    began = time.perf_counter()
    given = {"agent": "job", "task": f"{steps} {SIZE} 0"}
    handle = await client.start_workflow(
        "AgentTurn", given, id=f"{queue}-{time.monotonic_ns()}", task_queue=queue
    )
    await handle.result()
    took = 1000 * (time.perf_counter() - began) / steps
    return took, sum(event.ByteSize() for event in (await handle.fetch_history()).events)


def cpu_ms(pid: int) -> float:
    """The CPU time that a process and those below it have used, in milliseconds (Linux).

    A worker is the child of its supervisor.
    """
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(after_name[11]), int(after_name[12])
    own = 1000 * (user + system) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(cpu_ms(int(child)) for child in children)


async def compare(before: Path, steps: int, count: int) -> None:
    """Run both alternately and print the results. The one that is first changes with each round."""
    took: dict[str, list[float]] = {"before": [], "now": []}
    used: dict[str, list[float]] = {"before": [], "now": []}
    served: dict[str, list[float]] = {"before": [], "now": []}
    size: dict[str, int] = {}
    async with DevServer(folder=None, port=0, ui=False) as server:
        address = server.address.address
        client = await Client.connect(address)
        apps = {"before": (before, app_of(before)), "now": (ROOT, app_of(ROOT))}
        async with contextlib.AsyncExitStack() as stack:
            pids = {}
            for name, (tree, app) in apps.items():
                pids[name] = await stack.enter_async_context(worker(tree, app, address, name))
                await turns(client, name, steps, count)
            for number in range(1, ROUNDS + 1):
                for name in apps if number % 2 else reversed(apps):
                    began, server_began = cpu_ms(pids[name]), cpu_ms(server.address.pid)
                    ms, size[name] = await turns(client, name, steps, count)
                    took[name].append(ms)
                    used[name].append((cpu_ms(pids[name]) - began) / steps / count)
                    served[name].append((cpu_ms(server.address.pid) - server_began) / steps / count)
    report("ms a step", took)
    report("CPU ms a step", used)
    report("of the server", served)
    print(
        f"history bytes  {size['before']} before, {size['now']} now:"
        f" {size['now'] / size['before']:.3f} x"
    )


def report(what: str, values: Mapping[str, Sequence[float]]) -> None:
    """Print the medians, and the median of the ratios of the rounds."""
    ratios = [now / before for before, now in zip(values["before"], values["now"], strict=True)]
    before, now = (statistics.median(values[name]) for name in ("before", "now"))
    print(f"{what:14} {before:.1f} before, {now:.1f} now: {statistics.median(ratios):.3f} x")


def app_of(tree: Path) -> str:
    """The location of the job in a tree."""
    return (
        "benchmarks.with_perdure:make"
        if (tree / "benchmarks/with_perdure.py").exists()
        else "benchmarks.job:make"
    )


def main() -> None:
    """Check out the commit's tree and compare."""
    commit = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else STEPS
    count = int(sys.argv[3]) if len(sys.argv) > 3 else TURNS
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        asyncio.run(compare(Path(folder), steps, count))


if __name__ == "__main__":
    main()
