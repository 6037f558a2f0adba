"""Turns of many runs, with real worker processes: `make -C benchmarks long`.

It measures four things. The seconds that a continue-as-new takes, by the size of the transcript,
from the last call of a run to the first call of the next. In a turn of 10,000 steps, whose
worker is killed at three of them: the seconds from the kill to the next model call, by another
worker; the last 500 steps against 500 after the first run, in time and in the CPU of the worker;
and the bytes of history for each step.

`python -m benchmarks.long_turns STEPS` takes another number of steps than 10,000;
`benchmarks/out/long.json` holds the figures. It takes a quarter of an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temporalio.client import Client

from benchmarks.bench import WorkerProcess, working
from benchmarks.chain import chain
from benchmarks.run import versions, write
from benchmarks.with_perdure_long import SLOW_S
from perdure import limits
from perdure.clients import AgentClient
from perdure.worker.dev.server import DevServer

OUT = Path(__file__).parent / "out" / "long.json"
MODULE = "benchmarks.with_perdure_long"
STEPS = 10_000
WINDOW_OF_STEPS = 500
"""So many steps at the end are compared with as many near the beginning."""
WINDOW_BEGIN = 500
"""The first of these windows begins after so many steps, when requests are no longer small."""
RESULT_BYTES = 1_000
EARLY = 100
LATE = 3_000
"""The worker is killed in the model calls after so many steps, and in the last one."""
LONG_RUN = 600
"""Steps of a turn that continues as new once."""
RESULTS = {"0.2 MB": 300, "1 MB": 1_900, "4 MB": 8_000}
"""Bytes of a result for transcripts of these sizes when the run is full."""


async def start(
    client: Client, queue: str, steps: int, result: int, slow: Sequence[int], *, agent: str
) -> str:
    """Start a turn and return its id."""
    task = f"{steps} {result} {','.join(map(str, slow)) or '-'}"
    handle = await client.start_workflow(
        "AgentTurn",
        {"agent": agent, "task": task},
        id=f"long-{time.monotonic_ns()}",
        task_queue=queue,
        task_timeout=limits.TASK_TIMEOUT,
    )
    return handle.id


async def result_of(client: Client, turn_id: str) -> None:
    """Wait for the end of a turn, in all of its runs."""
    await client.get_workflow_handle(turn_id).result()


async def continuing(address: str, client: Client) -> dict[str, Any]:
    """The seconds of a continue-as-new, by the size of the transcript."""
    pauses = {}
    cases = [(name, result, "boundless") for name, result in RESULTS.items()]
    cases.append(("1 MB, and a window of 64,000 tokens", RESULTS["1 MB"], "windowed"))
    async with working(MODULE, address, "continuing"):
        for name, result, agent in cases:
            turn_id = await start(client, "continuing", LONG_RUN, result, [], agent=agent)
            await result_of(client, turn_id)
            pauses[name] = _rounded((await chain(client, turn_id)).pauses())
            print(f"{name}: {pauses[name]} s", file=sys.stderr)
    return pauses


def _rounded(seconds: Sequence[float]) -> list[float]:
    return [round(one, 2) for one in seconds]


async def killed(address: str, client: Client, steps: int) -> dict[str, Any]:
    """A turn whose worker is killed in three of its model calls."""
    kills = [step for step in (EARLY, LATE, steps) if step <= steps]
    recoveries: dict[int, float] = {}
    cpu: list[float] = []
    async with contextlib.AsyncExitStack() as stack:
        current = await stack.enter_async_context(working(MODULE, address, "killed"))
        turn_id = await start(client, "killed", steps, RESULT_BYTES, kills, agent="windowed")
        done = 0
        for step in kills:
            cpu += await _cpu_between(current, done, _marks(steps, done, step))
            await _until_asked(current, step - done + 1)
            other = await stack.enter_async_context(working(MODULE, address, "killed"))
            await asyncio.sleep(SLOW_S / 2)
            at = time.time()
            current.process.send_signal(signal.SIGKILL)
            await _until_asked(other, 1)
            recoveries[step] = round(other.asked[0] - at, 1)
            print(f"killed at step {step}: {recoveries[step]} s", file=sys.stderr)
            current, done = other, step
        await result_of(client, turn_id)
        read = await chain(client, turn_id)
        report = await AgentClient.from_temporal(client).turn(turn_id).result()
    first = read.seconds(WINDOW_BEGIN, WINDOW_BEGIN + WINDOW_OF_STEPS)
    last = read.seconds(steps - WINDOW_OF_STEPS, steps)
    return {
        "steps": len(report.steps),
        "runs": len(read.histories),
        "most_events_of_a_run": read.most_events,
        "history_bytes_per_step": round(read.bytes / steps),
        "seconds_after_a_kill": recoveries,
        "ms_per_step_first_500": round(1000 * first / WINDOW_OF_STEPS, 1),
        "ms_per_step_last_500": round(1000 * last / WINDOW_OF_STEPS, 1),
        "flatness": round(last / first, 2),
        "cpu_flatness": round((cpu[3] - cpu[2]) / (cpu[1] - cpu[0]), 2),
        "continue_as_new_s_of_each_run": _rounded(read.pauses()),
    }


def _marks(steps: int, done: int, step: int) -> list[int]:
    """The steps between two kills at which the CPU of the worker is read."""
    marks = (
        WINDOW_BEGIN,
        WINDOW_BEGIN + WINDOW_OF_STEPS,
        steps - WINDOW_OF_STEPS,
        steps,
    )
    return [mark for mark in marks if done < mark <= step]


async def _cpu_between(worker: WorkerProcess, done: int, marks: Sequence[int]) -> list[float]:
    """Return the CPU seconds of a worker, which took over after `done` steps, at these steps."""
    out = []
    for mark in marks:
        await _until_asked(worker, mark - done + 1)
        out.append(await worker.cpu())
    return out


async def _until_asked(worker: WorkerProcess, times: int) -> None:
    while len(worker.asked) < times:  # noqa: ASYNC110 - another process says so
        await asyncio.sleep(0.02)


async def main(steps: int) -> None:
    """Measure everything and write it down."""
    figures: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "load": [round(one, 1) for one in os.getloadavg()],
        "versions": versions(),
    }
    async with DevServer(folder=None, port=0, ui=False) as server:
        address = server.address.address
        client = await Client.connect(address)
        figures["continue_as_new_s"] = await continuing(address, client)
        figures |= await killed(address, client, steps)
    write(OUT, figures)
    for name, figure in figures.items():
        print(f"{name:28} {figure}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS))
