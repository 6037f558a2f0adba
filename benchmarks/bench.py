"""The environment of a benchmark: a server, a client, and a worker process of each kind."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowHistory

from perdure import limits
from perdure.worker.dev.server import DevServer

SIZE = 5_000
"""Bytes of a tool's result."""


@dataclass(frozen=True)
class Kind:
    """An implementation of the job.

    Attributes:
        name: Its name in the results.
        module: The module of its worker, a `job.Loop`.
        workflow: The type of the started workflow.
        start: Converts a task to the workflow's input.
    """

    name: str
    module: str
    workflow: str
    start: Callable[[str], Any] = str


HANDWRITTEN = Kind("handwritten", "benchmarks.handwritten", "HandwrittenLoop")
PERDURE = Kind(
    "perdure", "benchmarks.with_perdure", "AgentTurn", lambda task: {"agent": "job", "task": task}
)


@dataclass
class WorkerProcess:
    """A worker as a process."""

    queue: str
    process: asyncio.subprocess.Process
    asked: list[float] = field(default_factory=list)
    _cpu: asyncio.Queue[float] = field(default_factory=asyncio.Queue)

    async def read(self) -> None:
        """Read its output."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            match line.decode(errors="replace").split():
                case ["cpu", number]:
                    await self._cpu.put(float(number))
                case ["asked", number]:
                    self.asked.append(float(number))

    async def cpu(self) -> float:
        """Its CPU time in seconds."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"cpu\n")
        await self.process.stdin.drain()
        return await self._cpu.get()


@contextlib.asynccontextmanager
async def working(module: str, address: str, queue: str) -> AsyncIterator[WorkerProcess]:
    """A worker process, which is ended with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.job",
        module,
        address,
        queue,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    running = WorkerProcess(queue, process)
    reader = asyncio.create_task(running.read())
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reader


@dataclass
class Bench:
    """A server, a client, and workers by module."""

    address: str
    client: Client
    workers: dict[str, WorkerProcess]

    async def start(self, kind: Kind, steps: int, size: int = SIZE) -> WorkflowHandle[Any, Any]:
        """Start the job.

        The client has no plugin: its input is a string or a dict, which a plugin would not change.
        """
        return await self.client.start_workflow(
            kind.workflow,
            kind.start(f"{steps} {size} 0"),
            id=f"{kind.name}-{time.monotonic_ns()}",
            task_queue=self.workers[kind.module].queue,
            task_timeout=limits.TASK_TIMEOUT,
        )

    async def turn(self, kind: Kind, steps: int, size: int = SIZE) -> tuple[float, WorkflowHistory]:
        """Run the job once; return its duration in seconds, and the history."""
        began = time.perf_counter()
        handle = await self.start(kind, steps, size)
        await handle.result()
        return time.perf_counter() - began, await handle.fetch_history()


@contextlib.asynccontextmanager
async def opened(kinds: Sequence[Kind]) -> AsyncIterator[Bench]:
    """A bench on which each kind has run once."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(DevServer(folder=None, port=0, ui=False))
        address = server.address.address
        bench = Bench(address, await Client.connect(address), {})
        for kind in kinds:
            if kind.module not in bench.workers:
                bench.workers[kind.module] = await stack.enter_async_context(
                    working(kind.module, address, kind.name)
                )
            await bench.turn(kind, 5, 100)
        yield bench
