"""Measurements of any implementation.

Implementations are interleaved, so that the conditions are the same for all. Only the rounds with
the shortest total time count, because other processes may be using the machine.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

from temporalio.api.enums.v1 import EventType, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.exceptions import TerminatedError

from benchmarks.bench import Bench, Kind, working

ROUNDS, QUIET = 5, 3
STEPS = 60
TURNS, STEPS_OF_EACH = 20, 10
ACTIVITIES_OF_A_STEP = 2

Figures = dict[str, list[float]]


def medians(figures: Mapping[str, Sequence[float]], digits: int = 1) -> dict[str, float]:
    return {name: round(statistics.median(measured), digits) for name, measured in figures.items()}


def ratio(figures: Figures, name: str, other: str) -> float:
    """The ratio of two implementations: the median over the rounds, since a busy minute slows a
    whole round.
    """
    return round(
        statistics.median(
            one / its for one, its in zip(figures[name], figures[other], strict=True)
        ),
        2,
    )


def quiet(seconds: Figures) -> list[int]:
    """The rounds that count."""
    totals = [sum(measured) for measured in zip(*seconds.values(), strict=True)]
    return sorted(range(len(totals)), key=totals.__getitem__)[:QUIET]


def converted(
    figures: Figures, rounds: Sequence[int], convert: Callable[[float], float]
) -> Figures:
    """The results of some rounds in another unit."""
    return {
        name: [convert(measured[number]) for number in rounds] for name, measured in figures.items()
    }


async def alone(bench: Bench, kinds: Sequence[Kind]) -> tuple[Figures, Figures]:
    """One turn at a time: milliseconds per step, and CPU milliseconds of the worker per step."""
    took: Figures = {kind.name: [] for kind in kinds}
    used: Figures = {kind.name: [] for kind in kinds}
    for _ in range(ROUNDS):
        for kind in kinds:
            worker = bench.workers[kind.module]
            before = await worker.cpu()
            seconds, _history = await bench.turn(kind, STEPS)
            used[kind.name].append(await worker.cpu() - before)
            took[kind.name].append(seconds)
    rounds = quiet(took)
    return converted(took, rounds, lambda s: 1000 * s / STEPS), converted(
        used, rounds, lambda s: 1000 * s / STEPS
    )


async def together(bench: Bench, kinds: Sequence[Kind]) -> Figures:
    """Many concurrent turns: steps per second."""
    took: Figures = {kind.name: [] for kind in kinds}
    for _ in range(ROUNDS):
        for kind in kinds:
            began = time.perf_counter()
            await asyncio.gather(*(bench.turn(kind, STEPS_OF_EACH) for _ in range(TURNS)))
            took[kind.name].append(time.perf_counter() - began)
    return converted(took, quiet(took), lambda s: TURNS * STEPS_OF_EACH / s)


async def last_step(bench: Bench, kind: Kind, steps: int) -> int | None:
    """The step after which the server terminated a turn of this number of steps; None if it did
    not.
    """
    handle = await bench.start(kind, steps)
    try:
        await handle.result()
    except WorkflowFailureError as error:
        if not isinstance(error.cause, TerminatedError):
            raise
        history = await handle.fetch_history()
        return (
            sum(
                event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
                for event in history.events
            )
            // ACTIVITIES_OF_A_STEP
        )
    return None


async def replay_ms(kind: Kind, history: WorkflowHistory) -> float:
    """Milliseconds of one replay, in a separate process."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(history.to_json())
        file.flush()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.replay",
            kind.module,
            file.name,
            stdout=asyncio.subprocess.PIPE,
        )
        written, _ = await process.communicate()
    lines = [line.split() for line in written.decode(errors="replace").splitlines()]
    return statistics.median(float(words[1]) for words in lines if words[:1] == ["replayed"])


async def recovery_s(bench: Bench, kind: Kind) -> float:
    """Seconds from a kill during a model call to the next model call, by another running worker."""
    queue = f"recovery-{kind.name}"
    async with working(kind.module, bench.address, queue) as first:
        handle = await bench.client.start_workflow(
            kind.workflow, kind.start("1 10 3"), id=queue, task_queue=queue
        )
        while not first.asked:  # noqa: ASYNC110 - another process says so
            await asyncio.sleep(0.02)
        async with working(kind.module, bench.address, queue) as second:
            await asyncio.sleep(1.5)
            killed = time.time()
            first.process.send_signal(signal.SIGKILL)
            await handle.result()
            return second.asked[0] - killed


async def readiness(bench: Bench, kinds: Sequence[Kind]) -> Figures:
    """Seconds from starting a worker's process to its first poll."""
    took: Figures = {kind.name: [] for kind in kinds}
    for number in range(3):
        for kind in kinds:
            queue = f"ready-{kind.name}-{number}"
            began = time.perf_counter()
            async with working(kind.module, bench.address, queue):
                # the server sends no notification of it
                while not await polled(bench.client, queue):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                took[kind.name].append(time.perf_counter() - began)
    return took


async def polled(client: Client, queue: str) -> bool:
    request = DescribeTaskQueueRequest(
        namespace="default",
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    return bool((await client.workflow_service.describe_task_queue(request)).pollers)


def size(history: WorkflowHistory) -> int:
    """Bytes."""
    return sum(event.ByteSize() for event in history.events)
