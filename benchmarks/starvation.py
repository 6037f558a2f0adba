"""How many calls count as lost on a starved machine, and how soon a lost one is noticed:
`make -C benchmarks starvation`.

Turns run at once under a supervised worker, on a real server, with two model calls of a few seconds
and a tool call each. The provider is a process that logs its requests. Beside them are processes
that only compute. No process dies, so each activity that was given up is a false loss: after a
heartbeat timeout, or because the supervisor has killed a process that it took for a frozen one.
Each request beyond two for a turn is paid twice. A lost machine is a supervisor that is killed with
its process, under the same load.

Arguments: the tolerances in seconds, the loads in processes, the model calls of each measurement,
and the turns at once. `2.5,12 25 120 60` is a short run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from temporalio.api.enums.v1 import TimeoutType

from benchmarks.processes import ROOT, kill_all
from benchmarks.recovery import lost_machine
from benchmarks.with_perdure_starved import PROVIDER
from perdure import errors
from perdure.clients import AgentClient
from perdure.temporal.names import WORKER_SHUTDOWN
from perdure.testing.stub_provider import read_log
from perdure.worker.dev.server import DevServer

_DELAY_S = 4.0
"""Longer than the interval of heartbeats."""
_TOLERANCE = "PERDURE_HEARTBEAT_TOLERANCE_S"
_REPLIES = [{"calls": [{"name": "charge", "arguments": {}}]}, {"text": "done"}]
_FROZEN = "has not run for"
"""The supervisor logs it of a process that it kills."""
_RECOVERIES = 3
_HEARTBEAT = TimeoutType.TIMEOUT_TYPE_HEARTBEAT


@dataclass
class Losses:
    """Of one measurement.

    `late` and `reported` are the activities that were given up after a heartbeat timeout, and by
    the supervisor, which has killed `frozen` processes. `failed` are turns. `recovery_s` is the
    worst recovery from a lost machine.
    """

    calls: int = 0
    requests: int = 0
    late: int = 0
    reported: int = 0
    frozen: int = 0
    failed: int = 0
    took_s: float = 0.0
    recovery_s: float = 0.0

    def __str__(self) -> str:
        """Two cells of the table."""
        words = [f"{self.late + self.reported} lost", f"{self.requests - self.calls} paid twice"]
        words += [f"{self.frozen} processes killed"] * bool(self.frozen)
        words += [f"{self.failed} turns failed"] * bool(self.failed)
        return f"{', '.join(words)} | {self.recovery_s:.1f} s"


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Load the machine with processes that only compute.

    Each has a session of its own: Linux may share the time between sessions, and then processes.
    """
    parent = os.getpid()  # they end with this process, however it ends
    command = [sys.executable, "-c", f"import os\nwhile os.getppid() == {parent}: pass"]
    running = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextlib.contextmanager
def provider(folder: Path) -> Iterator[tuple[str, Path]]:
    """A provider in a process of its own; yields its address and its log."""
    script, log = folder / "script.json", folder / "requests.jsonl"
    script.write_text(json.dumps(_REPLIES), encoding="utf-8")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "perdure.testing.stub_provider", "--port", "0"),
            *("--script", str(script), "--log", str(log), "--delay", str(_DELAY_S)),
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), log
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def worker(address: str, queue: str, folder: Path, **environment: str) -> Iterator[None]:
    """A supervised worker, which serves when the block begins."""
    command = ("-m", "perdure", "worker", "benchmarks.with_perdure_starved:make")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command, "--address", address],
            stderr=log,
            cwd=ROOT,
            env={**os.environ, "PERDURE_TASK_QUEUE": queue, **environment},
        )
    try:
        while "Ctrl-C drains it" not in (folder / "log").read_text(encoding="utf-8"):
            time.sleep(0.05)
        yield
    finally:
        kill_all(process.pid)
        process.wait()


async def measure(address: str, tolerance: str, load: int, calls: int, at_once: int) -> Losses:
    """The losses of so many model calls."""
    queue = f"starved-{time.monotonic_ns()}"
    client = await AgentClient.connect(address, task_queue=queue)
    places = asyncio.Semaphore(at_once)
    losses = Losses(calls=calls)

    async def turn() -> str:
        async with places:
            started = await client.start("starved", "Go.")
            try:
                await started.result()
            except errors.PerdureError:
                losses.failed += 1
            return started.id

    with (
        tempfile.TemporaryDirectory() as folder,
        provider(Path(folder)) as (url, log),
        worker(address, queue, Path(folder), **{PROVIDER: url, _TOLERANCE: tolerance}),
    ):
        with busy(load):
            began = time.monotonic()
            turns = await asyncio.gather(*(turn() for _ in range(calls // 2)))
            losses.took_s = time.monotonic() - began
        losses.requests = len(read_log(log))
        losses.frozen = (Path(folder) / "log").read_text(encoding="utf-8").count(_FROZEN)
        for turn_id in turns:
            await _count_lost(client, turn_id, losses)
    with busy(load):
        took = [await lost_machine(address, **{_TOLERANCE: tolerance}) for _ in range(_RECOVERIES)]
    losses.recovery_s = max(took)
    return losses


async def _count_lost(client: AgentClient, turn_id: str, losses: Losses) -> None:
    events = (await client.temporal.get_workflow_handle(turn_id).fetch_history()).events
    for event in events:
        late = event.activity_task_timed_out_event_attributes.failure.timeout_failure_info
        reported = event.activity_task_failed_event_attributes.failure.application_failure_info
        losses.late += late.timeout_type == _HEARTBEAT
        losses.reported += reported.type == WORKER_SHUTDOWN


async def row(
    address: str, tolerance: str, loads: Sequence[int], calls: int, at_once: int
) -> list[Losses]:
    """The figures of one tolerance."""
    figures: list[Losses] = []
    for load in loads:
        losses = await measure(address, tolerance, load, calls, at_once)
        print(f"tolerance {tolerance} s, load {load}: {losses!r}", file=sys.stderr, flush=True)
        figures.append(losses)
    return figures


async def main(
    tolerances: str = "2.5,5,12,20",
    loads: str = "2,10,25",
    calls: str = "1000",
    at_once: str = "400",
) -> None:
    """Print the table of the documentation."""
    machines = [int(load) for load in loads.split(",")]
    heads = [
        f"false losses of {calls} calls at load {load} | a lost machine: worst of {_RECOVERIES}"
        for load in machines
    ]
    print("| tolerance |", " | ".join(heads), "|")
    print("|---" * (2 * len(heads) + 1) + "|")
    async with DevServer(folder=None, port=0, ui=False) as server:
        for tolerance in tolerances.split(","):
            figures = await row(
                server.address.address, tolerance, machines, int(calls), int(at_once)
            )
            print(f"| {tolerance} s |", " | ".join(map(str, figures)), "|", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
