"""A server and workers under load, and what they use."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks import actions, waiting
from benchmarks.load.app import LINES
from benchmarks.processes import Process, supervised_workers, times_served
from perdure.clients import AgentClient

QUEUE = "load"
APP = "benchmarks.load.app:make"
READY_S = 90.0
_TOO_SLOW = re.compile(
    r'^client_errors\{error_type="serviceerror_DeadlineExceeded",.*'
    r'operation="HistoryClientRecordWorkflowTaskStarted",.*\} (\d+)$',
    re.MULTILINE,
)
"""A server that needs longer than a second to record that a task has started forgets to send it;
the task is sent again after its timeout, `limits.TASK_TIMEOUT`."""
SAMPLE_S = 1.0
SETTLE_S = 2.0
"""The server adds its counters up in shorter intervals."""


@dataclass(frozen=True)
class Used:
    """CPU time in seconds up to a moment.

    Attributes:
        at: Seconds since 1970.
        workers: Of all worker processes and their supervisor, also of those that were killed.
        client: Of this process, which starts and follows the turns.
    """

    at: float
    server: float
    workers: float
    client: float

    def since(self, before: Used) -> Used:
        """What was used since an earlier moment; `at` is the time between them."""
        return Used(
            self.at - before.at,
            self.server - before.server,
            self.workers - before.workers,
            self.client - before.client,
        )


@dataclass
class Memory:
    """Resident memory in megabytes, each second: of the server, and of each worker process."""

    server: list[float] = field(default_factory=list)
    worker: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Cluster:
    """A server with workers under one supervisor.

    Attributes:
        worker: The process of `perdure worker`.
        lines: The file that the calls of the workers are written to.
    """

    client: AgentClient
    scene: waiting.Scene
    worker: asyncio.subprocess.Process
    lines: Path
    log: Path

    @property
    def supervisor(self) -> Process:
        """The supervisor of the worker processes, which are its children."""
        return Process(self.worker.pid)

    def used(self) -> Used:
        """The CPU time so far."""
        workers = self.supervisor.cpu_of_all()
        return Used(time.time(), self.scene.server.cpu(), workers, time.process_time())

    async def actions(self) -> Counter[str]:
        """The actions that the server has counted, once it has added them up."""
        last, found = None, await actions.read(self.scene.metrics)
        while found != last:
            await asyncio.sleep(SETTLE_S)
            last, found = found, await actions.read(self.scene.metrics)
        return found

    async def lost_tasks(self) -> int:
        """Workflow tasks that the server gave to a worker too slowly, and that never arrived."""
        async with httpx.AsyncClient() as http:
            text = (await http.get(self.scene.metrics)).text
        return sum(int(count) for count in _TOO_SLOW.findall(text))

    def memory(self) -> tuple[float, list[float]]:
        """The megabytes of the server, and of each worker process."""
        workers = []
        for child in self.supervisor.children():
            with contextlib.suppress(OSError, StopIteration):  # it has just ended
                workers.append(child.megabytes())
        return self.scene.server.megabytes(), workers

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[Memory]:
        """Note the memory each second, for the duration of the block."""
        memory = Memory()

        async def watch() -> None:
            while True:
                server, workers = self.memory()
                memory.server.append(server)
                memory.worker += workers
                await asyncio.sleep(SAMPLE_S)

        watching = asyncio.create_task(watch())
        try:
            yield memory
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    async def served(self, times: int) -> None:
        """Wait until worker processes have begun to serve so many times.

        Raises:
            RuntimeError: The supervisor has ended, with its log.
        """
        async with asyncio.timeout(READY_S):
            while times_served(self.log) < times:
                if self.worker.returncode is not None:
                    raise RuntimeError(self.log.read_text(encoding="utf-8"))
                await asyncio.sleep(0.05)

    def kill(self, luck: random.Random) -> bool:
        """`kill -9` of a worker process; return whether there was one."""
        if not (children := self.supervisor.children()):
            return False
        luck.choice(children).kill()
        return True


@contextlib.asynccontextmanager
async def cluster(workers: int) -> AsyncIterator[Cluster]:
    """A new server with so many worker processes that serve."""
    with tempfile.TemporaryDirectory() as folder:
        lines, log = Path(folder) / "lines", Path(folder) / "log"
        lines.touch()
        environment = {
            LINES: str(lines),
            "PERDURE_TASK_QUEUE": QUEUE,
            "PERDURE_PROCESSES": str(workers),
        }
        async with waiting.opened(QUEUE) as scene:
            address = scene.client.temporal.service_client.config.target_host
            async with supervised_workers(APP, address, log, **environment) as worker:
                opened = Cluster(scene.client, scene, worker, lines, log)
                await opened.served(max(1, workers))
                yield opened
